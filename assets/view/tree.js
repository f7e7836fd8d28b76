// The shape of a drafted step: a flat list of nodes, each naming its parent, laid out in columns and rows.

/** Depth of each node, 1 for those that follow the pending token. */
export function depths(nodes) {
  const out = [];
  for (const node of nodes) out.push((out[node.parent ?? -1] ?? 0) + 1);
  return out;
}

/** Depth of the deepest node; 0 without nodes. */
export const depthOf = (nodes) => depths(nodes).reduce((most, depth) => Math.max(most, depth), 0);

/** Whether some node does not simply follow the one before it. */
export const isTree = (nodes) => nodes.some((node, i) => (node.parent ?? -1) !== i - 1);

/**
 * Where each token of a step stands, from left to right; siblings from top to bottom in the order of their test.
 * A parent stands in the row of its first child, so a chain is one row. Index -1 is the target's own token, after
 * the kept path and below what was refused there. `lit` marks what was committed; `from` is null at the root.
 *
 *     nodes     0 cat   1 sat   2 dog      path 0, then the target's "ran"
 *     parents     -1       0      -1
 *                        (0) cat -- sat
 *     pending --|          |------- ran
 *                        (2) dog
 */
export function layout(step) {
  const { nodes, path, next } = step;
  const kept = new Set(path);
  const children = new Map();
  const under = (parent) => children.get(parent) ?? children.set(parent, []).get(parent);
  nodes.forEach((node, i) => under(inside(node.parent, i)).push(i));
  const places = [];
  let rows = 0;
  const put = (index, from, column) => {
    const place = { index, from, column, row: rows, lit: index < 0 || kept.has(index) };
    places.push(place);
    descend(index < 0 ? null : index, place, column);
    return place;
  };
  const descend = (index, place, column) => {
    const below = index === null ? [] : (children.get(index) ?? []);
    const own = next && index === (path.at(-1) ?? -1);
    [...below, ...(own ? [-1] : [])].forEach((child, i) => {
      if (i > 0) rows += 1;
      put(child, place, column + 1);
    });
  };
  descend(-1, null, -1);
  return { places, columns: Math.max(0, ...places.map((place) => place.column + 1)), rows: places.length ? rows + 1 : 0 };
}

// A parent stands before its children; what does not is put under the root, so that a foreign trace cannot make a loop.
const inside = (parent, i) => (Number.isInteger(parent) && parent >= 0 && parent < i ? parent : -1);
