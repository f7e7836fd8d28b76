// The same position in several recorded runs of one text: who drafted there, and what. Pure.

import { fold, tokensOf } from "../core/reducer.js";

/**
 * @import { JudgedStep, Lane, Line, Piece } from "../core/state"
 * @typedef {{ method: string, step: JudgedStep }} Draft
 */

/**
 * runs: the events of each. returns: { tokens, header, positions }: the text of the first run's plain lane, and by position
 * (how many tokens stand before it) the steps that began there. A run counts as long as its text is the same, and of a
 * method's runs the first that drafted there.
 * @param {Line[][]} runs
 */
export function sharedPositions(runs) {
  const lanes = runs.map((items) => fold(items).lanes);
  const plain = lanes.find((lane) => lane.plain)?.plain;
  const tokens = plain ? tokensOf(plain) : [];
  /** @type {Map<number, Draft[]>} */
  const all = new Map();
  for (const { speculative } of lanes) {
    if (!speculative) continue;
    for (const [position, step] of stepsOn(tokens, speculative)) {
      const { method } = speculative.header;
      const here = all.get(position) ?? [];
      if (here.every((draft) => draft.method !== method)) all.set(position, [...here, { method, step }]);
    }
  }
  const shared = [...all].filter(([, steps]) => steps.length > 1).sort(([one], [other]) => one - other);
  return { tokens, header: plain?.header ?? null, positions: new Map(shared) };
}

/** [position, step] of each step that drafted, up to the first token that is not the text's. @param {Piece["value"][]} tokens @param {Lane} lane */
function stepsOn(tokens, lane) {
  /** @type {[number, JudgedStep][]} */
  const out = [];
  let position = 0;
  for (const step of lane.steps) {
    if (step.open) break;
    if (step.nodes.length) out.push([position, step]);
    const own = tokensOf({ steps: [step] });
    if (own.some((token, i) => token.token_id !== tokens[position + i]?.token_id)) break;
    position += own.length;
  }
  return out;
}

/**
 * Where one looks first: the position at which most drafted, the earliest of those behind the start; -1 for none.
 * @param {Map<number, unknown[]>} positions
 */
export function bestPosition(positions) {
  let best = -1;
  let most = 0;
  for (const [position, { length }] of positions) {
    if (length < most || (length === most && best !== 0)) continue;
    best = position;
    most = length;
  }
  return best;
}
