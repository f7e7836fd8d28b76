// The menu of recorded runs: choosing one sends its name, and the menu is itself again.

import { el } from "../parts/dom.js";

/** @import { Words } from "../parts/page" */

/**
 * Draw the menu in `element`; words.runs lists [name, title].
 * @param {HTMLElement} element @param {{ send(name: string): void, words: Words }} how
 */
export function mountRuns(element, { send, words }) {
  const menu = el("select", { class: "sd-runs", "aria-label": words.label });
  menu.append(...[["", words.label], ...words.runs].map(([value, title]) => el("option", { value }, title)));
  menu.addEventListener("change", () => {
    if (menu.value) send(menu.value);
    menu.value = "";
  });
  element.replaceChildren(menu);
}
