// Blocks that several tabs use: what went wrong, a dialog, the head of a tab, the legend, tables.

import { el, setText } from "./dom.js";

/**
 * @import { Problem } from "../core/state"
 * @import { Attributes, Words } from "./page"
 * @typedef {string | Node} Cell
 */

// ---- What went wrong: what happened, what is unharmed, what to do

const PARTS = /** @type {const} */ ({ message: "strong", unharmed: "span", advice: "span" });

export function problemBlock(/** @type {Partial<Problem>} */ problem) {
  const parts = /** @type {(keyof typeof PARTS)[]} */ (Object.keys(PARTS)).filter((name) => problem[name]);
  return el("div", { class: "sd-problem", role: "alert" }, ...parts.map((name) => el(PARTS[name], { class: `sd-problem-${name}` }, problem[name] ?? "")));
}

// ---- A native dialog with a heading and a button to close it; the browser keeps the focus inside, and Esc closes it

/**
 * The dialog, not yet shown nor in the page. name: its own among dialogs; close: the label of its button
 * @param {string} name @param {string} title @param {string} close @param {...Node} children
 */
export function dialog(name, title, close, ...children) {
  const id = `sd-dialog-${name}`;
  const heading = el("h2", { id }, title);
  const button = el("button", { type: "button", class: "sd-dialog-close", "aria-label": close, title: close, onclick: () => root.close() }, "\u00d7");
  const root = el("dialog", { class: "sd-dialog", "aria-labelledby": id }, el("header", {}, heading, button), ...children);
  root.addEventListener("click", (event) => event.target === root && root.close()); // the backdrop
  return root;
}

// ---- The head of a tab: where its numbers come from, what is going on, what ran where, and the prompt

export class Head {
  constructor() {
    this.badge = el("span", { class: "sd-badge" });
    this.phase = el("span", { class: "sd-race-phase sd-waits", role: "status" });
    this.about = el("span", { class: "sd-about" });
    this.root = el("div", { class: "sd-race-status" }, this.badge, this.phase, this.about);
    this.prompt = el("p", { class: "sd-asked" });
  }

  /** kind: of the source, named by badge. @param {Record<"kind" | "badge" | "phase" | "about" | "prompt", string>} shown */
  render({ kind, badge, phase, about, prompt }) {
    setText(this.badge, badge);
    this.badge.className = `sd-badge sd-badge-${kind}`;
    setText(this.phase, phase);
    setText(this.about, about);
    setText(this.prompt, prompt);
    this.prompt.hidden = !prompt;
  }
}

// ---- The legend: one sentence about the marks of the text, each shown as it looks

const STATES = ["accepted", "rejected", "correction", "unreached", "bonus"];

/** words: the view's */
export class Legend {
  #entries;
  #words;

  constructor(/** @type {Words} */ words) {
    this.#words = words;
    this.#entries = STATES.map((status) => {
      const [mark, means] = words.marks[status];
      const sample = el("span", { class: `sd-token sd-${status}` }, el("span", { class: "sd-mark" }, mark));
      return { status, item: el("li", { title: words.meaning[status] }, sample, ` ${means}`) };
    });
    this.root = el("ul", { class: "sd-legend", "aria-label": words.legend }, ...this.#entries.map(({ item }) => item));
  }

  /** Explain the states of a method that may change the text, or of the others. @param {{ lossy: boolean }} how */
  explain({ lossy }) {
    for (const { status, item } of this.#entries) item.title = (lossy && this.#words.explain_lossy[status]) || this.#words.meaning[status];
  }
}

/** The mark of a method that may change the text, behind its name; nothing behind another's. @param {boolean | undefined} lossy @param {Words} words */
export const lossyMark = (lossy, words) => (lossy ? [" ", el("span", { class: "sd-lossy" }, words.lossy)] : []);

// ---- A table of which each row begins with its name, and tables whose rows are cards on a phone

/** heads: none for a table without a head. A content that is a cell already stays as it is. @param {Cell[]} heads @param {Cell[][]} rows @param {Attributes} [attributes] */
export function table(heads, rows, attributes = {}) {
  const head = heads.map((content) => asCell("th", { scope: "col" }, content));
  const body = rows.map(([name, ...contents]) => el("tr", {}, asCell("th", { scope: "row" }, name), ...contents.map((content) => asCell("td", {}, content))));
  return el("table", attributes, heads.length ? el("thead", {}, el("tr", {}, ...head)) : null, el("tbody", {}, ...body));
}

/** @param {"th" | "td"} tag @param {Attributes} attributes @param {Cell} content */
const asCell = (tag, attributes, content) => (typeof content !== "string" && /^T[HD]$/.test(content.nodeName) ? content : el(tag, attributes, content));

/**
 * Let a table's rows be cards where the page is narrow: each cell names its column, and the roles stay those of a table,
 * which a browser forgets when the style sheet lays its rows out anew.
 * @param {HTMLElement} whole the table
 */
export function stackable(whole) {
  whole.classList.add("sd-stackable");
  whole.setAttribute("role", "table");
  for (const group of whole.querySelectorAll("thead, tbody")) group.setAttribute("role", "rowgroup");
  const heads = [...whole.querySelectorAll("thead th")].map((head) => head.textContent ?? "");
  for (const row of whole.querySelectorAll("tr")) {
    row.setAttribute("role", "row");
    [...row.children].forEach((cell, i) => {
      cell.setAttribute("role", { col: "columnheader", row: "rowheader" }[cell.getAttribute("scope") ?? ""] ?? "cell");
      if (cell.tagName === "TD") cell.setAttribute("data-head", heads[i] ?? "");
    });
  }
  return whole;
}
