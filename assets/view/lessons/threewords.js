// The rejection rule by hand: three words, a target, a draft, every number exact, and a sampler that really draws.

import { el } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { two } from "../core/metrics.js";
import { button } from "./question.js";
import { draw, gap, normal, outcome } from "./rejection.js";

const WEIGHTS = { target: [5, 3, 2], draft: [2, 6, 2] };
const MOST = 10; // of a weight
const SERIES = [1, 100, 10_000];

export class ThreeWords {
  #weights = structuredClone(WEIGHTS);
  #counts = [0, 0, 0];
  rule = outcome(normal(WEIGHTS.target), normal(WEIGHTS.draft));
  #words;
  #say;
  #cells = [];

  /** say(sentence): tells a screen reader, politely. */
  constructor(words, say) {
    this.#words = words;
    this.#say = say;
    this.told = el("p", { class: "sd-three-told" });
    this.sum = el("p", { class: "sd-three-sum" });
    this.wrong = el("input", { type: "checkbox", onchange: () => this.#restart() });
    const rule = el("label", { class: "sd-three-rule" }, this.wrong, words.wrong);
    const buttons = SERIES.map((times) => button(fill(words.draw, { times: counted(times) }), () => this.#draw(times)));
    this.root = el("section", { class: "sd-three" }, el("h3", {}, words.title), el("p", {}, words.intro),
      el("div", { class: "sd-three-box", tabindex: "0", role: "region", "aria-label": words.table }, this.#table()),
      this.sum, el("div", { class: "sd-three-buttons" }, ...buttons, button(words.reset, () => this.#reset())), rule, this.told);
    this.#restart();
  }

  #table() {
    const { words: names, columns } = this.#words;
    const head = el("tr", {}, ...["word", "target", "draft", "accept", "kept", "residual", "said", "drawn"].map((name) => {
      const { title, rule } = columns[name];
      return el("th", { scope: "col" }, title, el("small", {}, rule));
    }));
    const rows = names.map((name, i) => {
      const cells = Object.fromEntries(["target", "draft", "accept", "kept", "residual", "said", "drawn"].map((column) => [column, value(column)]));
      for (const side of ["target", "draft"]) cells[side].cell.append(this.#slider(side, i, name));
      this.#cells.push(cells);
      return el("tr", {}, el("th", { scope: "row" }, name), ...Object.values(cells).map(({ cell }) => cell));
    });
    return el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows));
  }

  #slider(side, i, name) {
    const label = fill(this.#words.weight, { side: this.#words.columns[side].title, word: name });
    const slider = el("input", { type: "range", min: 0, max: MOST, step: 1, value: this.#weights[side][i], "aria-label": label, "data-side": side });
    slider.addEventListener("input", () => {
      this.#weights[side][i] = Number(slider.value);
      this.#restart();
    });
    return slider;
  }

  #reset() {
    this.#weights = structuredClone(WEIGHTS);
    this.wrong.checked = false;
    for (const slider of this.root.querySelectorAll("input[type=range]")) {
      const row = [...slider.closest("tbody").children].indexOf(slider.closest("tr"));
      slider.value = this.#weights[slider.dataset.side][row];
    }
    this.#restart();
  }

  #restart() {
    this.#counts = [0, 0, 0];
    this.told.textContent = this.#words.none;
    this.target = normal(this.#weights.target);
    this.draft = normal(this.#weights.draft);
    this.rule = outcome(this.target, this.draft, { wrong: this.wrong.checked });
    const { accept, kept, refused, residual, said } = this.rule;
    this.#cells.forEach((cells, i) => {
      const shown = { target: this.target[i], draft: this.draft[i], accept: accept[i], kept: kept[i], residual: refused ? residual[i] : null, said: said[i] };
      for (const [column, number] of Object.entries(shown)) cells[column].show(number);
    });
    const off = gap(said, this.target);
    const sentence = off < 1e-9 ? this.#words.equal : this.#words.biased;
    this.sum.textContent = fill(sentence, { accepted: two(1 - refused), refused: two(refused), gap: two(off) });
    this.sum.classList.toggle("sd-three-off", off >= 1e-9);
    this.#paintDrawn();
  }

  #draw(times) {
    let last = { drafted: 0, uniform: 0, kept: false, said: 0 };
    for (let i = 0; i < times; i += 1) {
      last = draw(this.draft, this.rule, Math.random);
      this.#counts[last.said] += 1;
    }
    this.#paintDrawn();
    const total = this.#counts.reduce((all, times_) => all + times_, 0);
    const names = this.#words.words;
    const numbers = { draw: two(last.uniform), accept: two(this.rule.accept[last.drafted]), drafted: names[last.drafted], said: names[last.said] };
    const one = times === 1 ? `${fill(last.kept ? this.#words.kept : this.#words.refused, numbers)} ` : "";
    const off = gap(this.#counts.map((times_) => times_ / total), this.target);
    this.told.textContent = one + fill(this.#words.told, { total: counted(total), gap: two(off) });
    this.#say(this.told.textContent);
  }

  #paintDrawn() {
    const total = this.#counts.reduce((all, times) => all + times, 0);
    this.#cells.forEach((cells, i) => cells.drawn.show(total ? this.#counts[i] / total : null));
  }
}

const counted = (number) => number.toLocaleString(document.documentElement.lang || "en");

// A cell with a number and a bar.
function value(column) {
  const number = el("span", { class: "sd-three-number" });
  const bar = el("i", { class: `sd-lesson-bar sd-three-bar-${column}`, "aria-hidden": "true" });
  return {
    cell: el("td", {}, el("span", { class: "sd-three-value" }, number, bar)),
    show(prob) {
      number.textContent = prob === null ? "–" : two(prob);
      bar.style.setProperty("--share", prob ?? 0);
    },
  };
}
