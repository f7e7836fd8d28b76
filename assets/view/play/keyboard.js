// The keys of the view: those of the player and of the run, wherever the focus is that does not want them itself.

import { closest } from "../parts/dom.js";

/** @import { Transport } from "../parts/transport" */

// What has the focus wants all keys, or those that press a button.
const TYPING = "input, textarea, select, [role=slider], [role=listbox], [role=menu], [role=combobox], [contenteditable]";
const TABS = "[role=tab]"; // walked with the arrows
const PRESSED = "button, a, summary";

/**
 * Take a key of the page. root: the view's element; transport: its player's; unpin(): takes off what is pinned, returns whether something was
 * @param {KeyboardEvent} event @param {{ root: HTMLElement, transport: Transport, unpin(): boolean }} how
 */
export function takeKey(event, { root, transport, unpin }) {
  if (event.defaultPrevented) return;
  if (event.key === "Escape" && event.target === document.body && unpin()) return;
  runKeys(event);
  if (!root.getClientRects().length || closest(event.target, TYPING)) return;
  if (event.key.startsWith("Arrow") && closest(event.target, TABS)) return;
  if ((event.key === " " || event.key === "Enter") && closest(event.target, PRESSED)) return;
  transport.key(event);
}

/** @param {KeyboardEvent} event */
function runKeys(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    // The prompt's last keys reach the server with the change event that leaving the box fires.
    setTimeout(() => document.getElementById("sd-run")?.click(), 0);
  }
  if (event.key === "Escape") document.getElementById("sd-stop")?.click();
}
