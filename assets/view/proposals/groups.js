// Which methods guess the same: by the first token that each would bet on, and within that by the whole draft. Pure.

/**
 * @import { JudgedStep, Node } from "../core/state"
 * @typedef {{ token: Node, count: number, drafts: number[][] }} Group
 *   token: the first that all of them bet on; count: how many they are; drafts: the rows of each draft, those that are alike together
 */

/**
 * Rows by what they bet on, the largest group first. steps: of each row, null where it drafted nothing
 * @param {(JudgedStep | null)[]} steps @returns {Group[]}
 */
export function agreement(steps) {
  /** @type {Map<number, Group & { known: Map<string, number[]> }>} */
  const groups = new Map();
  steps.forEach((step, row) => {
    const token = step && bet(step);
    if (!token) return;
    /** @type {Group & { known: Map<string, number[]> }} */
    const group = groups.get(token.token_id) ?? { token, count: 0, drafts: [], known: new Map() };
    groups.set(token.token_id, group);
    group.count += 1;
    const key = JSON.stringify(step.nodes.map((node) => [node.token_id, node.parent ?? -1]));
    const alike = group.known.get(key);
    if (alike) alike.push(row);
    else {
      const own = [row];
      group.known.set(key, own);
      group.drafts.push(own);
    }
  });
  return [...groups.values()].sort((one, other) => other.count - one.count).map(({ token, count, drafts }) => ({
    token, count, drafts: drafts.sort((one, other) => other.length - one.length),
  }));
}

/** The token that a draft holds most likely to come first; null for an empty one. @param {JudgedStep} step */
export function bet({ nodes }) {
  /** @param {Node} node */
  const chance = (node) => node.draft_prob ?? node.confidence ?? 0;
  const first = nodes.filter((node) => (node.parent ?? -1) < 0);
  return first.reduce((/** @type {Node | null} */ best, node) => (best && chance(best) >= chance(node) ? best : node), null);
}
