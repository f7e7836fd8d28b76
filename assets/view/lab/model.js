// The cost model of speculative decoding. Pure.
//
// a      chance that a drafted token is kept when those before it were, the same at every place
// c      one draft step over one target pass of one row
// curve  what a pass of several rows costs over one of one row: { kind: "flat" }, { kind: "linear", slope } or
//        { kind: "measured", points: [[rows, seconds], ...] }
// A step of a chain drafts k tokens in k draft steps and judges k + 1 rows. A step of a tree drafts n nodes in one
// draft step a level, and judges n + 1 rows.

import { costAt } from "../core/metrics.js";

/** @import { Curve, Model, Priced } from "./types" */

/**
 * Tokens that a chain of k is expected to give, the target's own included: 1 + a + ... + a^k (Leviathan 2211.17192).
 * @param {number} a @param {number} k
 */
export function chainTokens(a, k) {
  return a === 1 ? k + 1 : (1 - a ** (k + 1)) / (1 - a);
}

/**
 * The best trees of 0 ... most nodes, each { tokens, depth }: always the likeliest path that is not in it yet.
 * The first guess at a place is right with chance a, and each further sibling catches `gain` of what its elders
 * missed, but is never likelier than they are.
 * @param {number} a @param {number} gain @param {number} most
 */
export function bestTrees(a, gain, most) {
  const trees = [{ tokens: 1, depth: 0 }];
  const open = [{ path: a, above: 1, chance: a, missed: 1 - a, depth: 1 }];
  for (let nodes = 1; nodes <= most; nodes += 1) {
    const best = open.reduce((one, other) => (other.path > one.path || (other.path === one.path && other.depth < one.depth) ? other : one));
    const { path, above, missed, depth } = best;
    const chance = Math.min(best.chance, gain * missed);
    open.splice(open.indexOf(best), 1,
      { path: path * a, above: path, chance: a, missed: 1 - a, depth: depth + 1 },
      { path: above * chance, above, chance, missed: missed - chance, depth });
    const last = trees[nodes - 1];
    trees.push({ tokens: last.tokens + path, depth: Math.max(last.depth, depth) });
  }
  return trees;
}

/** What a pass over so many rows costs, in passes of one row. @param {Curve} curve @param {number} rows */
export function verifyCost(curve, rows) {
  if (curve.kind === "flat") return 1;
  if (curve.kind === "linear") return 1 + curve.slope * (rows - 1);
  return curve.points ? costAt(curve.points, rows) / curve.points[0][1] : 1;
}

/**
 * One step: { drafted, tokens, draft, verify, cost, speedup }, costs in passes of one row. Overlapped, drafting hides behind the pass.
 * @param {Pick<Model, "c" | "curve" | "overlapped">} model @param {{ drafted: number, draftSteps: number, tokens: number }} sizes
 */
export function step({ c, curve, overlapped }, { drafted, draftSteps, tokens }) {
  const draft = draftSteps * c;
  const verify = verifyCost(curve, drafted + 1);
  const cost = overlapped ? Math.max(draft, verify) : draft + verify;
  return { drafted, tokens, draft, verify, cost, speedup: tokens / cost };
}

/** @param {Model} model @param {number} k */
const chainStep = (model, k) => step(model, { drafted: k, draftSteps: k, tokens: chainTokens(model.a, k) });

/** Steps of chains of 0 ... most drafted tokens. @param {Model} model @param {number} most */
export const chains = (model, most) => Array.from({ length: most + 1 }, (_, k) => chainStep(model, k));

/** Steps of the best trees of 0 ... most nodes. @param {Model} model @param {number} most */
export const trees = (model, most) =>
  bestTrees(model.a, model.gain, most).map(({ tokens, depth }, nodes) => step(model, { drafted: nodes, draftSteps: depth, tokens }));

/** The fastest of some steps, the shortest of equals. The first is plain decoding: it is best where drafting never pays. @param {Priced[]} steps */
export const best = (steps) => steps.reduce((one, other) => (other.speedup > one.speedup + 1e-12 ? other : one));

/**
 * The least chance of a drafted token to be kept at which a chain of k breaks even; null where it never does.
 * @param {Model} model @param {number} k
 */
export function breakEven(model, k) {
  const gains = (/** @type {number} */ a) => chainStep({ ...model, a }, k).speedup >= 1;
  if (!gains(1)) return null;
  let [low, high] = [0, 1];
  for (let i = 0; i < 30; i += 1) {
    const middle = (low + high) / 2;
    if (gains(middle)) high = middle;
    else low = middle;
  }
  return high;
}
