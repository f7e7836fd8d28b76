// The cost model of speculative decoding, and what a run's own trace says of its terms. Pure.
//
// a      chance that a drafted token is kept when those before it were, the same at every place
// c      one draft step over one target pass of one row
// curve  what a pass of several rows costs over one of one row: { kind: "flat" }, { kind: "linear", slope } or
//        { kind: "measured", points: [[rows, seconds], ...] }
// A step of a chain drafts k tokens in k draft steps and judges k + 1 rows. A step of a tree drafts n nodes in one
// draft step a level, and judges n + 1 rows.

import { speedup, tokensPerSecond } from "../core/metrics.js";
import { tested } from "../core/reducer.js";
import { plainRate } from "../core/series.js";
import { depthOf, isTree } from "../core/tree.js";

/** Tokens that a chain of k is expected to give, the target's own included: 1 + a + ... + a^k (Leviathan 2211.17192). */
export function chainTokens(a, k) {
  return a === 1 ? k + 1 : (1 - a ** (k + 1)) / (1 - a);
}

/**
 * The best trees of 0 ... most nodes, each { tokens, depth }: always the likeliest path that is not in it yet.
 * The first guess at a place is right with chance a, and each further sibling catches `gain` of what its elders
 * missed, but is never likelier than they are.
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
    const last = trees.at(-1);
    trees.push({ tokens: last.tokens + path, depth: Math.max(last.depth, depth) });
  }
  return trees;
}

/** What a pass over so many rows costs, in passes of one row; between measured points a straight line. */
export function verifyCost(curve, rows) {
  if (curve.kind === "flat") return 1;
  if (curve.kind === "linear") return 1 + curve.slope * (rows - 1);
  const { points } = curve;
  const [first, one] = points[0];
  if (points.length === 1 || rows <= first) return 1;
  const found = points.findIndex(([to]) => rows <= to);
  const at = found < 0 ? points.length - 1 : found;
  const [[from, low], [to, high]] = [points[at - 1], points[at]];
  return (low + ((high - low) * (rows - from)) / (to - from)) / one;
}

/** One step: { drafted, tokens, draft, verify, cost, speedup }, costs in passes of one row. Overlapped, drafting hides behind the pass. */
export function step({ c, curve, overlapped = false }, { drafted, draftSteps, tokens }) {
  const draft = draftSteps * c;
  const verify = verifyCost(curve, drafted + 1);
  const cost = overlapped ? Math.max(draft, verify) : draft + verify;
  return { drafted, tokens, draft, verify, cost, speedup: tokens / cost };
}

export const chainStep = (model, k) => step(model, { drafted: k, draftSteps: k, tokens: chainTokens(model.a, k) });

/** Steps of chains of 0 ... most drafted tokens. */
export const chains = (model, most) => Array.from({ length: most + 1 }, (_, k) => chainStep(model, k));

/** Steps of the best trees of 0 ... most nodes. */
export const trees = (model, most) =>
  bestTrees(model.a, model.gain, most).map(({ tokens, depth }, nodes) => step(model, { drafted: nodes, draftSteps: depth, tokens }));

/** The fastest of some steps, the shortest of equals. The first is plain decoding: it is best where drafting never pays. */
export const best = (steps) => steps.reduce((one, other) => (other.speedup > one.speedup + 1e-12 ? other : one));

/** The least chance of a drafted token to be kept at which a chain of k breaks even; null where it never does. */
export function breakEven(model, k) {
  const gains = (a) => chainStep({ ...model, a }, k).speedup >= 1;
  if (!gains(1)) return null;
  let [low, high] = [0, 1];
  for (let i = 0; i < 30; i += 1) {
    const middle = (low + high) / 2;
    if (gains(middle)) high = middle;
    else low = middle;
  }
  return high;
}

/**
 * What a run says of the model's terms; null without a speculative lane that drafted. Costs in plain decoding's
 * seconds for a token, measured in the same run where there is a plain lane.
 *
 * a, gain      kept over judged, of first guesses and of further siblings; gain null where none was judged
 * c            drafting over draft steps, hidden drafting included
 * points       rows and seconds of target passes, as measured at loading
 * lookaheads   for each number of drafted tokens: { drafted, steps, tokens, speedup }, tokens a step
 * drafted, tokens, draft, verify, overhead, speedup   means over all steps, and the run as a whole
 * depths       draft steps of each step
 */
export function measure({ lanes: { plain, speculative: lane } }) {
  const steps = (lane?.steps ?? []).filter((one) => !one.open);
  const rate = plainRate(plain, lane);
  if (!rate || !steps.some((one) => one.nodes.length)) return null;
  const first = { judged: 0, kept: 0 };
  const further = { judged: 0, kept: 0 };
  for (const one of steps) {
    const kept = new Set(one.path);
    let elder = null;
    for (const node of tested(one)) {
      const parent = one.nodes[node].parent ?? -1;
      const count = parent === elder ? further : first;
      count.judged += 1;
      count.kept += kept.has(node);
      elder = parent;
    }
  }
  const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);
  const tokens = (one) => one.path.length + (one.next ? 1 : 0);
  const seconds = (one) => one.draftSeconds + one.verifySeconds + one.overheadSeconds;
  const mean = (of) => (rate * sum(steps, of)) / steps.length;
  const drafting = sum(steps, (one) => (one.nodes.length ? one.draftSeconds + (one.savedSeconds ?? 0) : 0));
  const { header } = lane;
  return {
    a: first.judged ? first.kept / first.judged : 0,
    judged: first.judged,
    gain: further.judged ? further.kept / further.judged : null,
    c: (rate * drafting) / sum(steps, (one) => depthOf(one.nodes)),
    points: header.verify_costs?.length ? header.verify_costs : null,
    trees: steps.some((one) => isTree(one.nodes)),
    overlapped: steps.some((one) => one.hit !== null && one.hit !== undefined),
    lookaheads: [...grouped(steps)].sort(([one], [other]) => one - other).map(([drafted, list]) => ({
      drafted,
      steps: list.length,
      tokens: sum(list, tokens) / list.length,
      speedup: sum(list, tokens) / sum(list, seconds) / rate,
    })),
    steps: steps.length,
    drafted: sum(steps, (one) => one.nodes.length) / steps.length,
    tokens: sum(steps, tokens) / steps.length,
    draft: mean((one) => one.draftSeconds),
    verify: mean((one) => one.verifySeconds),
    overhead: mean((one) => one.overheadSeconds),
    speedup: tokensPerSecond(plain) ? speedup(plain, lane) : tokensPerSecond(lane) / rate,
    plainMeasured: tokensPerSecond(plain) !== null,
    depths: steps.map((one) => [one.nodes.length, depthOf(one.nodes)]),
    header,
  };
}

/** What the model expects of a run at the very sizes that it drafted: means a step, as `measure` gives them. */
export function foresee(model, run) {
  const shapes = run.trees ? bestTrees(model.a, model.gain, Math.max(...run.depths.map(([nodes]) => nodes))) : null;
  const steps = run.depths.map(([nodes, depth]) =>
    step(model, { drafted: nodes, draftSteps: depth, tokens: shapes ? shapes[nodes].tokens : chainTokens(model.a, nodes) }));
  const mean = (name) => steps.reduce((total, one) => total + one[name], 0) / steps.length;
  return { tokens: mean("tokens"), draft: mean("draft"), verify: mean("verify"), cost: mean("cost"), speedup: mean("tokens") / mean("cost") };
}

/**
 * The exact distribution of the first word when drafting stops after an unlikely word, and when that word is then
 * taken back. A word is unlikely when the chance that it survives the target's test is below the threshold.
 */
export function firstWord(target, draft, threshold, { looksBack }) {
  const survival = target.map((p, word) => (draft[word] ? Math.min(1, p / draft[word]) : 1));
  const left = target.map((p, word) => Math.max(0, p - draft[word]));
  const rest = left.reduce((total, share) => total + share, 0);
  const shares = target.map(() => 0);
  draft.forEach((chance, word) => {
    const dropped = looksBack && survival[word] < threshold;
    const refused = chance * (1 - survival[word]);
    if (!dropped) shares[word] += chance * survival[word];
    shares.forEach((_, other) => {
      shares[other] += dropped ? chance * target[other] : refused && (refused * left[other]) / rest;
    });
  });
  return shares;
}

// Steps by how many tokens they drafted.
function grouped(steps) {
  const groups = new Map();
  for (const one of steps) groups.set(one.nodes.length, [...(groups.get(one.nodes.length) ?? []), one]);
  return groups;
}
