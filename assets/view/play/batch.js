// Several prompts at once: a card each with its state and its answer, and what all of them came to together.

import { el, follow, setText } from "../parts/dom.js";
import { fill, split } from "../core/sentence.js";
import { two } from "../core/metrics.js";

/**
 * @import { Given, Words } from "../parts/page"
 * @typedef {{ prompt: string, state: string, text: string, rate: number | null, error: string[] }} Row
 * @typedef {{ prompts: number, tokens: number, rate: number | null }} Total
 * @typedef {{ rows?: Row[], total?: Total, waiting?: string, error?: string[] }} Batch as `batch` of present.py makes it
 */

/** Draw the batch in `element`. @param {HTMLElement} element @param {Given} given */
export function mountBatch(element, given) {
  const words = given.words.batch;
  const about = el("p", { class: "sd-batch-total sd-waits", role: "status" });
  const list = el("ol", { class: "sd-batch-list", "aria-label": words.label });
  /** @type {Card[]} */
  const cards = [];
  element.replaceChildren(el("div", { class: "sd-batch" }, about, list));
  /** @param {Batch} batch */
  const draw = ({ rows = [], total, waiting, error = [] }) => {
    while (cards.length < rows.length) cards.push(new Card(words));
    cards.length = rows.length;
    rows.forEach((row, i) => cards[i].render(row));
    if (list.childElementCount !== rows.length) list.replaceChildren(...cards.map((card) => card.root));
    if (error.length) about.replaceChildren(...parts(error));
    else setText(about, waiting || sum(total, words));
    about.classList.toggle("sd-batch-error", error.length > 0);
  };
  follow(given, draw);
}

/** What all prompts came to, as a sentence; empty while they go on. @param {Total | undefined} total @param {Words} words */
export const sum = (total, words) => (total ? fill(words.total, { ...total, rate: two(total.rate) }) : "");

// One prompt; its text is the model's and only ever text.
class Card {
  #words;
  #drawn = "";

  constructor(/** @type {Words} */ words) {
    this.#words = words;
    this.state = el("span", { class: "sd-batch-state" });
    this.rate = el("span", { class: "sd-batch-rate" });
    this.prompt = el("h4", {});
    this.text = el("p", { class: "sd-batch-text", tabindex: "0" });
    this.error = el("p", { class: "sd-batch-error sd-waits" });
    this.root = el("li", {}, this.prompt, el("div", { class: "sd-batch-facts" }, this.state, this.rate), this.text, this.error);
  }

  render(/** @type {Row} */ row) {
    const wanted = JSON.stringify(row);
    if (wanted === this.#drawn) return;
    this.#drawn = wanted;
    this.root.className = `sd-batch-${row.state}`;
    this.state.textContent = this.#words.state[row.state];
    this.rate.textContent = row.rate === null ? "" : fill(this.#words.rate, { rate: two(row.rate) });
    this.prompt.textContent = visible(row.prompt);
    const atEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 30;
    this.text.textContent = visible(row.text.trimStart());
    if (row.state === "running" && atEnd) this.text.scrollTop = this.text.scrollHeight;
    this.error.replaceChildren(...parts(row.error));
  }
}

/** What went wrong, each sentence in a place of its own: one at a time is translated. @param {string[]} sentences */
const parts = (sentences) => sentences.map((sentence, i) => el("span", {}, i ? ` ${sentence}` : sentence));

/** Invisible and direction-changing characters by name. @param {string} text */
const visible = (text) => split(text).map(({ text: part, name }) => (name ? `[${name}]` : part)).join("");
