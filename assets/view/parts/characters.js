// Token text on the page: characters that one cannot see stand there by their names.

import { split } from "../core/symbols.js";
import { el } from "./dom.js";

/** Add a text to an element. @param {Element} element @param {string} text */
export function append(element, text) {
  for (const { text: part, name } of split(text)) element.append(name ? el("span", { class: "sd-name" }, name) : part);
}
