// The hero: what the model wrote, token by token, with what was drafted and refused.

import { laneText, pieces } from "../core/reducer.js";
import { fill, isUnknown, split } from "../core/sentence.js";
import { isTree } from "../core/tree.js";
import { closest, el, setText } from "./dom.js";
import { Steps } from "./steps.js";

/** @import { Piece, State, Step } from "../core/state" */
/** @import { Found, Words } from "./page" */
const RIGHT_TO_LEFT = /^\P{L}*[\p{Script=Arabic}\p{Script=Hebrew}]/u; // its first letter decides
const DECIDING = 8; // first steps that are searched for it
const MARKED = new Set(["correction", "bonus"]); // a blank or a line end of theirs is shown by a sign

/** The text of a lane; `render(state)` draws what has changed since the last call. */
export class TextView {
  #words;
  #earlier = 0;
  /** @type {WeakMap<Element, { step: Step, piece: Piece }>} */
  #tokens = new WeakMap(); // by element

  constructor(/** @type {Words} */ words) {
    this.#words = words;
    this.before = el("div", { class: "sd-earlier" });
    this.prompt = el("p", { class: "sd-asked" });
    this.body = el("div", { class: "sd-answer" });
    this.empty = el("p", { class: "sd-empty sd-waits" });
    this.flow = el("div", {}, this.before, this.prompt, this.body, this.empty);
    this.root = el("div", { class: "sd-text", role: "region", tabindex: "0", "aria-label": words.text_label }, this.flow);
    this.root.addEventListener("keydown", (event) => this.#walk(event));
    // Shift and a click choose a second token; the browser would select the text between.
    this.root.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault());
    this.steps = new Steps(this.body, (step, i) => this.#draw(step, i));
  }

  clear() {
    this.steps.clear();
    this.before.replaceChildren();
    this.#earlier = 0;
  }

  render(/** @type {State} */ state) {
    this.#renderEarlier(state.earlier);
    const lane = state.lane ? state.lanes[state.lane] : null;
    const prompt = lane?.header.prompt ?? "";
    this.prompt.hidden = !prompt;
    setText(this.prompt, prompt);
    this.empty.hidden = Boolean(lane) || (state.earlier.length > 0 && !state.source.waiting);
    setText(this.empty, state.source.waiting || this.#words.empty);
    this.steps.render(state);
    // Tokens are isolated from each other, so the browser cannot tell.
    this.body.dir = lane && RIGHT_TO_LEFT.test(laneText({ steps: lane.steps.slice(0, DECIDING) })) ? "rtl" : "ltr";
    this.body.classList.toggle("sd-live", Boolean(lane && !lane.end));
  }

  /**
   * { token, step, piece, at } of the token that an element belongs to, or null; `at` is the step's place in its lane.
   * @param {EventTarget | null} element @returns {Found | null}
   */
  find(element) {
    const token = closest(element, ".sd-token");
    const known = token && this.#tokens.get(token);
    return known ? { token, ...known, at: Number(closest(token, ".sd-step")?.dataset.step) } : null;
  }

  /** The element of a node of a step, -1 for the target's own. @param {number} at place of the step @param {number} node */
  token(at, node) {
    const tokens = [...(this.steps.at(at)?.querySelectorAll(".sd-token") ?? [])];
    return tokens.find((token) => this.#tokens.get(token)?.piece.node === node);
  }

  /** Arrow keys move the focus from token to token. @param {KeyboardEvent} event */
  #walk(event) {
    const by = ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0) * (this.body.dir === "rtl" ? -1 : 1);
    if (!by || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const all = /** @type {NodeListOf<HTMLElement>} */ (this.body.querySelectorAll(".sd-step:not(.sd-later) .sd-token"));
    const tokens = [...all].filter((token) => token.checkVisibility());
    const at = tokens.findIndex((token) => token === document.activeElement);
    if (!tokens.length) return;
    event.preventDefault();
    tokens[at < 0 ? 0 : at + by]?.focus();
  }

  #renderEarlier(/** @type {State["earlier"]} */ turns) {
    for (; this.#earlier < turns.length; this.#earlier += 1) {
      const { prompt, answer } = turns[this.#earlier];
      const asked = el("p", { class: "sd-asked" }, prompt);
      const answered = el("p", { class: "sd-answered" });
      append(answered, answer);
      this.before.append(asked, answered);
    }
  }

  /** @param {Step} step @param {number} i */
  #draw(step, i) {
    const element = el("span", { class: step.open ? "sd-step sd-open" : "sd-step", "data-step": i });
    let group = element;
    const tree = isTree(step.nodes);
    for (const part of pieces(step)) {
      const wanted = part.discarded ? "sd-discarded" : part.node < 0 ? "" : "sd-kept";
      if (group.className !== wanted || !wanted) {
        group = wanted ? el("span", { class: wanted }) : element;
        if (wanted) element.append(group);
      }
      const token = this.#token(part, step);
      // Words that were drafted for the same place do not read as one.
      if (tree && part.discarded && group.childElementCount) token.classList.add("sd-sibling");
      group.append(token);
    }
    return element;
  }

  /** @param {Piece} part @param {Step} step */
  #token(part, step) {
    const text = isUnknown(part.value) ? "?" : (part.value.text ?? "");
    const token = el("span", { class: `sd-token sd-${part.status}`, tabindex: "-1" });
    if (part.discarded) {
      const word = text.trimStart();
      token.append(word && text.startsWith(" ") ? " " : "", mark(word || text, true));
    } else {
      // Marks hug the word: blanks and line ends around it stand outside of them.
      const [, before, word, after] = /^([ \n]*)([^]*?)([ \n]*)$/.exec(text) ?? [];
      const alone = !word && MARKED.has(part.status);
      if (!alone) token.append(document.createTextNode(before));
      if (word || alone || !text) token.append(mark(word || text, alone));
      if (alone && before.includes("\n")) token.append(document.createTextNode(before));
      if (after) token.append(document.createTextNode(after));
    }
    const named = fill(this.#words.token_label, { status: this.#words.status[part.status] ?? part.status });
    token.setAttribute("aria-roledescription", named);
    this.#tokens.set(token, { step, piece: part });
    return token;
  }
}

/** @param {string} text @param {boolean} discarded */
function mark(text, discarded) {
  const inner = el("span", { class: "sd-mark" });
  append(inner, discarded ? text.replaceAll("\n", "↵") : text);
  if (!text) inner.classList.add("sd-part");
  if (text && !text.trim()) inner.classList.add("sd-blank");
  return inner;
}

// ---- Token text on the page: characters that one cannot see stand there by their names, and a model's own mark of the end as a sign

/** Whether a token is a model's own mark of the end. @param {string} text */
export const isEnd = (text) => /^(<\|(im_end|endoftext|end_of_text|eot_id|end)\|>|<\/s>|<eos>|<end_of_turn>)$/.test(text);

/** Add a text to an element. @param {Element} element @param {string} text */
export function append(element, text) {
  if (isEnd(text)) {
    element.append(el("span", { class: "sd-name sd-end", title: text }, "■"));
    return;
  }
  for (const { text: part, name } of split(text)) element.append(name ? el("span", { class: "sd-name" }, name) : part);
}
