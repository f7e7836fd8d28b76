// The charts of a run: two places, in each of which one of them can be chosen, on one horizontal axis and with one cursor.

import { el, keep, readKept } from "../parts/dom.js";
import { FIGURES, NAMES, readRun } from "./figures.js";
import { palette, picture } from "./plot.js";
import { Slot } from "./slot.js";

/** @import { Header, Lane, State } from "../core/state" */
/** @import { Words } from "../parts/page" */
/** @import { Choice, Figure, Palette, Reach } from "./figure" */
const LEAST = { steps: 12, seconds: 0.4 }; // of the horizontal axis

export class ChartsView {
  /** (place of a step among its lane's steps or -1, chosen): the pointer came upon it in a chart or left, or clicked. */
  /** @type {((at: number, chosen: boolean) => void) | null} */
  onselect = null;
  /** () => whether they are large now: the charts are to be enlarged, or no longer. @type {(() => boolean) | null} */
  onenlarge = null;
  #words;
  #methods; // titles
  /** @type {State | null} */
  #state = null;
  #lit = -1;
  #choice = recall();
  /** @type {Reach & { header: Header | null, whole: boolean, most: Reach }} */
  #reach = { header: null, whole: false, most: LEAST, ...LEAST };

  constructor(/** @type {Words} */ words) {
    this.#words = words.charts;
    this.#methods = words.methods;
    this.slots = this.#choice.slots.map((_, i) => new Slot(this.#words, i, {
      figure: (name, colours) => this.#figure(name, colours),
      choose: (name) => this.#keep({ ...this.#choice, slots: this.#choice.slots.with(i, name) }),
      turn: (axis) => this.#keep({ ...this.#choice, axis }),
      save: (name, format) => this.#save(name, format),
      select: (index, chosen) => this.onselect?.(this.#find(index), chosen),
      lit: () => this.#find(this.#lit),
    }));
    this.root = el("div", { class: "sd-charts" }, ...this.slots.map((slot) => slot.root));
    const enlarge = el("button", { type: "button", class: "sd-chart-button", "aria-pressed": "false", title: this.#words.enlarge_hint, onclick: () => {
      enlarge.setAttribute("aria-pressed", String(Boolean(this.onenlarge?.())));
    } }, this.#words.enlarge);
    this.slots[0].tools.append(enlarge);
    this.#apply();
  }

  /** Draw a state soon. @param {State} state */
  render(state) {
    this.#state = state;
    this.#extend(state.lanes.speculative ?? state.lanes.plain);
    const kind = state.lane ? state.source.kind : "";
    for (const slot of this.slots) slot.render(kind);
  }

  /** Light the step of this index, or none (-1). @param {number} index */
  highlight(index) {
    this.#lit = index;
    for (const slot of this.slots) slot.light();
  }

  /** Save a chart, seen or not, as "png" or "svg". @param {string} name @param {"png" | "svg"} format */
  async #save(name, format) {
    if (!this.#state) return;
    const colours = palette(this.root);
    const title = `${this.#words.titles[name]} (${this.#words.origin[this.#state.source.kind]})`;
    const drawn = picture(colours, /** @type {Figure} */ (this.#figure(name, colours)), title);
    await globalThis.Plotly?.downloadImage(drawn, { format, width: 900, height: 440, scale: format === "png" ? 2 : 1, filename: `specdemo-${name}` }); // pixels
  }

  #find(/** @type {number} */ index) {
    return this.#state?.lanes.speculative?.steps.findIndex((step) => step.index === index) ?? -1;
  }

  /** @param {string} name @param {Palette} colours */
  #figure(name, colours) {
    return this.#state && FIGURES[name](readRun(this.#state, this.#choice.axis, this.#reach), this.#words, colours, this.#methods);
  }

  // The axis reaches as far as this run has been seen to go, so that looking back does not move it; while a run goes on
  // it grows by a third at a time.
  #extend(/** @type {Lane | undefined} */ lane) {
    const header = lane?.header ?? null;
    const before = header === this.#reach.header ? this.#reach : { whole: false, most: LEAST };
    const most = { steps: Math.max(before.most.steps, (lane?.steps.at(-1)?.index ?? 0) + 1), seconds: Math.max(before.most.seconds, lane?.elapsed ?? 0) };
    const whole = before.whole || Boolean(lane?.end);
    const end = (/** @type {"steps" | "seconds"} */ name) => (whole ? most[name] : roundUp(most[name], LEAST[name]));
    this.#reach = { header, whole, most, steps: end("steps"), seconds: end("seconds") };
  }

  #keep(/** @type {Choice} */ choice) {
    this.#choice = choice;
    keep(KEPT, choice);
    this.#apply();
  }

  #apply() {
    this.slots.forEach((slot, i) => slot.choose(this.#choice.slots[i], this.#choice.axis));
  }
}

/** The next of a row of lengths, each a third longer than the one before, that is not below a value. @param {number} value @param {number} least */
export const roundUp = (value, least) => least * (4 / 3) ** Math.max(0, Math.ceil(Math.log(value / least) / Math.log(4 / 3) - 1e-9));

// ---- Which charts are looked at, and on which axis: kept in the browser from visit to visit

/** @type {Choice} */
const FIRST = { slots: ["speedup", "lookahead"], axis: "steps" };
const KEPT = "specdemo.charts"; // in the browser's storage

/** What was chosen last time; a browser that keeps nothing, or something else, begins anew. @returns {Choice} */
function recall() {
  const { slots = [], axis } = readKept(KEPT) ?? {};
  const known = Array.isArray(slots) && slots.length === FIRST.slots.length && slots.every((/** @type {string} */ name) => NAMES.includes(name));
  return known && (axis === "steps" || axis === "seconds") ? { slots, axis } : FIRST;
}
