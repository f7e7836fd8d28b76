// The note under the menu of methods: a sentence or more, each of a kind that has its own look.

import { el } from "../parts/dom.js";

/** Draw the note in `element`; `read()` gives it as JSON, a list of [kind, sentence], `watch(call)` tells of changes. */
export function mountNote(element, { read, watch }) {
  const note = el("div", { class: "sd-note", "aria-live": "polite" });
  element.replaceChildren(note);
  const draw = () => {
    note.replaceChildren(...JSON.parse(read() || "[]").map(([kind, sentence]) => {
      const paragraph = el("p", { class: `sd-note-${kind}` });
      paragraph.textContent = sentence;
      return paragraph;
    }));
  };
  watch(draw);
  draw();
}
