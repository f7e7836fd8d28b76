// The note under the menu of methods: a sentence or more, each of a kind that has its own look.

import { el, follow } from "../parts/dom.js";

/** @import { Given } from "../parts/page" */

/**
 * Draw the note in `element`; `read()` gives it as JSON, a list of [kind, sentence], `watch(call)` calls after each change.
 * @param {HTMLElement} element @param {Omit<Given, "words">} given
 */
export function mountNote(element, given) {
  const note = el("div", { class: "sd-note", "aria-live": "polite" });
  element.replaceChildren(note);
  /** @param {[string, string][]} parts */
  const draw = (parts) => note.replaceChildren(...parts.map(([kind, sentence]) => el("p", { class: `sd-note-${kind}` }, sentence)));
  follow(given, draw, "[]");
}
