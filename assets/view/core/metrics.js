// Numbers of a lane or of two: the same definitions as specdemo/trace/metrics.py, held equal by a test.

import { depths } from "./tree.js";

/**
 * @import { Lane } from "./state"
 */

/** @param {number} part @param {number} whole */
const ratio = (part, whole) => (whole ? part / whole : null);

/** What a step's time goes to, and where a step and a lane hold it. */
export const TIMES = /** @type {const} */ ({ draft: "draftSeconds", verify: "verifySeconds", overhead: "overheadSeconds" });

/** @param {Lane | null | undefined} lane */
export const tokensPerSecond = (lane) => (lane ? ratio(lane.tokens, lane.elapsed) : null);
/** @param {Lane} lane */
export const acceptRate = (lane) => ratio(lane.accepted, lane.drafted);
/** @param {Lane} lane */
export const judged = (lane) => lane.steps.length - (lane.steps.at(-1)?.open ? 1 : 0);
/** @param {Lane} lane */
export const tokensPerStep = (lane) => ratio(lane.tokens, judged(lane));
/** @param {Lane} lane */
export const draftPerStep = (lane) => ratio(lane.draftSeconds, judged(lane));
/** @param {Lane} lane */
export const verifyPerStep = (lane) => ratio(lane.verifySeconds, judged(lane));
/** Share of drafts that had been prepared while the target was busy; null for a run that prepares none. @param {Lane} lane */
export const preparedRate = (lane) => ratio(lane.hits, lane.known);

/** What stands in for a plain lane that was not run, see the trace format. @param {Lane | null | undefined} lane */
export const standIn = (lane) => lane?.header.stand_in ?? null;

/** Tokens per second of the plain lane or of what stands in for it. @param {Lane | null | undefined} plain @param {Lane | null | undefined} speculative */
export const baselineRate = (plain, speculative) => (plain ? tokensPerSecond(plain) : (standIn(speculative)?.tokens_per_second ?? null));

/**
 * Speculative tokens per second over plain tokens per second; a stand-in's are of another prompt.
 * @param {Lane | null | undefined} plain @param {Lane | null | undefined} speculative
 */
export function speedup(plain, speculative) {
  const [slow, fast] = [baselineRate(plain, speculative), tokensPerSecond(speculative)];
  return slow && fast ? fast / slow : null;
}

const USUAL_DIFFERENCE = 0.1; // of times on a quiet machine
const USUAL_PASSES = 128; // in which that difference may occur: later ones read a longer text
const FEWEST_PASSES = 4; // whose mean is judged

/** @param {number[]} values */
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * Whether other programs were busy while a run was measured, so that its speedup means nothing; see metrics.py.
 * @param {Lane | null | undefined} plain @param {Lane | null | undefined} speculative
 */
export function disturbed(plain, speculative) {
  if (!speculative) return false;
  const times = speedup(plain, speculative);
  if (times && times > (tokensPerStep(speculative) ?? 0) * (1 + USUAL_DIFFERENCE)) return true;
  if (!plain || Math.max(plain.runs, speculative.runs) > 1) return false;
  /** @param {Lane} lane */
  const closed = (lane) => lane.steps.filter((step) => !step.open);
  /** @param {{ verifySeconds?: number }[]} steps */
  const seconds = (steps) => steps.map((step) => step.verifySeconds ?? 0);
  const passes = seconds(closed(plain));
  const bare = seconds(closed(speculative).filter((step) => !step.nodes.length));
  const half = Math.floor(passes.length / 2);
  const usual = 1 + USUAL_DIFFERENCE * Math.max(1, passes.length / USUAL_PASSES);
  return [[passes.slice(0, half), passes.slice(passes.length - half)], [passes, bare]].some(([one, other]) => {
    const [low, high] = [mean(one), mean(other)].sort((a, b) => a - b);
    return Math.min(one.length, other.length) >= FEWEST_PASSES && high > low * usual;
  });
}

/** Seconds a lane needed for its first n tokens; null when it never wrote that many. @param {Lane} lane @param {number} n */
export function secondsFor(lane, n) {
  let low = 0;
  let high = lane.steps.length - 1;
  let found = null;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const step = lane.steps[middle];
    if (step.open || step.tokens >= n) {
      if (!step.open) found = step.elapsed;
      high = middle - 1;
    } else low = middle + 1;
  }
  return found;
}

/**
 * After each speculative step: seconds so far, tokens so far, and plain seconds over speculative seconds at that count.
 * @param {Lane | null | undefined} plain @param {Lane | null | undefined} speculative
 */
export function speedupCurve(plain, speculative) {
  if (!plain || !speculative) return [];
  const points = [];
  for (const step of speculative.steps) {
    if (step.open || !step.tokens) continue;
    const slow = secondsFor(plain, step.tokens);
    if (slow === null) break; // the plain run ended here
    points.push({ step: step.index, seconds: step.elapsed, tokens: step.tokens, speedup: slow / step.elapsed });
  }
  return points;
}

/**
 * For each position in the draft, its depth in a tree: drafts with a token there, those of them in which it was tested,
 * and those that kept one.
 *
 *     status   accepted  rejected  unreached     one draft of three tokens
 *     drafted     1         1          1
 *     tested      1         1          0
 *     kept        1         0          0
 * @param {Lane | null | undefined} lane
 */
export function positions(lane) {
  /** @type {{ drafted: number, tested: number, kept: number }[]} */
  const out = [];
  for (const { open, nodes } of lane?.steps ?? []) {
    if (open || !nodes.length) continue;
    /** @type {Set<string | undefined>[]} */
    const fates = []; // by position: the statuses of its tokens
    depths(nodes).forEach((depth, i) => (fates[depth - 1] ??= new Set()).add(nodes[i].status));
    fates.forEach((fate, i) => {
      const at = (out[i] ??= { drafted: 0, tested: 0, kept: 0 });
      at.drafted += 1;
      at.tested += fate.has("accepted") || fate.has("rejected") ? 1 : 0;
      at.kept += fate.has("accepted") ? 1 : 0;
    });
  }
  return out;
}

/** Two significant digits, never in exponent form; an en dash for what is not known. @param {number | null | undefined} value */
export function two(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const digits = Math.floor(Math.log10(Math.abs(value)));
  const unit = 10 ** (digits - 1);
  const rounded = Math.round(value / unit) * unit;
  return rounded.toFixed(Math.max(0, 1 - Math.floor(Math.log10(Math.abs(rounded)))));
}
