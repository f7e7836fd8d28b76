// The rejection rule by hand: three words, a target, a draft, every number exact, and a sampler that really draws.

import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { table } from "../parts/blocks.js";
import { el } from "../parts/dom.js";
import { button } from "./question.js";

/**
 * @import { Words } from "../parts/page"
 * @typedef {typeof SIDES[number]} Side
 */
const WEIGHTS = { target: [5, 3, 2], draft: [2, 6, 2] };
const MOST = 10; // of a weight
const SIDES = /** @type {const} */ (["target", "draft"]);
const COLUMNS = ["target", "draft", "accept", "kept", "residual", "result", "drawn"];
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
    const heads = ["word", ...COLUMNS].map((name) => el("th", { scope: "col" }, columns[name].title, el("small", {}, columns[name].rule)));
    const rows = names.map((name, i) => {
      const cells = Object.fromEntries(COLUMNS.map((column) => [column, value(column)]));
      for (const side of SIDES) cells[side].cell.append(this.#slider(side, i, name));
      this.#cells.push(cells);
      return [name, ...Object.values(cells).map(({ cell }) => cell)];
    });
    return table(heads, rows);
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

  #draw(/** @type {number} */ times) {
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

const counted = (/** @type {number} */ number) => number.toLocaleString(document.documentElement.lang || "en");

/** A cell with a number and a bar. @param {string} column */
function value(column) {
  const number = el("span", { class: "sd-three-number" });
  const bar = el("i", { class: `sd-lesson-bar sd-three-bar-${column}`, "aria-hidden": "true" });
  return {
    cell: el("td", {}, el("span", { class: "sd-three-value" }, number, bar)),
    show(/** @type {number | null} */ prob) {
      number.textContent = prob === null ? "–" : two(prob);
      bar.style.setProperty("--share", String(prob ?? 0));
    },
  };
}

// ---- The rejection rule, exactly, for a few words: what is kept, what replaces a refused word, and what comes out

/** @typedef {ReturnType<typeof outcome>} Outcome */

/** The exercise as it opens: probabilities of the target and the draft, and the word that the draft drew. */
export const EXAMPLE = { target: [0.5, 0.3, 0.2], draft: [0.2, 0.6, 0.2], drafted: 1 };

/** Weights as probabilities; nothing at all is taken for indifference. @param {number[]} weights */
export function normal(weights) {
  const sum = weights.reduce((all, weight) => all + weight, 0);
  return weights.map((weight) => (sum ? weight / sum : 1 / weights.length));
}

/**
 * The rule of Leviathan (2211.17192) and Chen (2302.01318) in full.
 *
 * accept: min(1, target / draft), null for a word that is never drafted; kept: drafted and kept;
 * refused: the chance of a refusal; residual: what a replacement is drawn from; result: what comes out
 * wrong: the replacement is drawn from the target itself, a mistake to look at
 * @param {number[]} target @param {number[]} draft @param {{ wrong?: boolean }} [how]
 */
export function outcome(target, draft, { wrong = false } = {}) {
  const accept = target.map((prob, i) => (draft[i] ? Math.min(1, prob / draft[i]) : null));
  const kept = target.map((prob, i) => Math.min(prob, draft[i]));
  const refused = 1 - kept.reduce((all, share) => all + share, 0);
  const left = target.map((prob, i) => Math.max(0, prob - draft[i]));
  const nothing = left.every((share) => share < 1e-12);
  const residual = wrong || nothing ? target : normal(left);
  const result = kept.map((share, i) => share + (nothing ? 0 : refused) * residual[i]);
  return { accept, kept, refused: nothing ? 0 : refused, residual, result };
}

/**
 * One token by the rule. random(): uniform in [0, 1). returns: what was drafted, the draw, whether it was kept, what comes out
 * @param {number[]} draft @param {Pick<Outcome, "accept" | "residual">} how @param {() => number} random
 */
export function draw(draft, { accept, residual }, random) {
  const drafted = pick(draft, random());
  const uniform = random();
  const kept = uniform < (accept[drafted] ?? 0);
  return { drafted, uniform, kept, result: kept ? drafted : pick(residual, random()) };
}

/** @param {number[]} probs @param {number} uniform */
export function pick(probs, uniform) {
  let left = uniform;
  const last = probs.findLastIndex((prob) => prob > 0);
  const found = probs.findIndex((prob) => (left -= prob) < 0);
  return found < 0 ? last : found;
}

/**
 * The gap between shares and probabilities: total variation, 0 when equal, 1 when nothing is shared.
 * @param {number[]} shares @param {number[]} probs
 */
export const gap = (shares, probs) => shares.reduce((all, share, i) => all + Math.abs(share - probs[i]), 0) / 2;
