// The box of a moment: its title, where its numbers come from, and what it shows once its runs are read.

import { fold } from "../../core/reducer.js";
import { el } from "../../parts/dom.js";
import { lastRun } from "../../play/last.js";

/**
 * @import { Words } from "../../parts/page"
 * @import { LessonRun } from "../curriculum/lesson"
 * @import { Runs } from "../runs"
 * @import { Moment } from "./moment"
 */

/**
 * words: of all lessons; name: of the lesson; known: the recorded runs that there are
 * It is shown anew whenever it comes into view after another run was made on this page.
 * @param {Moment} moment
 * @param {{ words: Words, name: string, runs: Runs, known: Record<string, LessonRun>, announce: (sentence: string) => void }} how
 */
export function momentBox(moment, { words, name, runs, known, announce }) {
  const own = words.moments[name];
  const badge = el("span", { class: "sd-badge" });
  const stage = el("div", { class: "sd-moment-stage" });
  const root = el("section", { class: "sd-moment", "aria-label": own.title },
    el("h3", {}, own.title, " ", badge), el("p", {}, own.intro), stage);
  /** @type {ReturnType<typeof lastRun> | undefined} */
  let shown;
  const show = async () => {
    const events = lastRun();
    if (events === shown) return;
    shown = events;
    try {
      const lanes = await Promise.all(moment.runs.map((run) => runs.lanes(run)));
      const { plain, speculative: fast } = events ? fold(events).lanes : {};
      stage.replaceChildren(...moment.show(lanes, {
        words: own, methods: words.view.methods, last: events && { plain, fast }, known, announce,
        lanes: (run) => runs.lanes(run),
        from(origin) {
          badge.textContent = words.moments.origins[origin];
          badge.className = `sd-badge sd-badge-${origin}`;
        },
      }));
    } catch (error) {
      shown = undefined; // so that coming back asks again
      stage.replaceChildren(el("p", { class: "sd-moment-problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
    }
  };
  new IntersectionObserver(([seen]) => seen.isIntersecting && show()).observe(root);
  return root;
}
