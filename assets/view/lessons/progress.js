// How far a visitor has come: kept in the browser, as far as it keeps anything.

import { LESSONS } from "./curriculum.js";

/** @typedef {{ done: string[], at: string }} Progress lessons that are done, and the one that is looked at */

const STORE = "specdemo-lessons";

/** The event that says that progress was made. */
export const PROGRESS = "specdemo-progress";

/** Index of the lesson to open: the one that the address names, else where the visitor was. @param {Progress} progress */
export function firstPlace(progress) {
  const asked = Number(new URLSearchParams(location.search).get("lesson"));
  if (Number.isInteger(asked) && LESSONS[asked - 1]) return asked - 1;
  return Math.max(0, LESSONS.findIndex(({ id }) => id === progress.at));
}

// A browser may refuse to keep anything: then progress lasts as long as the page.
/** @returns {Progress} */
export function readProgress() {
  try {
    const kept = JSON.parse(localStorage.getItem(STORE) ?? "null") ?? {};
    return { done: Array.isArray(kept.done) ? kept.done : [], at: kept.at ?? "" };
  } catch {
    return { done: [], at: "" };
  }
}

/** @param {Progress} progress */
export function saveProgress(progress) {
  try {
    localStorage.setItem(STORE, JSON.stringify(progress));
  } catch {
    // nothing is lost but the memory of it
  }
  dispatchEvent(new Event(PROGRESS));
}
