// A table of which each row begins with its name.

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
