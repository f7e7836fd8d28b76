// What one may do after a run, or where it rests: look at the first rejection, race the prompt, see the other drafts, draw instead of choosing, take another seed.

import { applyState } from "../core/permalink.js";
import { button, el } from "../parts/dom.js";

/** @import { Words } from "../parts/page" */
/** @import { View } from "./view" */

const COUPLED = "coupled"; // the verification under which a seed has one text
const SEEDS = 9999;

export class Next {
  #view;
  #attached = false; // whether a server of another program answers here: it has no other methods

  /** words: `next` of the view's @param {View} view @param {Words} words */
  constructor(view, words) {
    this.#view = view;
    /** The buttons leave as soon as the run moves: the focus goes on to what they show. @param {string} selector */
    const focus = (selector) => /** @type {HTMLElement | null} */ (view.root.querySelector(selector))?.focus({ preventScroll: true });
    this.explain = button(words.explain, () => {
      view.explain();
      focus(".sd-inspector-box");
    });
    /** Ask again with other settings. @param {Record<string, string | number>} changes */
    const again = (changes) => {
      applyState({ prompt: this.#prompt, ...changes, run: true });
      focus(".sd-text");
    };
    this.compared = [button(words.race, () => askTab("race", this.#prompt)), button(words.others, () => askTab("proposals", this.#prompt))];
    this.live = [
      ...this.compared,
      button(words.drawn, () => again({ sampling: "own", temperature: 1, verification: COUPLED })),
    ];
    this.seed = button(words.seed, () => again({ seed: 1 + Math.floor(Math.random() * SEEDS) }));
    this.coupled = button(words.coupled, () => again({ verification: COUPLED }));
    this.root = el("div", { class: "sd-next", role: "group", "aria-label": words.label, hidden: true }, this.explain, this.coupled, this.seed, ...this.live);
  }

  get #prompt() {
    return this.#view.lane?.header.prompt ?? "";
  }

  /** phase: see `phaseOf` @param {string} phase */
  render(phase) {
    const { timeline, root } = this.#view;
    const rests = phase === "paused" && Boolean(this.#view.lane?.steps.length);
    this.root.hidden = !rests && !phase.startsWith("done");
    if (this.root.hidden) return;
    this.explain.hidden = !timeline.stops.some((stop) => stop.rejection);
    const run = /** @type {HTMLButtonElement | null} */ (document.getElementById("sd-run"));
    const here = Boolean(run && !run.disabled && root.closest("#sd-view"));
    this.#attached ||= Boolean(this.#view.lane?.header.knowledge) && !this.#view.recorded;
    for (const one of this.live) one.hidden = !here || (this.#attached && this.compared.includes(one));
    const settings = this.#view.lane?.header.settings ?? {};
    const drawn = here && settings.sampling?.temperature > 0;
    this.seed.hidden = !drawn;
    this.coupled.hidden = !drawn || settings.verification === COUPLED;
  }
}

const PATIENCE = 120; // frames until a tab that was never looked at is drawn
const STEADY = 8; // frames that a prompt has stood in its box: the framework may still write what it began with

/** Ask a prompt on another tab of the page. @param {string} tab @param {string} prompt */
async function askTab(tab, prompt) {
  document.getElementById(`sd-tab-${tab}-button`)?.click();
  for (let frame = 0, steady = 0; frame < PATIENCE && steady < STEADY; frame += 1) {
    const box = /** @type {HTMLTextAreaElement | null} */ (document.querySelector(`#sd-${tab}-prompt textarea`));
    steady = box?.value === prompt ? steady + 1 : 0;
    if (box && !steady) {
      box.value = prompt;
      box.dispatchEvent(new Event("input", { bubbles: true }));
      box.dispatchEvent(new Event("change", { bubbles: true }));
    }
    await new Promise(requestAnimationFrame);
  }
  const start = document.getElementById({ race: "sd-race-start", proposals: "sd-proposals-write" }[tab] ?? "");
  start?.focus();
  start?.click();
}
