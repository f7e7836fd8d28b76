// What a run's own trace says of the cost model's terms, and what the model expects of such a run. Pure.

import { tokensPerSecond } from "../core/metrics.js";
import { tested } from "../core/reducer.js";
import { judgedSteps, plainRate } from "../core/series.js";
import { depthOf, isTree } from "../core/tree.js";
import { bestTrees, chainTokens, step } from "./model.js";

/**
 * @import { JudgedStep } from "../core/state"
 * @import { Model } from "./types"
 */

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
 * @param {Pick<import("../core/state").State, "lanes">} state
 */
export function measure({ lanes }) {
  const { plain, speculative: lane } = lanes;
  const steps = judgedSteps(lane);
  const rate = plainRate(plain, lane);
  if (!lane || !rate || !steps.some((one) => one.nodes.length)) return null;
  const first = { judged: 0, kept: 0 };
  const further = { judged: 0, kept: 0 };
  for (const one of steps) {
    const kept = new Set(one.path);
    let elder = null;
    for (const node of tested(one)) {
      const parent = one.nodes[node].parent ?? -1;
      const count = parent === elder ? further : first;
      count.judged += 1;
      count.kept += kept.has(node) ? 1 : 0;
      elder = parent;
    }
  }
  /** @param {JudgedStep[]} list @param {(one: JudgedStep) => number} of */
  const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);
  /** @param {JudgedStep} one */
  const tokens = (one) => one.path.length + (one.next ? 1 : 0);
  /** @param {JudgedStep} one */
  const seconds = (one) => one.draftSeconds + one.verifySeconds + one.overheadSeconds;
  /** @param {(one: JudgedStep) => number} of */
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
    speedup: Number(tokensPerSecond(lane)) / rate,
    plainMeasured: tokensPerSecond(plain) !== null,
    depths: steps.map((one) => [one.nodes.length, depthOf(one.nodes)]),
    header,
  };
}

/** @typedef {NonNullable<ReturnType<typeof measure>>} Measured */

/**
 * What the model expects of a run at the very sizes that it drafted: means a step, as `measure` gives them.
 * @param {Model} model @param {Measured} run
 */
export function foresee(model, run) {
  const shapes = run.trees ? bestTrees(model.a, model.gain, Math.max(...run.depths.map(([nodes]) => nodes))) : null;
  const steps = run.depths.map(([nodes, depth]) =>
    step(model, { drafted: nodes, draftSteps: depth, tokens: shapes ? shapes[nodes].tokens : chainTokens(model.a, nodes) }));
  /** @param {"tokens" | "draft" | "verify" | "cost"} name */
  const mean = (name) => steps.reduce((total, one) => total + one[name], 0) / steps.length;
  return { tokens: mean("tokens"), draft: mean("draft"), verify: mean("verify"), cost: mean("cost"), speedup: mean("tokens") / mean("cost") };
}

/** Steps by how many tokens they drafted. @param {JudgedStep[]} steps */
function grouped(steps) {
  const groups = new Map();
  for (const one of steps) groups.set(one.nodes.length, [...(groups.get(one.nodes.length) ?? []), one]);
  return groups;
}
