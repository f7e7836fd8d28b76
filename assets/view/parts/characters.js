// Token text on the page: characters that one cannot see stand there by their names, and a model's own mark of the end as a sign.

import { split } from "../core/symbols.js";
import { el } from "./dom.js";

/** Whether a token is a model's own mark of the end. @param {string} text */
export const isEnd = (text) => /^(<\|(im_end|endoftext|end_of_text|eot_id|end)\|>|<\/s>|<eos>|<end_of_turn>)$/.test(text);

/** Add a text to an element. @param {Element} element @param {string} text */
export function append(element, text) {
  if (isEnd(text)) {
    element.append(el("span", { class: "sd-name sd-end", title: text }, "■"));
    return;
  }
  for (const { text: part, name } of split(text)) element.append(name ? el("span", { class: "sd-name" }, name) : part);
}
