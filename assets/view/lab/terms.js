// The cost model's formulas with their numbers in them.

import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { el } from "../parts/dom.js";
import { bestTrees, trees } from "./model.js";

/**
 * @import { Words } from "../parts/page"
 * @import { Model, Priced, Setting } from "./types"
 * @typedef {string | Node} Part
 */

/**
 * Entries of a list of terms.
 *
 * set: { k, tree, budget }, the sizes that are chosen; model: see model.js; step: of the chosen chain; words: `terms` of the lab's
 * @param {Pick<Setting, "k" | "tree" | "budget">} how @param {Model} model @param {Priced} step @param {Words} words
 */
export function termsOf({ k, tree, budget }, model, step, words) {
  const { a, c, gain, overlapped } = model;
  const [A, C] = [two(a), two(c)];
  /** @param {Part[]} draft @param {Part[]} verify */
  const sides = (draft, verify) => (overlapped ? ["max(", ...draft, ", ", ...verify, ")"] : [...draft, " + ", ...verify]);
  /** @type {[string, Part[], Part[], string][]} */
  const rows = [
    [words.tokens, a === 1 ? ["k + 1"] : ["(1 − a", up("k + 1"), ") / (1 − a)"], a === 1 ? [`${k} + 1`] : [`(1 − ${A}`, up(k + 1), `) / (1 − ${A})`], two(step.tokens)],
    [words.cost, sides(["k c"], ["v(k + 1)"]), sides([`${k} · ${C}`], [two(step.verify)]), two(step.cost)],
    [words.speedup, [], [`${two(step.tokens)} / ${two(step.cost)}`], `${two(step.speedup)}×`],
  ];
  if (tree) {
    const { depth } = bestTrees(a, gain, budget)[budget];
    const one = trees({ ...model, overlapped: false }, budget)[budget];
    rows.push(
      [fill(words.tree_tokens, { nodes: budget }), [words.tree_formula], [], two(one.tokens)],
      [fill(words.tree_cost, { depth }), ["depth c + v(nodes + 1)"], [`${depth} · ${C} + ${two(one.verify)}`], two(one.cost)],
      [words.tree_speedup, [], [`${two(one.tokens)} / ${two(one.cost)}`], `${two(one.speedup)}×`],
    );
  }
  return rows.map(([name, symbols, numbers, result]) => el("div", { class: "sd-term" },
    el("dt", {}, name),
    el("dd", {}, ...[symbols, numbers].filter((part) => part.length).flatMap((part) => [el("span", { class: "sd-lab-formula" }, ...part), " = "]), el("b", {}, result))));
}

/** @param {string | number} text */
const up = (text) => el("sup", {}, String(text));
