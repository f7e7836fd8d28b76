// The sentence above the text: how much sooner the same text was there, or why that cannot be said.

import { disturbed, isFromEarlier, repeatsItself, speedup, stepSeconds, tokensPerSecond, two } from "./metrics.js";
import { laneText, tokenCount } from "./reducer.js";

/** @import { Lane, State } from "./state" */
export const FEWEST_TOKENS = 20; // of both variants, before a speedup is named
const EVEN = 0.05; // difference of two times that is none

/**
 * Name of the sentence among the page's words, and its values; an empty name for none.
 * @param {State} state @returns {{ name: string, values: Record<string, string> }}
 */
export function headlineOf({ lanes }) {
  const { plain, speculative } = lanes;
  /** @param {string} name @param {Record<string, string>} [values] */
  const say = (name, values = {}) => ({ name, values });
  if (!speculative) return say(plain ? "plain" : "");
  const times = speedup(plain, speculative);
  if (speculative.end === "failed" || speculative.end === "cancelled") return say("");
  if (!plain) return say(speculative.end ? "alone" : "begin");
  if (Math.min(speculative.tokens, plain.tokens) < FEWEST_TOKENS || !times) {
    return say(speculative.end && plain.end ? "short" : "begin");
  }
  if (repeatsItself(speculative)) return say("repeats");
  if (isFromEarlier(speculative)) return say("earlier");
  if (disturbed(plain, speculative)) return say("disturbed");
  const kind = Math.abs(times - 1) < EVEN ? "even" : times > 1 ? "sooner" : "later";
  const whole = !speculative.end ? "so_far" : isSame(plain, speculative) ? "same" : "other";
  return say(`${whole}_${kind}`, { times: two(times > 1 ? times : 1 / times) });
}

/** Whether two variants have written the same text, as far as both have come. @param {Lane} plain @param {Lane} speculative */
export function isSame(plain, speculative) {
  const [one, other] = [laneText(plain), laneText(speculative)];
  return one.length > other.length && !plain.end ? one.startsWith(other) : plain.end ? one === other : other.startsWith(one);
}

/**
 * The two clocks of a step: its seconds with drafts, and the seconds in which plain decoding writes as many tokens.
 * @param {State} state @param {{ path: number[], next: unknown, draftSeconds?: number, verifySeconds?: number, overheadSeconds?: number }} step
 */
export function clocksOf({ lanes }, step) {
  const tokens = tokenCount(step);
  const rate = tokensPerSecond(lanes.plain);
  return { tokens, drafted: stepSeconds(step), plain: rate ? tokens / rate : null };
}
