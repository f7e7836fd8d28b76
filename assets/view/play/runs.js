// The menu of recorded runs: it names the one that is shown, and choosing one sends its name.

import { el } from "../parts/dom.js";

/**
 * @import { Words } from "../parts/page"
 * @import { Mounted } from "./view"
 */

/**
 * Draw the menu in `element`; words.runs lists [name, title, prompt, method].
 * @param {HTMLElement} element @param {{ send(name: string): void, words: Words }} how
 */
export function mountRuns(element, { send, words }) {
  const menu = el("select", { class: "sd-runs", "aria-label": words.label });
  menu.append(el("option", { value: "" }, words.label), ...words.runs.map(([value, title, prompt, method]) => el("option", { value, "data-prompt": prompt, "data-method": method }, title)));
  menu.addEventListener("change", () => menu.value && send(menu.value));
  document.addEventListener("specdemo-shown", (event) => {
    menu.value = /** @type {CustomEvent<string>} */ (event).detail;
    if (menu.selectedIndex < 0) menu.value = "";
  });
  document.addEventListener("input", (event) => {
    const box = event.target instanceof HTMLTextAreaElement && event.target.closest("#sd-prompt") ? event.target : null;
    if (box) ask(box.value);
  });
  element.replaceChildren(menu);
}

/** An example was chosen: its recording is played; without one, what is shown is no longer its answer. @param {string} prompt */
export function example(prompt) {
  const menu = /** @type {HTMLSelectElement | null} */ (document.querySelector("#sd-runs select"));
  const recorded = [...menu?.options ?? []].filter((option) => option.dataset.prompt === prompt);
  const [chosen] = [...recorded.filter((option) => option.dataset.method !== "nothing"), ...recorded];
  if (!menu || !chosen) return ask(prompt);
  menu.value = chosen.value;
  menu.dispatchEvent(new Event("change"));
}

/** Another question is asked than the one that is answered. @param {string} prompt */
export function ask(prompt) {
  const mounted = /** @type {Mounted | null} */ (document.querySelector("#sd-view .sd-mount"));
  mounted?.view?.ask(prompt);
}
