// The big numbers: two significant digits, fixed width, at most four changes a second.

import { el, setText } from "./dom.js";
import { FEWEST_TOKENS } from "../core/headline.js";
import { fill } from "../core/sentence.js";
import { acceptRate, draftPerStep, disturbed, preparedRate, speedup, tokensPerSecond, tokensPerStep, two, verifyPerStep } from "../core/metrics.js";

/** @import { Words } from "./page" */
/** @import { State } from "../core/state" */

const FIRST = ["speedup", "accepted", "per_step"]; // always in sight
const REST = ["fast", "plain", "draft", "verify", "prepared", "saved"]; // on demand
const AHEAD = ["prepared", "saved"]; // shown for runs that draft while the target is busy

export class NumbersView {
  /** @type {Record<string, Record<"cell" | "term" | "value" | "origin", HTMLElement>>} */
  #cells = {};
  #words;

  constructor(/** @type {Words} */ words) {
    this.#words = words.numbers;
    this.strip = el("dl", { class: "sd-numbers" });
    const rest = el("dl", { class: "sd-numbers-rest" });
    this.shared = el("p", { class: "sd-shared", hidden: true });
    this.more = el("details", { class: "sd-more" }, el("summary", { class: "sd-button" }, this.#words.more), rest);
    this.root = el("div", { class: "sd-facts" }, this.strip, this.more);
    for (const name of [...FIRST, ...REST]) {
      const { unit, label, hint } = this.#words[name];
      const value = el("b");
      const origin = el("span", { class: "sd-origin" });
      const term = el("dt", { title: hint }, el("span", {}, label), origin);
      const cell = el("div", { class: `sd-number sd-number-${name}` }, el("dd", {}, value, el("span", { class: "sd-unit" }, unit)), term);
      (FIRST.includes(name) ? this.strip : rest).append(cell);
      this.#cells[name] = { cell, term, value, origin };
    }
  }

  render(/** @type {State} */ state) {
    const { plain, speculative } = state.lanes;
    const busy = disturbed(plain, speculative);
    const early = !speculative?.end && (speculative?.tokens ?? 0) < FEWEST_TOKENS;
    /** @type {Record<string, string>} */
    const values = {
      speedup: busy || early ? "–" : two(speedup(plain, speculative)),
      fast: two(tokensPerSecond(speculative)),
      plain: two(tokensPerSecond(plain)),
      accepted: speculative ? two(scale(acceptRate(speculative), 100)) : "–",
      per_step: speculative ? two(tokensPerStep(speculative)) : "–",
      draft: speculative ? two(scale(draftPerStep(speculative), 1000)) : "–",
      verify: speculative ? two(scale(verifyPerStep(speculative), 1000)) : "–",
      prepared: speculative ? two(scale(preparedRate(speculative), 100)) : "–",
      saved: speculative?.known ? two(1000 * speculative.savedSeconds) : "–",
    };
    for (const name of AHEAD) this.#cells[name].cell.hidden = !speculative?.known;
    const kind = `sd-origin sd-origin-${state.source.kind}`;
    for (const [name, { value, origin }] of Object.entries(this.#cells)) {
      if (origin.className !== kind) origin.className = kind;
      setText(value, values[name]);
      const said = FIRST.includes(name); // by the badge in the same row
      setText(origin, values[name] !== "–" ? (said ? "" : this.#words.origin[state.source.kind]) : busy && name === "speedup" ? this.#words.origin.disturbed : "");
    }
    if (speculative?.known) {
      const { hits, known } = speculative;
      this.#cells.prepared.term.title = fill(this.#words.prepared.count, { hits, known });
    }
    const runs = Math.max(plain?.runs ?? 1, speculative?.runs ?? 1);
    this.shared.hidden = runs < 2;
    this.shared.textContent = runs < 2 ? "" : fill(this.#words.shared, { runs });
    const ratio = speedup(plain, speculative);
    this.strip.classList.toggle("sd-slower", !busy && !early && ratio !== null && ratio < 1);
  }
}

/** @param {number | null} value @param {number} factor */
const scale = (value, factor) => (value === null ? null : value * factor);
