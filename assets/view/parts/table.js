// A table of which each row begins with its name, and tables whose rows are cards on a phone.

import { el } from "./dom.js";

/**
 * @import { Attributes } from "./page"
 * @typedef {string | Node} Cell
 */

/** heads: none for a table without a head. @param {Cell[]} heads @param {Cell[][]} rows @param {Attributes} [attributes] */
export function table(heads, rows, attributes = {}) {
  const head = heads.length ? [el("thead", {}, el("tr", {}, ...heads.map((cell) => el("th", { scope: "col" }, cell))))] : [];
  const body = rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name), ...cells.map((cell) => el("td", {}, cell))));
  return el("table", attributes, ...head, el("tbody", {}, ...body));
}

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
