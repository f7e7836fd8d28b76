// The site inside a learning platform: SCORM 1.2 keeps how far a learner has come, and hears when all lessons are done.

import { LESSONS, PROGRESS, readProgress, saveProgress } from "../lessons/curriculum.js";

/**
 * @import { Progress } from "../lessons/curriculum"
 * @typedef {{
 *   LMSInitialize(nothing: ""): string, LMSGetValue(name: string): string, LMSSetValue(name: string, value: string): string,
 *   LMSCommit(nothing: ""): string, LMSFinish(nothing: ""): string,
 * }} Platform
 */

const FARTHEST = 500; // windows to look through, as the standard's own example does
const STATUS = "cmi.core.lesson_status";

/** Talk to the platform, if there is one; what it knows of the learner takes the place of what the browser keeps. */
export function report() {
  const platform = found(window) ?? (window.opener && found(window.opener));
  if (!platform || platform.LMSInitialize("") !== "true") return;
  const began = Date.now();
  saveProgress({ done: [], at: "", ...read(platform.LMSGetValue("cmi.suspend_data")) });
  const tell = () => {
    const { done, at } = readProgress();
    platform.LMSSetValue("cmi.suspend_data", JSON.stringify({ done, at }));
    platform.LMSSetValue("cmi.core.lesson_location", at);
    if (!ended(platform)) platform.LMSSetValue(STATUS, LESSONS.every(({ id }) => done.includes(id)) ? "completed" : "incomplete");
    platform.LMSCommit("");
  };
  tell();
  addEventListener(PROGRESS, tell);
  addEventListener("pagehide", () => {
    platform.LMSSetValue("cmi.core.session_time", span(Date.now() - began));
    platform.LMSFinish("");
  }, { once: true });
}

/** What is completed stays so, whatever one looks at afterwards. @param {Platform} platform */
const ended = (platform) => ["completed", "passed"].includes(platform.LMSGetValue(STATUS));

/** @param {Window} start @returns {Platform | null} */
function found(start) {
  let at = start;
  for (let i = 0; i < FARTHEST; i += 1) {
    try {
      const { API } = /** @type {Window & { API?: Platform }} */ (at);
      if (API) return API;
    } catch {
      return null; // a page of another origin, which does not let itself be looked at
    }
    if (at.parent === at) return null;
    at = at.parent;
  }
  return null;
}

/** @param {string} text @returns {Partial<Progress>} */
function read(text) {
  try {
    const { done, at } = JSON.parse(text);
    return Array.isArray(done) ? { done, at: String(at) } : {};
  } catch {
    return {};
  }
}

/** Hours, minutes and seconds as SCORM writes them. @param {number} milliseconds */
function span(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return parts.map((part, i) => String(part).padStart(i ? 2 : 4, "0")).join(":");
}
