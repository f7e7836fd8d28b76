// What went wrong: what happened, what is unharmed, what to do.

import { el } from "./dom.js";

/** @import { Problem } from "../core/state" */

const PARTS = /** @type {const} */ ({ message: "strong", unharmed: "span", advice: "span" });

/** @param {Partial<Problem>} problem */
export function problemBlock(problem) {
  const parts = /** @type {(keyof Problem)[]} */ (Object.keys(PARTS)).filter((name) => problem[name]);
  return el("div", { class: "sd-problem", role: "alert" }, ...parts.map((name) => el(PARTS[name], { class: `sd-problem-${name}` }, problem[name] ?? "")));
}
