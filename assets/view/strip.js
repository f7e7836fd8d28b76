// One column per step: a slot for each drafted token and for the target's own, in the shapes of the legend.

import { el } from "./dom.js";
import { pieces } from "./reducer.js";

export class StripView {
  #lane = null;
  #columns = [];
  #open = false;

  constructor(words) {
    this.root = el("div", { class: "sd-strip", role: "img", "aria-label": words.strip_label });
  }

  clear() {
    this.#lane = null;
    this.#columns = [];
    this.#open = false;
    this.root.replaceChildren();
  }

  render(state) {
    const lane = state.lane ? state.lanes[state.lane] : null;
    if (lane !== this.#lane) {
      this.clear();
      this.#lane = lane;
    }
    if (!lane) return;
    if (this.#open && !lane.steps[this.#columns.length - 1]?.open) this.#columns.pop().remove();
    for (let i = this.#columns.length; i < lane.steps.length; i += 1) this.#add(lane.steps[i], i);
    this.#open = Boolean(lane.steps.at(-1)?.open);
    if (!lane.end) this.root.scrollLeft = this.root.scrollWidth;
  }

  columnElement(i) {
    return this.#columns[i] ?? null;
  }

  /** Index of the step under an element, or -1. */
  find(element) {
    return Number(element.closest?.(".sd-column")?.dataset.step ?? -1);
  }

  #add(step, i) {
    const column = el("span", { class: "sd-column", "data-step": i });
    for (const part of pieces(step)) column.append(el("i", { class: `sd-slot sd-slot-${part.status}` }));
    this.#columns.push(column);
    this.root.append(column);
  }
}
