// The rejection rule by hand: three words, a target, a draft, every number exact, and a sampler that really draws.

import { el } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { two } from "../core/metrics.js";
import { button } from "./question.js";
import { draw, gap, normal, outcome } from "./rejection.js";

/**
 * @import { Words } from "../parts/page"
 * @typedef {typeof SIDES[number]} Side
 */

const WEIGHTS = { target: [5, 3, 2], draft: [2, 6, 2] };
const MOST = 10; // of a weight
const SIDES = /** @type {const} */ (["target", "draft"]);
const SERIES = [1, 100, 10_000];

export class ThreeWords {
  #weights = structuredClone(WEIGHTS);
  #counts = [0, 0, 0];
  target = normal(WEIGHTS.target);
  draft = normal(WEIGHTS.draft);
  rule = outcome(this.target, this.draft);
  #words;
  #announce;
  /** @type {Record<string, ReturnType<typeof value>>[]} */
  #cells = [];
  /** @type {{ side: Side, word: number, slider: HTMLInputElement }[]} */
  #sliders = [];

  /** announce(sentence): to a screen reader, politely. @param {Words} words @param {(sentence: string) => void} announce */
  constructor(words, announce) {
    this.#words = words;
    this.#announce = announce;
    this.drawn = el("p", { class: "sd-three-drawn" });
    this.sum = el("p", { class: "sd-three-sum" });
    this.wrong = el("input", { type: "checkbox", onchange: () => this.#restart() });
    const rule = el("label", { class: "sd-three-rule" }, this.wrong, words.wrong);
    const buttons = SERIES.map((times) => button(fill(words.draw, { times: counted(times) }), () => this.#draw(times)));
    this.root = el("section", { class: "sd-three" }, el("h3", {}, words.title), el("p", {}, words.intro),
      el("div", { class: "sd-three-box", tabindex: "0", role: "region", "aria-label": words.table }, this.#table()),
      this.sum, el("div", { class: "sd-three-buttons" }, ...buttons, button(words.reset, () => this.#reset())), rule, this.drawn);
    this.#restart();
  }

  #table() {
    const { words: names, columns } = this.#words;
    const head = el("tr", {}, ...["word", "target", "draft", "accept", "kept", "residual", "result", "drawn"].map((name) => {
      const { title, rule } = columns[name];
      return el("th", { scope: "col" }, title, el("small", {}, rule));
    }));
    const rows = names.map((name, i) => {
      const cells = Object.fromEntries(["target", "draft", "accept", "kept", "residual", "result", "drawn"].map((column) => [column, value(column)]));
      for (const side of SIDES) cells[side].cell.append(this.#slider(side, i, name));
      this.#cells.push(cells);
      return el("tr", {}, el("th", { scope: "row" }, name), ...Object.values(cells).map(({ cell }) => cell));
    });
    return el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows));
  }

  /** @param {Side} side @param {number} i @param {string} name */
  #slider(side, i, name) {
    const label = fill(this.#words.weight, { side: this.#words.columns[side].title, word: name });
    const slider = el("input", { type: "range", min: 0, max: MOST, step: 1, value: this.#weights[side][i], "aria-label": label });
    this.#sliders.push({ side, word: i, slider });
    slider.addEventListener("input", () => {
      this.#weights[side][i] = Number(slider.value);
      this.#restart();
    });
    return slider;
  }

  #reset() {
    this.#weights = structuredClone(WEIGHTS);
    this.wrong.checked = false;
    for (const { side, word, slider } of this.#sliders) slider.value = String(this.#weights[side][word]);
    this.#restart();
  }

  #restart() {
    this.#counts = [0, 0, 0];
    this.drawn.textContent = this.#words.none;
    this.target = normal(this.#weights.target);
    this.draft = normal(this.#weights.draft);
    this.rule = outcome(this.target, this.draft, { wrong: this.wrong.checked });
    const { accept, kept, refused, residual, result } = this.rule;
    this.#cells.forEach((cells, i) => {
      const shown = { target: this.target[i], draft: this.draft[i], accept: accept[i], kept: kept[i], residual: refused ? residual[i] : null, result: result[i] };
      for (const [column, number] of Object.entries(shown)) cells[column].show(number);
    });
    const off = gap(result, this.target);
    const sentence = off < 1e-9 ? this.#words.equal : this.#words.biased;
    this.sum.textContent = fill(sentence, { accepted: two(1 - refused), refused: two(refused), gap: two(off) });
    this.sum.classList.toggle("sd-three-off", off >= 1e-9);
    this.#paintDrawn();
  }

  /** @param {number} times */
  #draw(times) {
    let last = { drafted: 0, uniform: 0, kept: false, result: 0 };
    for (let i = 0; i < times; i += 1) {
      last = draw(this.draft, this.rule, Math.random);
      this.#counts[last.result] += 1;
    }
    this.#paintDrawn();
    const total = this.#counts.reduce((all, times_) => all + times_, 0);
    const names = this.#words.words;
    const numbers = { draw: two(last.uniform), accept: two(this.rule.accept[last.drafted]), drafted: names[last.drafted], said: names[last.result] };
    const one = times === 1 ? `${fill(last.kept ? this.#words.kept : this.#words.refused, numbers)} ` : "";
    const off = gap(this.#counts.map((times_) => times_ / total), this.target);
    this.drawn.textContent = one + fill(this.#words.told, { total: counted(total), gap: two(off) });
    this.#announce(this.drawn.textContent);
  }

  #paintDrawn() {
    const total = this.#counts.reduce((all, times) => all + times, 0);
    this.#cells.forEach((cells, i) => cells.drawn.show(total ? this.#counts[i] / total : null));
  }
}

/** @param {number} number */
const counted = (number) => number.toLocaleString(document.documentElement.lang || "en");

/** A cell with a number and a bar. @param {string} column */
function value(column) {
  const number = el("span", { class: "sd-three-number" });
  const bar = el("i", { class: `sd-lesson-bar sd-three-bar-${column}`, "aria-hidden": "true" });
  return {
    cell: el("td", {}, el("span", { class: "sd-three-value" }, number, bar)),
    /** @param {number | null} prob */
    show(prob) {
      number.textContent = prob === null ? "–" : two(prob);
      bar.style.setProperty("--share", String(prob ?? 0));
    },
  };
}
