// The menu of recorded runs: choosing one sends its name, and the menu is itself again.

import { el } from "../parts/dom.js";

/** Draw the menu in `element`; words.runs lists [name, title]. */
export function mountRuns(element, { send, words }) {
  const option = (value, text) => {
    const node = el("option", { value });
    node.textContent = text;
    return node;
  };
  const menu = el("select", { class: "sd-runs", "aria-label": words.label });
  menu.append(option("", words.label), ...words.runs.map(([name, title]) => option(name, title)));
  menu.addEventListener("change", () => {
    if (menu.value) send(menu.value);
    menu.value = "";
  });
  element.replaceChildren(menu);
}
