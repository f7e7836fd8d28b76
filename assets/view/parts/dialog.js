// A native dialog with a heading and a button to close it; the browser keeps the focus inside, and Esc closes it.

import { el } from "./dom.js";

/**
 * The dialog, not yet shown nor in the page. name: its own among dialogs; close: the label of its button
 * @param {string} name @param {string} title @param {string} close @param {...Node} children
 */
export function dialog(name, title, close, ...children) {
  const id = `sd-dialog-${name}`;
  const heading = el("h2", { id }, title);
  const button = el("button", { type: "button", class: "sd-dialog-close", "aria-label": close, title: close }, "\u00d7");
  const root = el("dialog", { class: "sd-dialog", "aria-labelledby": id }, el("header", {}, heading, button), ...children);
  button.addEventListener("click", () => root.close());
  root.addEventListener("click", (event) => event.target === root && root.close()); // the backdrop
  return root;
}
