// The page where no other is around the parts: in a file that was saved, and on a site without Gradio.

import { el } from "../parts/dom.js";

/** Title, sentence and the switch between light and dark; fills `main` of the document. */
export function frame(words, ...parts) {
  const { body } = document;
  body.classList.add("sd-site");
  body.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  const title = el("h1");
  title.textContent = words.title;
  const sentence = el("p");
  sentence.textContent = words.subtitle;
  const theme = el("button", { type: "button", class: "sd-button", onclick: () => body.classList.toggle("dark") });
  theme.textContent = words.theme;
  const header = el("header", { class: "sd-site-header" }, el("div", { class: "sd-title" }, title, sentence), theme);
  document.querySelector("main")?.replaceChildren(header, ...parts);
}

/**
 * Run a large script after the first words are there; its address, or its text.
 *
 * @param {{ src?: string, text?: string }} script
 */
export function later({ src, text = "" }) {
  const script = el("script", { src });
  script.textContent = text;
  setTimeout(() => document.head.append(script), 500);
}

/** What the page was given under a name, as a JSON text in its HTML. */
export const given = (name) => JSON.parse(document.getElementById(name)?.textContent ?? "null");
