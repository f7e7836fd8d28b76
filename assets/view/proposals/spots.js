// A text in which a position is chosen: by a click on a token, with the slider, or one on or back.

import { fill } from "../core/sentence.js";
import { append } from "../parts/characters.js";
import { closest, el, setText, textEl } from "../parts/dom.js";

/**
 * @import { Words } from "../parts/page"
 * @typedef {{ tokens: string[], position: number, known: Map<number, unknown> | null, writing: boolean }} Spotted
 *   known: of a recorded text, the positions that can be shown; writing: whether the text still grows
 */

export class Spots {
  #words;
  /** @type {Spotted} */
  #shown = { tokens: [], position: 0, known: null, writing: false };
  #drawn = ""; // what the text shows

  /** @param {Words} words @param {{ choose(position: number): void, step(by: number): void }} act */
  constructor(words, { choose, step }) {
    this.#words = words;
    this.text = el("div", { class: "sd-spots", role: "group", tabindex: "0", "aria-label": words.text });
    this.text.addEventListener("click", (event) => {
      const clicked = closest(event.target, ".sd-spot");
      if (clicked && !this.#shown.writing) choose(Number(clicked.dataset.position));
    });
    /** @param {string} name @param {string} sign @param {number} by */
    const button = (name, sign, by) => textEl("button", sign, { type: "button", class: "sd-button", "aria-label": words[name], title: words[name], onclick: () => step(by) });
    this.slider = el("input", { type: "range", class: "sd-scrub", min: 0, max: 0, step: 1, value: 0, "aria-label": words.place });
    // What is drafted at a position of a live text is asked of the server, once the slider is let go.
    this.slider.addEventListener("input", () => (this.#shown.known ? choose : (/** @type {number} */ at) => this.#name(at))(Number(this.slider.value)));
    this.slider.addEventListener("change", () => choose(Number(this.slider.value)));
    this.position = el("span", { class: "sd-place" });
    this.bar = el("div", { class: "sd-spot-bar", role: "group", "aria-label": words.place }, button("earlier", "‹", -1), this.slider, button("later", "›", 1), this.position);
  }

  /** @param {Spotted} shown */
  render(shown) {
    this.#shown = shown;
    const { tokens, position, known, writing } = shown;
    const key = JSON.stringify([tokens, Boolean(known)]);
    if (key !== this.#drawn) this.text.replaceChildren(...tokens.map((text, i) => spot(text, i, Boolean(known?.has(i)))));
    this.#drawn = key;
    this.text.hidden = !tokens.length;
    [...this.text.children].forEach((token, i) => {
      token.classList.toggle("sd-spot-here", i === position && !writing);
      token.classList.toggle("sd-spot-after", i >= position && !writing);
    });
    this.bar.hidden = !tokens.length || writing;
    this.slider.max = String(tokens.length);
    this.slider.value = String(position);
    this.#name(position);
  }

  /** @param {number} position */
  #name(position) {
    const sentence = fill(this.#words.place_of, { position, tokens: this.#shown.tokens.length });
    setText(this.position, sentence);
    this.slider.setAttribute("aria-valuetext", sentence);
  }
}

/** @param {string} text @param {number} i @param {boolean} known */
function spot(text, i, known) {
  const token = el("span", { class: known ? "sd-spot sd-spot-known" : "sd-spot", "data-position": i });
  append(token, text);
  return token;
}
