// What can be set in the lab: presets, sliders and switches. Each has its value beside it.

import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { el, menu } from "../parts/dom.js";

/** @import { Setting } from "./types" */
/** @import { Words } from "../parts/page" */

export class Controls {
  #words;
  #act;
  /** @type {Record<string, HTMLInputElement>} */
  #inputs = {};
  /** @type {Record<string, HTMLSelectElement>} */
  #selects = {};
  /** @type {Record<string, HTMLElement>} */
  #rows = {};
  /** @type {Record<string, HTMLElement>} */
  #outputs = {};

  /**
   * words: `model` of the lab's; edge, wide: the longest chain and the largest tree that can be chosen
   * act: change(values) sets some, from(name) takes a preset
   * @param {Words} words @param {{ edge: number, wide: number }} how
   * @param {{ change(values: Partial<Setting>): void, from(preset: string): void }} act
   */
  constructor(words, { edge, wide }, act) {
    this.#words = words;
    this.#act = act;
    this.tag = el("span", { class: "sd-tag" });
    this.why = hint("");
    this.treeHint = hint(words.tree_hint);
    this.overlapHint = hint(words.overlap_hint);
    const preset = this.#select("preset", words.preset, words.presets, (name) => act.from(name));
    preset.querySelector("label")?.append(this.tag);
    this.root = el("div", { class: "sd-lab-controls" },
      preset, this.why,
      this.#slider("a", words.a, 0, 1, 0.01, words.a_hint), this.#slider("c", words.c, 0, 1, 0.005, words.c_hint),
      this.#select("kind", words.curve, words.curves, (kind) => act.change({ kind: /** @type {Setting["kind"]} */ (kind) })), this.#slider("slope", words.slope, 0, 1, 0.01),
      this.#slider("k", words.k, 1, edge, 1),
      el("details", { class: "sd-lab-more" }, el("summary", {}, words.more),
        this.#check("tree", words.tree), this.#slider("budget", words.budget, 1, wide, 1), this.#slider("gain", words.gain, 0, 1, 0.01), this.treeHint,
        this.#check("overlapped", words.overlapped), this.overlapHint));
  }

  /**
   * set: all values; preset: the one that they are from; known: presets whose numbers are there, { run, machine }
   * origin: whether the numbers are measured, recorded or assumed; why: a sentence on where they are from
   * @param {Setting} set @param {{ preset: string, known: { run: boolean, machine: boolean }, origin: string, why: string }} how
   */
  render(set, { preset, known, origin, why }) {
    const words = this.#words;
    this.#show("a", set.a, two(set.a));
    this.#show("c", set.c, two(set.c));
    this.#show("k", set.k, String(set.k));
    this.#show("slope", set.slope, fill(words.slope_value, { percent: two(100 * set.slope) }));
    this.#show("budget", set.budget, String(set.budget));
    this.#show("gain", set.gain, fill(words.gain_value, { percent: two(100 * set.gain) }));
    this.#rows.slope.hidden = set.kind !== "linear";
    this.#rows.budget.hidden = this.#rows.gain.hidden = this.treeHint.hidden = !set.tree;
    this.overlapHint.hidden = !set.overlapped;
    this.#inputs.tree.checked = set.tree;
    this.#inputs.overlapped.checked = set.overlapped;
    this.#choose("kind", set.kind, { measured: Boolean(set.points) });
    this.#choose("preset", preset, known);
    this.tag.textContent = words.tags[origin];
    this.tag.className = `sd-tag sd-tag-${origin}`;
    this.why.textContent = why;
  }

  /** Choose a value; possible: whether it can be chosen, of some values. @param {string} name @param {string} chosen @param {Record<string, boolean>} possible */
  #choose(name, chosen, possible) {
    const select = this.#selects[name];
    select.value = chosen;
    for (const one of select.options) one.disabled = possible[one.value] === false;
  }

  /** @param {string} name @param {number} value @param {string} text */
  #show(name, value, text) {
    this.#inputs[name].value = String(value);
    this.#inputs[name].setAttribute("aria-valuetext", text);
    this.#outputs[name].textContent = text;
  }

  /** @param {string} name @param {string} text @param {number} min @param {number} max @param {number} step @param {string} [title] */
  #slider(name, text, min, max, step, title = "") {
    const id = `sd-lab-${name}`;
    const input = el("input", { type: "range", id, min, max, step, title, oninput: () => this.#act.change({ [name]: Number(input.value) }) });
    this.#inputs[name] = input;
    this.#outputs[name] = el("output", { for: id });
    this.#rows[name] = el("div", { class: "sd-lab-row" }, el("label", { for: id, title }, text), this.#outputs[name], input);
    return this.#rows[name];
  }

  /** @param {string} name @param {string} text @param {Words} choices @param {(value: string) => void} change */
  #select(name, text, choices, change) {
    const id = `sd-lab-${name}`;
    const select = menu({ id, onchange: () => change(select.value) }, Object.entries(choices));
    this.#selects[name] = select;
    return el("div", { class: "sd-lab-row" }, el("label", { for: id }, text, " "), select);
  }

  /** @param {string} name @param {string} text */
  #check(name, text) {
    const input = el("input", { type: "checkbox", onchange: () => this.#act.change({ [name]: input.checked }) });
    this.#inputs[name] = input;
    return el("label", { class: "sd-lab-check" }, input, text);
  }
}

const hint = (/** @type {string} */ text) => el("p", { class: "sd-lab-hint" }, text);
