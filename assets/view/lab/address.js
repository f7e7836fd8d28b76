// The lab's settings as one word of an address: a-0.8_c-0.05_kind-linear_slope-0.05_k-4_tree_budget-12_gain-0.3

/** @import { Setting } from "./types" */

/** What each number may be. @type {Record<string, [number, number]>} */
const NUMBERS = { a: [0, 1], c: [0, 1], slope: [0, 1], k: [1, 16], budget: [1, 32], gain: [0, 1] };
const FLAGS = ["tree", "overlapped"];
const KINDS = ["flat", "linear"]; // a measured curve is no part of an address

/** @param {Setting} set */
export function writeLab(set) {
  const numbers = Object.keys(NUMBERS).map((name) => `${name}-${set[/** @type {"a"} */ (name)]}`);
  const kind = `kind-${KINDS.includes(set.kind) ? set.kind : KINDS[0]}`;
  return [...numbers, kind, ...FLAGS.filter((name) => set[/** @type {"tree"} */ (name)])].join("_");
}

/** What an address asks for; words that are not ours and numbers out of range are left out. @param {string} text */
export function readLab(text) {
  /** @type {Record<string, number | string | boolean>} */
  const set = Object.fromEntries(FLAGS.map((name) => [name, false]));
  for (const part of text.split("_")) {
    const [name, value = ""] = part.split("-");
    const [low, high] = NUMBERS[name] ?? [1, 0];
    const number = Number(value);
    if (value && number >= low && number <= high) set[name] = name === "k" || name === "budget" ? Math.round(number) : number;
    if (name === "kind" && KINDS.includes(value)) set.kind = value;
    if (FLAGS.includes(name)) set[name] = true;
  }
  return /** @type {Partial<Setting>} */ (set);
}
