// Which charts are looked at, and on which axis: kept in the browser from visit to visit.

import { NAMES } from "./figures.js";

/** @import { Choice } from "./figure" */

/** @type {Choice} */
const FIRST = { slots: ["speedup", "lookahead"], axis: "steps" };
const KEPT = "specdemo.charts"; // in the browser's storage

/** What was chosen last time; a browser that keeps nothing, or something else, begins anew. @returns {Choice} */
export function recall() {
  try {
    const { slots, axis } = JSON.parse(localStorage.getItem(KEPT) ?? "");
    const known = slots.length === FIRST.slots.length && slots.every((/** @type {string} */ name) => NAMES.includes(name));
    return known && (axis === "steps" || axis === "seconds") ? { slots, axis } : FIRST;
  } catch {
    return FIRST;
  }
}

/** @param {Choice} choice */
export function remember(choice) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(choice));
  } catch {
    // Storage is blocked: the choice holds until the page is left.
  }
}
