// A step's tokens in a grid: a chain is one line, a tree has a line more for each further sibling.

import { isTree, layout } from "../core/tree.js";
import { spell } from "../core/symbols.js";
import { el } from "./dom.js";

/**
 * @import { Node, Step } from "../core/state"
 * @typedef {{ index: number, token: Node, column: number, row: number, below: boolean }} Spot
 *   index: among the step's nodes, -1 for the target's own; below: whether it hangs under a sibling
 */

/** Where each token of a step stands, the target's own behind what was kept. @param {Step} step @returns {Spot[]} */
export function spots(step) {
  const places = isTree(step.nodes) ? layout(step).places : inLine(step);
  return places.map(({ index, column, row, from }) => ({
    index, column, row, token: /** @type {Node} */ (index < 0 ? step.next : step.nodes[index]), below: row !== (from?.row ?? 0),
  }));
}

/** @param {Step} step */
const inLine = ({ nodes, next }) => [...nodes.keys(), ...(next ? [-1] : [])].map((index, column) => ({ index, column, row: 0, from: null }));

/** @param {string} text @param {string} status @param {string} title */
export const chip = (text, status, title) =>
  el("span", { class: `sd-token sd-${status}`, title }, el("span", { class: "sd-mark" }, spell(text.trim() ? text.trim() : text) || "·"));

/** Put an element of a grid where a token stands. @template {HTMLElement} Element @param {Element} element @param {Spot} spot */
export function place(element, { column, row, below }) {
  element.classList.toggle("sd-chip-below", below);
  element.style.gridColumn = String(column + 1);
  element.style.gridRow = String(row + 1);
  return element;
}
