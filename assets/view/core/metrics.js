// Numbers of a lane or of two: the same definitions as specdemo/trace/metrics.py, held equal by a test.

import { roundsKnown, tokenCount, tokensOf } from "./reducer.js";
import { depths } from "./tree.js";

/** @import { JudgedStep, Lane } from "./state" */
/** @param {number} part @param {number} whole */
const ratio = (part, whole) => (whole ? part / whole : null);

/** What a step's time goes to, and where a step and a lane hold it. */
export const TIMES = /** @type {const} */ ({ draft: "draftSeconds", verify: "verifySeconds", overhead: "overheadSeconds" });

/** Seconds of a step, as far as they are known. @param {{ draftSeconds?: number, verifySeconds?: number, overheadSeconds?: number }} step */
export const stepSeconds = ({ draftSeconds = 0, verifySeconds = 0, overheadSeconds = 0 }) => draftSeconds + verifySeconds + overheadSeconds;

export const tokensPerSecond = (/** @type {Lane | null | undefined} */ lane) => (lane ? ratio(lane.tokens, lane.elapsed) : null);
export const acceptRate = (/** @type {Lane} */ lane) => ratio(lane.accepted, lane.drafted);
export const judged = (/** @type {Lane} */ lane) => lane.steps.length - (lane.steps.at(-1)?.open ? 1 : 0);
export const stepsKnown = (/** @type {Lane} */ lane) => roundsKnown(lane) || lane.header.knowledge === "arrival"; // each is a pass of the target
export const tokensPerStep = (/** @type {Lane} */ lane) => (stepsKnown(lane) ? ratio(lane.tokens, judged(lane)) : null);
export const draftPerStep = (/** @type {Lane} */ lane) => (lane.header.knowledge && !lane.draftSeconds ? null : ratio(lane.draftSeconds, judged(lane)));
export const verifyPerStep = (/** @type {Lane} */ lane) => ratio(lane.verifySeconds, judged(lane));
/** Share of drafts that had been prepared while the target was busy; null for a run that prepares none. @param {Lane} lane */
export const preparedRate = (lane) => ratio(lane.hits, lane.known);

/** Speculative tokens per second over plain tokens per second. @param {Lane | null | undefined} plain @param {Lane | null | undefined} speculative */
export function speedup(plain, speculative) {
  const [slow, fast] = [tokensPerSecond(plain), tokensPerSecond(speculative)];
  return slow && fast ? fast / slow : null;
}

const USUAL_DIFFERENCE = 0.1; // of times on a quiet machine
const USUAL_PASSES = 128; // in which that difference may occur: later ones read a longer text
const FEWEST_PASSES = 4; // whose mean is judged

const mean = (/** @type {number[]} */ values) => values.reduce((sum, value) => sum + value, 0) / values.length;
/** The squared standard error of the mean. @param {number[]} values */
const error = (values, middle = mean(values)) => mean(values.map((value) => (value - middle) ** 2)) / (values.length - 1);

/**
 * Whether other programs were busy while a run was measured, so that its speedup means nothing; see metrics.py.
 * @param {Lane | null | undefined} plain @param {Lane | null | undefined} speculative
 */
export function disturbed(plain, speculative) {
  if (!speculative) return false;
  const times = speedup(plain, speculative);
  const attached = Boolean(speculative.header.knowledge);
  if (!attached && times && times > (tokensPerStep(speculative) ?? 0) * (1 + USUAL_DIFFERENCE)) return true;
  if (!plain || Math.max(plain.runs, speculative.runs) > 1) return false;
  const seconds = (/** @type {{ verifySeconds?: number }[]} */ steps) => steps.map((step) => step.verifySeconds ?? 0);
  const passes = seconds(judgedSteps(plain));
  const beside = !attached && plain.header.settings?.baseline;
  const shared = judgedSteps(plain).filter((step) => (step.elapsed ?? 0) <= speculative.elapsed).length;
  const bare = seconds(judgedSteps(speculative).filter((step) => !step.nodes.length && !attached));
  const half = beside ? shared : Math.floor(passes.length / 2);
  const usual = 1 + USUAL_DIFFERENCE * Math.max(1, passes.length / USUAL_PASSES);
  return [[passes.slice(0, half), passes.slice(half)], [passes, bare]].some(([one, other]) => {
    const [low, high] = [mean(one), mean(other)].sort((a, b) => a - b);
    return Math.min(one.length, other.length) >= FEWEST_PASSES && high > low * usual + 2 * Math.sqrt(error(one) + error(other));
  });
}

const REPEATED_WORDS = 4; // consecutive words that are compared with earlier ones
const REPEATED_SHARE = 0.15; // of repeated groups of words, from which an answer repeats itself
const UNSPACED = "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3040-\\u30ff\\u3400-\\u9fff"; // scripts without spaces
const WORD = new RegExp(`[${UNSPACED}]|[^\\s${UNSPACED}]{1,16}`, "gu");

/** Share of a text's groups of four consecutive words that occurred before in it; see metrics.py. @param {string} text */
export function repeatedShare(text) {
  const words = text.match(WORD) ?? [];
  const groups = words.slice(REPEATED_WORDS - 1).map((_, i) => words.slice(i, i + REPEATED_WORDS).join("\n"));
  return groups.length ? 1 - new Set(groups).size / groups.length : 0;
}

/** Whether the answer of a lane that has ended repeats itself: such a text is easy to draft. @param {Lane | null | undefined} lane */
export function repeatsItself(lane) {
  if (!lane?.end) return false;
  const texts = tokensOf(lane).map((token) => token.text ?? "");
  return repeatedShare((lane.end === "stop" ? texts.slice(0, -1) : texts).join("")) > REPEATED_SHARE;
}

const EARLIER_SHARE = 0.1; // of the tokens of a run, copied from an earlier one, from which its speedup is due to that

/** Whether a run profits from an earlier one of the visit: from kept tokens that were copied from it. @param {Lane | null | undefined} lane */
export function isFromEarlier(lane) {
  const copies = (lane?.steps ?? []).filter(({ reasons }) => reasons.some(({ code }) => code.endsWith("_earlier")));
  return Boolean(lane?.tokens && copies.reduce((sum, { path }) => sum + path.length, 0) > EARLIER_SHARE * lane.tokens);
}

/** Whether a drafted greedy text may leave plain decoding's at a near tie, as `RunStarted.may_split`. @param {Lane | null | undefined} lane */
export function maySplit(lane) {
  if (!lane || lane.header.method === "nothing" || lane.header.settings?.exact || lane.header.knowledge) return false;
  const { kernel, precision } = lane.header.target ?? {};
  return Boolean(kernel) && precision !== "fp32" && !kernel?.includes("compiled pass");
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
 * Beyond the end of a shorter plain text, plain seconds are those at its tokens per second. Empty if other programs were busy.
 * @param {Lane | null | undefined} plain @param {Lane | null | undefined} speculative
 */
export function speedupCurve(plain, speculative) {
  if (!plain || !speculative || disturbed(plain, speculative)) return [];
  const rate = plain.end ? tokensPerSecond(plain) : null;
  const points = [];
  for (const step of speculative.steps) {
    if (step.open || !step.tokens) continue;
    const slow = secondsFor(plain, step.tokens) ?? (rate && step.tokens / rate); // a shorter text: at its usual speed
    if (slow === null) break;
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
  const out = (lane?.positions ?? []).map(([drafted, tested, kept]) => ({ drafted, tested, kept }));
  for (const { open, nodes } of lane && roundsKnown(lane) ? lane.steps : []) {
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
  return decimals(rounded, Math.max(0, 1 - Math.floor(Math.log10(Math.abs(rounded)))));
}

let separator = "."; // between a number's whole part and its decimals, in the page's language

/** Write numbers as a language does. @param {string} language */
export const writeNumbersIn = (language) => (separator = (0.5).toLocaleString(language)[1]);

/** A number with so many decimals. @param {number} value @param {number} digits */
export const decimals = (value, digits) => value.toFixed(digits).replace(".", separator);

// ---- What the charts show beside the measured values: the oracle's choice, the prediction and the bound. Pure

export const judgedSteps = (/** @type {Lane | null | undefined} */ lane) => (lane?.steps ?? []).filter((step) => !step.open);

/**
 * How deep the oracle would have drafted: exactly as far as the target agreed, which is known once something was
 * refused; after a draft kept whole (or cut by the end of the answer) it is at least that many. null without a draft.
 * @param {JudgedStep} step
 */
export function oracle(step) {
  if (!step.nodes.length) return null;
  return { depth: step.path.length, exact: step.next?.status === "correction" };
}

/**
 * Plain tokens a second: measured when a plain run is there, else from the measured cost of a pass of one row.
 * @param {Lane | null | undefined} plain @param {Lane | null | undefined} lane
 */
export function plainRate(plain, lane) {
  const measured = tokensPerSecond(plain);
  if (measured) return measured;
  const [, seconds] = (lane?.header.verify_costs ?? []).find(([rows]) => rows === 1) ?? [1, 0];
  return seconds > 0 ? 1 / seconds : null;
}

/**
 * Seconds of a target pass of so many rows: on the straight line between measured counts, or on the last one beyond them.
 * points: rows and seconds, in their order
 * @param {[number, number][]} points @param {number} rows
 */
export function costAt(points, rows) {
  if (points.length < 2 || rows <= points[0][0]) return points[0][1];
  const found = points.findIndex(([to]) => rows <= to);
  const [[from, low], [to, high]] = points.slice(found < 0 ? -2 : found - 1);
  return low + ((high - low) * (rows - from)) / (to - from);
}

/**
 * The speedup that the cost model foresaw, summed up to each step; a step without a forecast counts as measured.
 * Empty when nothing was foreseen or nothing is known about plain decoding.
 * @param {Lane | null | undefined} plain @param {Lane | null | undefined} lane
 */
export function predictedCurve(plain, lane) {
  const rate = plainRate(plain, lane);
  const steps = judgedSteps(lane);
  if (!rate || !steps.some(foreseen)) return [];
  let tokens = 0;
  let seconds = 0;
  return steps.map((step) => {
    const known = foreseen(step);
    tokens += known ? step.expectedTokens : tokenCount(step);
    seconds += known ? step.expectedSeconds : stepSeconds(step);
    return { step: step.index, seconds: step.elapsed, speedup: tokens / seconds / rate };
  }).filter((point) => Number.isFinite(point.speedup));
}

/** @param {JudgedStep} step @returns {step is JudgedStep & { expectedTokens: number, expectedSeconds: number }} */
const foreseen = (step) => step.expectedTokens !== null && step.expectedSeconds !== null && step.expectedSeconds > 0;

/**
 * The bound of drafting while the target is busy, after each step: one after the other a step takes g c + v seconds,
 * side by side max(g c, v), where g c is all drafting (hidden or not) and v the target's passes, both measured.
 * Empty for a run that does not draft ahead.
 * @param {Lane | null | undefined} plain @param {Lane | null | undefined} lane
 */
export function overlapBound(plain, lane) {
  const rate = plainRate(plain, lane);
  const steps = judgedSteps(lane);
  if (!rate || !steps.some((step) => step.hit !== null)) return [];
  let drafting = 0;
  let verifying = 0;
  return steps.map((step) => {
    drafting += step.draftSeconds + (step.savedSeconds ?? 0);
    verifying += step.verifySeconds;
    const sequential = step.tokens / (drafting + verifying);
    const gain = (drafting + verifying) / Math.max(drafting, verifying);
    return { step: step.index, seconds: step.elapsed, speedup: (sequential * gain) / rate };
  }).filter((point) => Number.isFinite(point.speedup));
}

/**
 * Accepted share of drafted tokens, run by run: earlier runs of this method, then this one as far as it has come.
 * Empty without earlier runs, so for a method that does not learn from run to run.
 * @param {Lane | null | undefined} lane
 */
export function acceptanceHistory(lane) {
  const earlier = lane?.header.history ?? [];
  if (!lane || !earlier.length) return [];
  const now = acceptRate(lane);
  const shares = now === null ? earlier : [...earlier, now];
  return shares.map((share, i) => ({ run: i + 1, share, current: i === earlier.length }));
}

/**
 * Tokens a second after each step of a lane: so far, and over its last `count` steps; null before the clock moved.
 * @param {Lane | null | undefined} lane @param {number} count
 */
export function rateCurve(lane, count) {
  const steps = judgedSteps(lane);
  /** @param {number} tokens @param {number} seconds */
  const over = (tokens, seconds) => (seconds > 0 ? tokens / seconds : null);
  return steps.map(({ index, elapsed, tokens }, i) => {
    const before = steps[i - count] ?? { elapsed: 0, tokens: 0 };
    return {
      step: index,
      seconds: elapsed,
      soFar: over(tokens, elapsed),
      recent: over(tokens - before.tokens, elapsed - before.elapsed),
    };
  });
}

/**
 * Plain tokens a second by the token that each step of the other lane ended with; null past the plain run's end.
 * @param {Lane | null | undefined} plain @param {Lane | null | undefined} lane
 */
export function plainRates(plain, lane) {
  return judgedSteps(lane).map(({ tokens }) => {
    const seconds = plain && tokens ? secondsFor(plain, tokens) : null;
    return seconds ? tokens / seconds : null;
  });
}

/**
 * What each step was expected to bring and to take (modelled; null without a forecast), and what it did (measured).
 * @param {Lane | null | undefined} lane
 */
export function forecastSteps(lane) {
  return judgedSteps(lane).map((step) => ({
    step: step.index,
    tokens: tokenCount(step),
    seconds: stepSeconds(step),
    expectedTokens: foreseen(step) ? step.expectedTokens : null,
    expectedSeconds: foreseen(step) ? step.expectedSeconds : null,
  }));
}
