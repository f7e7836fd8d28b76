// The page where no other is around the parts: in a file that was saved, and on a site without Gradio.

import { button, el } from "../parts/dom.js";

/** @import { Words } from "../parts/page" */

/** Title and the switch between light and dark; fills `main` of the document. @param {Words} words @param {...Node} parts */
export function frame(words, ...parts) {
  const { body } = document;
  body.classList.add("sd-site");
  body.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  const theme = button(words.theme, () => body.classList.toggle("dark"));
  const title = el("div", { class: "sd-title" }, el("h1", {}, words.title));
  const header = el("header", { class: "sd-site-header" }, title, theme);
  document.querySelector("main")?.replaceChildren(header, ...parts);
}

/** What the page was given under a name, as a JSON text in its HTML. @param {string} name */
export const given = (name) => JSON.parse(document.getElementById(name)?.textContent ?? "null");
