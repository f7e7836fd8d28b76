// The legend: one sentence about the marks of the text, each shown as it looks.

import { el } from "./dom.js";

/** @import { Words } from "./page" */

const STATES = ["accepted", "rejected", "correction", "unreached", "bonus"];

/** words: the view's */
export class Legend {
  #entries;
  #words;

  /** @param {Words} words */
  constructor(words) {
    this.#words = words;
    this.#entries = STATES.map((status) => {
      const [mark, means] = words.marks[status];
      const sample = el("span", { class: `sd-token sd-${status}` }, el("span", { class: "sd-mark" }, mark));
      return { status, item: el("li", { title: words.meaning[status] }, sample, ` ${means}`) };
    });
    this.root = el("ul", { class: "sd-legend", "aria-label": words.legend }, ...this.#entries.map(({ item }) => item));
  }

  /** Explain the states of a method that may change the text, or of the others. @param {{ lossy: boolean }} how */
  explain({ lossy }) {
    for (const { status, item } of this.#entries) item.title = (lossy && this.#words.explain_lossy[status]) || this.#words.meaning[status];
  }
}
