// The keys of the page beside the player's: P, ? and Esc, and the list of all of them.

import { dialog } from "../parts/dialog.js";
import { el } from "../parts/dom.js";

const WRITING = "input:not([type=range], [type=checkbox]), textarea, select, [contenteditable]";

/** Listen for the keys; an open dialog and the presenter mode keep Esc for themselves. */
export function listen({ presenter, list }) {
  globalThis.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (document.querySelector("dialog[open]")) event.stopPropagation(); // the browser closes it
      else if (presenter.on) {
        event.preventDefault();
        presenter.set(false);
      }
      return;
    }
    const modified = event.ctrlKey || event.metaKey || event.altKey;
    if (modified || /** @type {Element} */ (event.target).closest?.(WRITING) || document.querySelector("dialog[open]")) return;
    if (event.key === "?") list.showModal();
    else if (event.key.toLowerCase() === "p" && !event.shiftKey) presenter.toggle();
    else return;
    event.preventDefault();
  }, { capture: true });
}

/** The dialog that lists the keys. words.rows: [keys, what they do] each */
export function keysDialog(words, close) {
  const rows = words.rows.map(([keys, what]) => {
    const name = el("dt");
    for (const key of keys.split(" ")) {
      const cap = el("kbd");
      cap.textContent = key;
      name.append(cap);
    }
    const says = el("dd");
    says.textContent = what;
    return [name, says];
  });
  const note = el("p", { class: "sd-dialog-note" });
  note.textContent = words.note;
  return dialog("keys", words.title, close, el("dl", { class: "sd-keys" }, ...rows.flat()), note);
}
