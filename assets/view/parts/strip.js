// One column per step: drafted tokens and the target's own in the shapes of the legend, and below where the time went.

import { closest, el } from "./dom.js";
import { fill } from "../core/sentence.js";
import { TIMES, two } from "../core/metrics.js";
import { pieces } from "../core/reducer.js";
import { Steps } from "./steps.js";

/** @import { Words } from "./page" */
/** @import { State, Step } from "../core/state" */

const NUMBERED = 5; // every fifth step says its number

/** All steps that have been seen; those after the place are pale. `choose(i)` is called for the step one picks. */
export class StripView {
  #words;
  #place = -1;
  #followed = -1;

  /** @param {Words} words @param {(i: number) => void} choose */
  constructor(words, choose) {
    this.#words = words.strip;
    this.choose = choose;
    const drawn = el("div", { class: "sd-drawn", role: "presentation" });
    this.columns = el("div", { class: "sd-columns", role: "listbox", "aria-orientation": "horizontal", tabindex: "0", "aria-label": words.strip.label, title: words.strip.time_hint }, drawn);
    this.root = el("div", { class: "sd-strip" }, this.columns);
    this.steps = new Steps(drawn, (step, i) => this.#draw(step, i));
    this.columns.addEventListener("click", (event) => this.#pick(this.find(event.target)));
    this.columns.addEventListener("keydown", (event) => this.#walk(event));
  }

  clear() {
    this.steps.clear();
    this.#place = this.#followed = -1;
  }

  render(/** @type {State} */ state) {
    const place = (state.lanes[state.lane ?? ""]?.steps.length ?? 0) - 1;
    this.steps.render(state);
    if (place === this.#place) return;
    this.steps.at(this.#place)?.removeAttribute("aria-selected");
    this.steps.at(place)?.setAttribute("aria-selected", "true");
    this.#place = place;
  }

  /** Place in the lane of the step under an element, or -1. @param {EventTarget | null} element */
  find(element) {
    return Number(closest(element, ".sd-column")?.dataset.step ?? -1);
  }

  /** Keep the place in sight, and three columns around it. After all that is written, for it makes the browser lay out the page. */
  follow() {
    if (this.#followed === this.#place) return;
    this.#followed = this.#place;
    const column = this.steps.at(this.#place);
    if (!column) return;
    const { columns } = this;
    const room = 3 * column.offsetWidth;
    const left = column.offsetLeft;
    if (left - room < columns.scrollLeft) columns.scrollLeft = left - room;
    else if (left + room > columns.scrollLeft + columns.clientWidth) columns.scrollLeft = left + room - columns.clientWidth;
  }

  #pick(/** @type {number} */ i) {
    if (i < 0) return;
    this.choose(i);
    this.steps.at(i)?.focus({ preventScroll: true });
  }

  /** Arrow keys, Home and End go from step to step; Enter picks the one in focus again. @param {KeyboardEvent} event */
  #walk(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const focused = this.find(document.activeElement);
    const at = focused < 0 ? this.#place : focused;
    const last = this.steps.length - 1;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, Enter: at, " ": at }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#pick(Math.max(0, Math.min(last, to)));
  }

  /** @param {Step} step @param {number} i */
  #draw(step, i) {
    const slots = el("span", { class: "sd-slots" }, ...pieces(step).flatMap((part) =>
      Array.from({ length: Math.min(8, part.count ?? 1) }, () => el("i", { class: `sd-slot sd-slot-${part.status}` }))));
    const label = this.#label(step);
    const column = el("span", { class: "sd-column", role: "option", tabindex: "-1", "data-step": i, "aria-label": label, title: label }, slots, time(step));
    if ((step.index + 1) % NUMBERED === 0) column.append(el("b", {}, String(step.index + 1)));
    return column;
  }

  #label(/** @type {Step} */ step) {
    const words = this.#words;
    const values = { step: step.index + 1, accepted: step.path.length, drafted: step.nodes.length };
    if (step.open) return fill(words.open, values);
    const [draft, verify, overhead] = Object.values(TIMES).map((name) => two(1000 * step[name]));
    return fill(words.step, { ...values, draft, verify, overhead });
  }
}

/** The shares of a step's time, bottom up: draft, verify, overhead. @param {Step} step */
function time(step) {
  const seconds = step.open ? [0] : Object.values(TIMES).map((name) => step[name]);
  const all = seconds.reduce((sum, part) => sum + part, 0);
  if (!all) return el("span", { class: "sd-time" });
  const [draft, verify] = seconds.map((part) => (100 * part) / all);
  return el("span", { class: "sd-time sd-time-known", style: `--draft:${draft.toFixed(1)}%;--verify:${(draft + verify).toFixed(1)}%` });
}
