// The shape of a drafted step: a flat list of nodes, each naming its parent, laid out in columns and rows.

/**
 * @import { Node, Step } from "./state"
 * @typedef {{ index: number, from: Placed | null, column: number, row: number, lit: boolean }} Placed
 */

/** Depth of each node, 1 for those that follow the pending token. @param {Node[]} nodes */
export function depths(nodes) {
  /** @type {number[]} */
  const out = [];
  for (const node of nodes) out.push((out[node.parent ?? -1] ?? 0) + 1);
  return out;
}

/** Depth of the deepest node; 0 without nodes. @param {Node[]} nodes */
export const depthOf = (nodes) => depths(nodes).reduce((most, depth) => Math.max(most, depth), 0);

/** Whether some node does not simply follow the one before it. @param {Node[]} nodes */
export const isTree = (nodes) => nodes.some((node, i) => (node.parent ?? -1) !== i - 1);

/**
 * Where each token of a step stands: depth is the column, and a parent stands in the row of its first child.
 * What was committed comes first and so is the top row, the target's own token (index -1) at its end; below hang
 * the other siblings in the order of their test. `lit` marks what was committed; `from` is null at the root.
 *
 *     nodes     0 dog   1 cat   2 sat      path 1, then the target's "ran"
 *     parents     -1      -1       1
 *                        (1) cat -- ran
 *     pending --|          |------- (2) sat
 *                        (0) dog
 * @param {Pick<Step, "nodes" | "path" | "next">} step
 */
export function layout(step) {
  const { nodes, path, next } = step;
  const kept = new Set(path);
  /** @type {number[][]} */
  const children = Array.from({ length: nodes.length + 1 }, () => []); // by node, those of the root at the end
  nodes.forEach((node, i) => children.at(inside(node.parent, i))?.push(i));
  /** @type {Placed[]} */
  const places = [];
  let rows = 0;
  /** @param {number} parent @param {Placed | null} from @param {number} column */
  const descend = (parent, from, column) => {
    const below = children.at(parent) ?? [];
    const own = next && parent === (path.at(-1) ?? -1) ? [-1] : [];
    const first = below.filter((child) => kept.has(child));
    const rest = below.filter((child) => !kept.has(child));
    [...own, ...first, ...rest].forEach((index, i) => {
      if (i > 0) rows += 1;
      const place = { index, from, column, row: rows, lit: index < 0 || kept.has(index) };
      places.push(place);
      if (index >= 0) descend(index, place, column + 1);
    });
  };
  descend(-1, null, 0);
  return { places, columns: Math.max(0, ...places.map((place) => place.column + 1)), rows: places.length ? rows + 1 : 0 };
}

// A parent stands before its children; what does not is put under the root, so that a foreign trace cannot make a loop.
/** @param {number | undefined} parent @param {number} i */
const inside = (parent, i) => (parent !== undefined && Number.isInteger(parent) && parent >= 0 && parent < i ? parent : -1);
