// Plain decoding beside the drafted text: what it had written at the same time on its own clock.

import { judgedSteps } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { el, setText } from "./dom.js";
import { append } from "./text.js";

/** @import { Header, State } from "../core/state" */
/** @import { Words } from "./page" */

export class BesideView {
  #words;
  #shown = 0; // steps that are written
  /** @type {Header | null} */
  #header = null; // of the run that they are of

  /** words: `beside` of the view's @param {Words} words */
  constructor(words) {
    this.#words = words;
    this.counts = { plain: el("span", { class: "sd-count" }), speculative: el("span", { class: "sd-count" }) };
    this.body = el("p", { class: "sd-plain-text" });
    this.root = el("div", { class: "sd-beside", role: "region", tabindex: "0", "aria-label": words.label, hidden: true }, this.body);
  }

  /** now: milliseconds on the run's clock @param {State} state @param {number} now */
  render({ lanes }, now) {
    const { plain, speculative } = lanes;
    this.root.hidden = !plain || !speculative;
    for (const count of Object.values(this.counts)) count.hidden = this.root.hidden;
    if (!plain || !speculative) return;
    const steps = judgedSteps(plain);
    const later = steps.findIndex((step) => 1000 * step.elapsed > now);
    const shown = later < 0 ? steps.length : later;
    if (shown < this.#shown || !shown || plain.header !== this.#header) this.body.replaceChildren();
    this.#header = plain.header;
    const from = this.body.childNodes.length ? this.#shown : 0;
    for (const step of steps.slice(from, shown)) append(this.body, step.next?.text ?? "");
    this.#shown = shown;
    setText(this.counts.plain, fill(this.#words.plain, { count: shown }));
    setText(this.counts.speculative, fill(this.#words.drafted, { count: speculative.tokens }));
    this.body.classList.toggle("sd-live", shown < steps.length || !plain.end);
  }
}
