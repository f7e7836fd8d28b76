// What the charts of a run have in common: their horizontal axis, and sums over their values.

export const RECENT = 8; // steps that a rate of late is measured over

// Of charts over steps or seconds; more: instead of it.
export const overSteps = (run, words, more = {}) => ({
  x: { title: words.across[run.axis], range: run.range },
  shared: true,
  empty: run.steps.length ? "" : words.no_steps,
  place: (i) => (i in run.starts ? [run.starts[i], run.ends[i]] : null),
  ...more,
});

export const pick = (words, ...names) => Object.fromEntries(names.map((name) => [name, words[name]]));
export const zeros = (items) => items.map(() => 0);
export const indices = (steps) => steps.map((step) => step.index);
export const middles = ({ starts, ends }) => starts.map((start, i) => (start + ends[i]) / 2);
export const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

/** Where a vertical axis ends: at the largest value, but a rare one may leave the frame if it would press down the rest. */
export function ceiling(values, least) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!sorted.length) return least;
  const usual = sorted[Math.floor(0.95 * (sorted.length - 1))];
  return Math.max(Math.min(sorted.at(-1), 1.6 * usual), least);
}
