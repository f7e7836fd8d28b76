// The drawn steps of a lane: each is drawn once and stays when one looks back, marked with the class "sd-later".

import { keyOf } from "../core/reducer.js";

/** @import { State, Step } from "../core/state" */

/** @typedef {{ element: HTMLElement, key: string }} Drawn */

export class Steps {
  #root;
  #draw;
  /** @type {Drawn[]} */
  #drawn = []; // of each step
  /** @type {Drawn[]} */
  #whole = []; // the same of judged steps, kept while a half judged one stands in their place
  /** @type {string | null} */
  #lane = null;
  #shown = 0; // steps up to the place

  /**
   * root: where the elements stand, alone; draw(step, i): the element of a step
   * @param {HTMLElement} root @param {(step: Step, i: number) => HTMLElement} draw
   */
  constructor(root, draw) {
    this.#root = root;
    this.#draw = draw;
  }

  clear() {
    this.#drawn = [];
    this.#whole = [];
    this.#shown = 0;
    this.#root.replaceChildren();
  }

  /** Show the lane of a state up to its last step; costs as much as has changed since the last call. @param {State} state */
  render(state) {
    if (this.#lane !== state.lane) this.clear();
    this.#lane = state.lane;
    const steps = state.lanes[state.lane ?? ""]?.steps ?? [];
    const before = this.#shown;
    this.#shown = steps.length;
    for (let i = Math.max(0, Math.min(before, steps.length) - 1); i < steps.length; i += 1) this.#show(steps[i], i);
    for (let i = steps.length; i < before; i += 1) this.#leave(i);
  }

  /** How many steps are drawn, those after the place included. */
  get length() {
    return this.#drawn.length;
  }

  /** The element of a step, or null. @param {number} i */
  at(i) {
    return this.#drawn[i]?.element ?? null;
  }

  /** @param {Step} step @param {number} i */
  #show(step, i) {
    const key = keyOf("", step);
    const known = [this.#drawn[i], this.#whole[i]].find((drawn) => drawn?.key === key);
    this.#put(known ?? { key, element: this.#draw(step, i) }, i);
    this.at(i)?.classList.remove("sd-later");
    if (!step.open) this.#whole[i] = this.#drawn[i];
  }

  /** After the place: a step that has been whole is shown whole, one that has not is gone until it comes again. @param {number} i */
  #leave(i) {
    if (this.#whole[i]) {
      this.#put(this.#whole[i], i);
      this.at(i)?.classList.add("sd-later");
    } else this.#drawn.splice(i, 1)[0]?.element.remove(); // then it is the last one
  }

  /** @param {Drawn} drawn @param {number} i */
  #put(drawn, i) {
    const old = this.at(i);
    if (old === drawn.element) return;
    if (old) old.replaceWith(drawn.element);
    else this.#root.append(drawn.element);
    this.#drawn[i] = drawn;
  }
}
