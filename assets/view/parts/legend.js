// The legend: each state that a token can have, in its own shape, and what it means.

import { el } from "./dom.js";

/** @import { Words } from "./page" */

const STATES = ["accepted", "rejected", "unreached", "correction", "bonus", "plain"];

/** words: the view's */
export class Legend {
  #entries;
  #words;

  /** @param {Words} words */
  constructor(words) {
    this.#words = words;
    this.#entries = STATES.map((status) => {
      const sample = el("span", { class: `sd-token sd-${status}` }, el("span", { class: "sd-mark" }, words.status[status]));
      return { status, item: el("li", { title: words.meaning[status] }, sample) };
    });
    this.root = el("ul", { class: "sd-legend", "aria-label": words.legend }, ...this.#entries.map(({ item }) => item));
  }

  /** Explain the states of a method that may change the text, or of the others. @param {{ lossy: boolean }} how */
  explain({ lossy }) {
    for (const { status, item } of this.#entries) item.title = (lossy && this.#words.explain_lossy[status]) || this.#words.meaning[status];
  }
}
