// What the charts of a run have in common: their horizontal axis, and sums over their values.

/**
 * @import { Figure, Run, Spans } from "../figure"
 * @import { Words } from "../../parts/page"
 */

export const RECENT = 8; // steps that a rate of late is measured over

// Of charts over steps or seconds; more: instead of it.
/** @param {Run} run @param {Words} words @param {Partial<Figure>} [more] @returns {Pick<Figure, "x" | "shared" | "empty" | "place">} */
export const overSteps = (run, words, more = {}) => ({
  x: { title: words.across[run.axis], range: run.range },
  shared: true,
  empty: run.steps.length ? "" : nothing(run, words),
  place: (i) => (i in run.starts ? [run.starts[i], run.ends[i]] : null),
  ...more,
});

/** Why there are no drafts to show: none so far, or none at all. @param {Run} run @param {Words} words @returns {string} */
export const nothing = ({ lane, plain }, words) => ((lane ?? plain)?.end ? words.none_drafted : words.no_steps);

/** @param {Words} words @param {...string} names */
export const pick = (words, ...names) => Object.fromEntries(names.map((name) => [name, words[name]]));
/** @param {readonly unknown[]} items */
export const zeros = (items) => items.map(() => 0);
/** @param {{ index: number }[]} steps */
export const indices = (steps) => steps.map((step) => step.index);
/** @param {Spans} spans */
export const middles = ({ starts, ends }) => starts.map((start, i) => (start + ends[i]) / 2);
/** @param {number[]} values */
export const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

/**
 * Where a vertical axis ends: at the largest value, but a rare one may leave the frame if it would press down the rest.
 * @param {(number | null)[]} values @param {number} least
 */
export function ceiling(values, least) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!sorted.length) return least;
  const usual = sorted[Math.floor(0.95 * (sorted.length - 1))];
  return Math.max(Math.min(sorted[sorted.length - 1], 1.6 * usual), least);
}
