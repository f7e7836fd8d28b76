// Why a step drafted what it did: codes with numbers, or a sentence in recordings made before there were codes.

import { fill } from "./sentence.js";

/**
 * @import { Step } from "./state"
 * @import { Words } from "../parts/page"
 */

/** The numbers in the English sentences of those recordings. @type {Record<string, RegExp>} */
const SENTENCES = {
  matched: /the last (\d+) tokens? st/,
  places: / at (\d+) places?/,
  position: /token (\d+) would give/,
  gain: /would give ([\d.]+) tokens/,
  cost: /the time of ([\d.]+)/,
};

/**
 * Return a number of a step's reasons by its name, or undefined if they do not contain it.
 *
 * @param {Pick<Step, "reason" | "reasons">} step
 * @param {string} name
 */
export function reasonValue({ reason, reasons }, name) {
  const found = reasons.find(({ values = {} }) => name in values)?.values?.[name];
  const match = SENTENCES[name]?.exec(reason)?.[1];
  return found ?? (match === undefined ? undefined : Number(match));
}

/**
 * Return a step's reasons as one text. words: their strings by code
 *
 * @param {Pick<Step, "reason" | "reasons" | "source">} step
 * @param {Words} words
 */
export function reasonText({ reason, reasons, source }, words) {
  const texts = reasons.map(({ code, values = {} }) => {
    const rates = Object.entries(values).map(([name, rate]) => `${name} ${rate.toFixed(0)}`).join(", ");
    const shown = Object.entries(values).map(([name, value]) => [name, inWords(name, value)]);
    return fill(words[code] ?? code, { source, rates, ...Object.fromEntries(shown) });
  });
  return texts.join("; ") || reason;
}

/** @param {string} name @param {number} value */
function inWords(name, value) {
  if (name === "survival") return `${(100 * value).toFixed(0)} %`;
  if (name.endsWith("_seconds")) return `${(1000 * value).toFixed(0)} ms`;
  return Number.isInteger(value) ? value : value.toFixed(2);
}
