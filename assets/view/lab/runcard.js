// The run beside the model: which one it is, what its trace says of the model's terms, and how far the model is off.

import { isTooLarge, readTrace } from "../core/lines.js";
import { two } from "../core/metrics.js";
import { fetchFile, fetchRuns } from "../core/recorded.js";
import { fold } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { el } from "../parts/dom.js";
import { table } from "../parts/table.js";
import { lastRun } from "../play/last.js";
import { button, option } from "./controls.js";
import { foresee, measure } from "./measure.js";

/**
 * @import { Line } from "../core/state"
 * @import { Words } from "../parts/page"
 * @import { Measured } from "./measure"
 * @import { Model } from "./types"
 * @typedef {{ title: string, origin: "measured" | "recorded", measured: Measured }} Run
 */

export class RunCard {
  /** @type {Run | null} */
  run = null;
  #words;
  #tags;
  #taken;

  /** words: the lab's; taken(): another run was chosen @param {Words} words @param {() => void} taken */
  constructor(words, taken) {
    this.#words = words.run;
    this.#tags = words.model.tags;
    this.#taken = taken;
    this.pick = el("select", { "aria-label": this.#words.pick }, option("", this.#words.none));
    this.pick.options[0].disabled = true;
    this.pick.addEventListener("change", () => {
      const { value, selectedOptions } = this.pick;
      if (value === "mine") this.#last();
      else if (value !== "file") this.#recorded(value, selectedOptions[0].text);
    });
    this.file = el("input", { type: "file", accept: ".jsonl,.json,.txt", class: "sd-hidden", tabindex: "-1", "aria-label": this.#words.file });
    this.file.addEventListener("change", () => this.#file());
    this.tag = el("span", { class: "sd-tag" });
    this.notes = el("p", { class: "sd-lab-hint" });
    this.problem = el("p", { class: "sd-lab-problem", role: "status" });
    this.off = el("div");
    this.offBox = el("div", {}, this.notes, el("h4", {}, this.#words.off), this.off, el("p", { class: "sd-lab-hint" }, this.#words.off_hint));
    this.root = el("section", { class: "sd-lab-card" }, el("h3", {}, this.#words.title, " ", this.tag),
      el("div", { class: "sd-lab-pick" }, this.pick, button(this.#words.last, () => this.#last()), button(this.#words.file, () => this.file.click()), this.file),
      this.problem, this.offBox);
  }

  /** Name the recorded runs, and show the first. */
  async begin() {
    const runs = await fetchRuns(); // the model works without them
    this.pick.append(...runs.map(({ name, title }) => option(name, title)));
    if (runs.length && !this.run) await this.#recorded(runs[0].name, runs[0].title);
  }

  /** model: what is set; hidden: while the visitor guesses @param {Model} model @param {{ hidden: boolean }} how */
  render(model, { hidden }) {
    const words = this.#words;
    this.offBox.hidden = !this.run || hidden;
    if (!this.run) return;
    const { measured, origin } = this.run;
    this.tag.textContent = this.#tags[origin];
    this.tag.className = `sd-tag sd-tag-${origin}`;
    const notes = [fill(words.said, { a: two(measured.a), judged: measured.judged, c: two(measured.c), speedup: two(measured.speedup) })];
    if (!measured.plainMeasured) notes.push(words.unmeasured_plain);
    if (measured.lookaheads.length > 2) notes.push(words.policy);
    this.notes.textContent = notes.join(" ");
    const modelled = foresee(model, measured);
    /** @param {Record<string, any>} numbers @param {string} name */
    const shown = (numbers, name) => two(numbers[name]) + (name === "speedup" ? "×" : "");
    const heads = words.columns.map((text) => fill(text, { origin: this.#tags[origin] }));
    const rows = Object.entries(words.rows).map(([name, text]) => [text, shown(modelled, name), shown(measured, name)]);
    this.off.replaceChildren(table(heads, rows, { class: "sd-lab-table" }));
  }

  /** @param {string} name @param {string} title */
  async #recorded(name, title) {
    const items = await fetchFile(name);
    if (items) this.#take(items, title, "recorded", name);
    else this.#complain(fill(this.#words.gone, { title }));
  }

  #last() {
    const events = lastRun();
    if (events) this.#take(events, this.#words.mine, "measured", "mine");
    else this.#complain(this.#words.no_last);
  }

  async #file() {
    const [file] = this.file.files ?? [];
    this.file.value = "";
    if (!file) return;
    if (isTooLarge(file.size)) return this.#complain(fill(this.#words.large, { title: file.name }));
    const { items } = readTrace(await file.text());
    if (items.length) this.#take(items, file.name, "recorded", "file");
    else this.#complain(fill(this.#words.unreadable, { title: file.name }));
  }

  /** @param {Line[]} items @param {string} title @param {"measured" | "recorded"} origin @param {string} value */
  #take(items, title, origin, value) {
    const measured = measure(fold(items));
    if (!measured) {
      this.#complain(fill(this.#words.no_drafts, { title }));
      return;
    }
    this.run = { title, origin, measured };
    const { pick } = this;
    const known = [...pick.options].find((one) => one.value === value);
    if (known) known.textContent = title;
    else pick.append(option(value, title));
    pick.value = value;
    this.problem.textContent = "";
    this.#taken();
  }

  /** @param {string} sentence */
  #complain(sentence) {
    this.problem.textContent = sentence;
    const { run } = this;
    if (run) this.pick.value = [...this.pick.options].find((one) => one.textContent === run.title)?.value ?? "";
  }
}
