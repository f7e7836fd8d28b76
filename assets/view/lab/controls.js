// What can be set in the lab: presets, sliders and switches. Each has its value beside it.

import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { el } from "../parts/dom.js";

export class Controls {
  #words;
  #act;
  #inputs = {};
  #rows = {};
  #outputs = {};

  /**
   * words: `model` of the lab's; edge, wide: the longest chain and the largest tree that can be chosen
   * act: change(values) sets some, from(name) takes a preset
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
      this.#select("kind", words.curve, words.curves, (kind) => act.change({ kind })), this.#slider("slope", words.slope, 0, 1, 0.01),
      this.#slider("k", words.k, 1, edge, 1),
      el("details", { class: "sd-lab-more" }, el("summary", {}, words.more),
        this.#check("tree", words.tree), this.#slider("budget", words.budget, 1, wide, 1), this.#slider("gain", words.gain, 0, 1, 0.01), this.treeHint,
        this.#check("overlapped", words.overlapped), this.overlapHint));
  }

  /**
   * set: all values; preset: the one that they are from; known: presets whose numbers are there, { run, machine }
   * origin: whether the numbers are measured, recorded or assumed; why: a sentence on where they are from
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
    const inputs = this.#inputs;
    inputs.tree.checked = set.tree;
    inputs.overlapped.checked = set.overlapped;
    inputs.kind.value = set.kind;
    inputs.kind.querySelector("[value=measured]").disabled = !set.points;
    inputs.preset.value = preset;
    inputs.preset.querySelector("[value=run]").disabled = !known.run;
    inputs.preset.querySelector("[value=machine]").disabled = !known.machine;
    this.tag.textContent = words.tags[origin];
    this.tag.className = `sd-tag sd-tag-${origin}`;
    this.why.textContent = why;
  }

  #show(name, value, text) {
    this.#inputs[name].value = value;
    this.#inputs[name].setAttribute("aria-valuetext", text);
    this.#outputs[name].textContent = text;
  }

  #slider(name, text, min, max, step, title = "") {
    const id = `sd-lab-${name}`;
    const input = el("input", { type: "range", id, min, max, step, title });
    input.addEventListener("input", () => this.#act.change({ [name]: Number(input.value) }));
    this.#inputs[name] = input;
    this.#outputs[name] = el("output", { for: id });
    this.#rows[name] = el("div", { class: "sd-lab-row" }, el("label", { for: id, title }, text), this.#outputs[name], input);
    return this.#rows[name];
  }

  #select(name, text, choices, change) {
    const id = `sd-lab-${name}`;
    const select = el("select", { id }, ...Object.entries(choices).map(([value, title]) => option(value, title)));
    select.addEventListener("change", () => change(select.value));
    this.#inputs[name] = select;
    return el("div", { class: "sd-lab-row" }, el("label", { for: id }, text, " "), select);
  }

  #check(name, text) {
    const input = el("input", { type: "checkbox" });
    input.addEventListener("change", () => this.#act.change({ [name]: input.checked }));
    this.#inputs[name] = input;
    return el("label", { class: "sd-lab-check" }, input, text);
  }
}

export const option = (value, title) => el("option", { value }, title);

export const button = (text, run) => el("button", { type: "button", class: "sd-lab-button", onclick: run }, text);

const hint = (text) => el("p", { class: "sd-lab-hint" }, text);
