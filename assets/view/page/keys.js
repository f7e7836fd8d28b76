// The keys of the page beside the player's: P, ? and Esc, and the list of all of them.

import { dialog } from "../parts/dialog.js";
import { closest, el } from "../parts/dom.js";

/**
 * @import { Words } from "../parts/page"
 * @import { Presenter } from "./presenter"
 */

const WRITING = "input:not([type=range], [type=checkbox]), textarea, select, [contenteditable]";

/**
 * Listen for the keys; an open dialog and the presenter mode keep Esc for themselves.
 * @param {{ presenter: Presenter, list: HTMLDialogElement }} how
 */
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
    if (modified || closest(event.target, WRITING) || document.querySelector("dialog[open]")) return;
    if (event.key === "?") list.showModal();
    else if (event.key.toLowerCase() === "p" && !event.shiftKey) presenter.toggle();
    else return;
    event.preventDefault();
  }, { capture: true });
}

/** The dialog that lists the keys. words.rows: [keys, what they do] each @param {Words} words @param {string} close */
export function keysDialog(words, close) {
  const rows = words.rows.map(([keys, what]) => {
    return [el("dt", {}, ...keys.split(" ").map((key) => el("kbd", {}, key))), el("dd", {}, what)];
  });
  const note = el("p", { class: "sd-dialog-note" }, words.note);
  return dialog("keys", words.title, close, el("dl", { class: "sd-keys" }, ...rows.flat()), note);
}
