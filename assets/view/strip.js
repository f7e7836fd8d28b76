// One column per step: a slot for each drafted token and for the target's own, in the shapes of the legend.

import { el } from "./dom.js";
import { keyOf, pieces, unchanged } from "./reducer.js";

export class StripView {
  #columns = [];
  #keys = [];

  constructor(words) {
    this.root = el("div", { class: "sd-strip", role: "img", "aria-label": words.strip_label });
  }

  clear() {
    this.#columns = [];
    this.#keys = [];
    this.root.replaceChildren();
  }

  render(state) {
    const lane = state.lane ? state.lanes[state.lane] : null;
    if (!lane) {
      this.clear();
      return;
    }
    const same = unchanged(this.#keys, lane, state.lane);
    this.#keys.length = same;
    for (const column of this.#columns.splice(same)) column.remove();
    for (let i = same; i < lane.steps.length; i += 1) {
      this.#add(lane.steps[i], i);
      this.#keys.push(keyOf(state.lane, lane.steps[i]));
    }
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
