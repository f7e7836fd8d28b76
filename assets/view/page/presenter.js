// What frames the page: the presenter mode, the keys and their list, and the drawer of settings.

import { dialog } from "../parts/blocks.js";
import { closest, el } from "../parts/dom.js";

/** @import { Words } from "../parts/page" */
const CLASS = "sd-presenter";

/** The element whose classes say how the page looks. It lies inside the part that Gradio's styles reach. */
export const pageRoot = () => /** @type {HTMLElement} */ (document.getElementById("sd-header")?.parentElement);

export class Presenter {
  /** changed(on): called after each change. @param {(on: boolean) => void} changed */
  constructor(changed) {
    this.changed = changed;
  }

  get on() {
    return pageRoot().classList.contains(CLASS);
  }

  set(/** @type {boolean} */ on) {
    if (on === this.on) return;
    pageRoot().classList.toggle(CLASS, on);
    globalThis.dispatchEvent(new Event("resize")); // charts take their new room
    this.changed(on);
  }

  toggle() {
    this.set(!this.on);
  }
}

// ---- The keys of the page beside the player's: P, ? and Esc, and the list of all of them

const WRITING = "input:not([type=range], [type=checkbox]), textarea, select, [contenteditable]";

/**
 * Listen for the keys; an open dialog and the presenter mode keep Esc for themselves.
 * @param {{ presenter: Presenter, list: HTMLDialogElement }} how
 */
export function listen({ presenter, list }) {
  globalThis.addEventListener("keydown", (event) => {
    // Gradio opens a menu at any key, a moment later: at Tab, after the focus has left it.
    if (event.key === "Tab" && closest(event.target, "[role=combobox]")) event.stopPropagation();
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

// ---- The drawer of settings: opened by its button, closed by it, by its own cross and by Esc

const OPEN = "sd-drawer-open";

/** Open the drawer, or close it. @param {{ label: string, close: string }} words */
export function turn(words) {
  const drawer = document.getElementById("sd-controls");
  if (!drawer) return;
  if (!drawer.querySelector(".sd-drawer-close")) furnish(drawer, words);
  set(!pageRoot().classList.contains(OPEN));
}

/** @param {HTMLElement} drawer @param {{ label: string, close: string }} words */
function furnish(drawer, { label, close }) {
  drawer.setAttribute("role", "region");
  drawer.setAttribute("aria-label", label);
  drawer.prepend(el("button", { type: "button", class: "sd-drawer-close sd-dialog-close", "aria-label": close, onclick: () => set(false) }, "\u00d7"));
  drawer.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.preventDefault();
    event.stopPropagation();
    set(false);
  });
}

function set(/** @type {boolean} */ open) {
  const top = document.getElementById("sd-view")?.getBoundingClientRect().top ?? 0;
  pageRoot().style.setProperty("--sd-drawer-top", `${Math.max(0, Math.round(top))}px`); // below the prompt and the method
  pageRoot().classList.toggle(OPEN, open);
  const button = document.getElementById("sd-settings");
  button?.setAttribute("aria-expanded", String(open));
  if (open) /** @type {HTMLElement | null} */ (document.querySelector("#sd-controls .sd-drawer-close"))?.focus();
  else button?.focus();
}
