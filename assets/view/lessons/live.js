// The way to try a lesson: the settings of a recorded run and the lesson's changes, on the Play tab or to copy.

import { applyState } from "../core/permalink.js";
import { fill } from "../core/sentence.js";
import { el } from "../parts/dom.js";
import { liveState } from "./curriculum.js";
import { button } from "./question.js";

/**
 * @import { PageState } from "../core/permalink"
 * @import { Words } from "../parts/page"
 * @import { Lesson, LessonRun } from "./curriculum/lesson"
 */

/**
 * words: of all lessons; own: of this one; live: whether there is a model to try it with
 * @param {Lesson} lesson @param {LessonRun | undefined} run @param {{ words: Words, own: Words, live: boolean }} how
 */
export function liveBox(lesson, run, { words, own, live }) {
  const box = el("section", { class: "sd-lesson-live" }, el("h3", {}, words.live), el("p", {}, own.live));
  if (!run) return box;
  const state = liveState(run, lesson.live.changes);
  /** @type {PageState} */
  const named = { ...state, method: words.view.methods[state.method] ?? state.method, policy: words.policies[state.policy] };
  const set = Object.entries(words.settings).filter(([name]) => named[name] !== undefined && named[name] !== false);
  const settings = set.map(([, sentence]) => fill(sentence, named)).join(" ");
  const done = el("p", { class: "sd-live-done", role: "status" });
  const act = live
    ? () => applyState({ tab: "play", ...state })
    : async () => {
        const copied = await navigator.clipboard?.writeText(state.prompt).then(() => true, () => false);
        done.textContent = fill(copied ? words.copied : words.not_copied, state);
      };
  box.append(el("p", { class: "sd-live-settings" }, settings), button(live ? words.try : words.copy, act, "sd-lesson-main"), done);
  if (!live) box.append(el("p", { class: "sd-live-settings" }, words.no_model));
  return box;
}
