// How answers are read off a run.

import { acceptRate, speedup, two } from "../../core/metrics.js";

export const PERCENT = { min: 0, max: 100, step: 1 };
export const SAME = 0.03; // speedups and shares that are nearer than this are called the same

/** Seconds of a target pass of so many rows, as measured when the pair was loaded; between two measured counts on their line. */
export function passSeconds(header, rows) {
  const costs = header.verify_costs ?? [];
  const after = costs.find(([count_]) => count_ >= rows);
  const before = costs.findLast(([count_]) => count_ <= rows);
  if (!after || !before) return NaN;
  if (after === before) return after[1];
  const part = (rows - before[0]) / (after[0] - before[0]);
  return before[1] + part * (after[1] - before[1]);
}

export const judgedSteps = (lane) => lane.steps.filter((step) => !step.open);
export const count = (items, wanted) => items.filter(wanted).length;
export const has = (step, status) => step.nodes.some((node) => node.status === status);

export const tokenIds = (lane) =>
  lane.steps.flatMap((step) => [...step.path.map((node) => step.nodes[node].token_id), ...(step.next ? [step.next.token_id] : [])]);

export const compared = (ratio) => (ratio > 1 + SAME ? "faster" : ratio < 1 - SAME ? "slower" : "same");

// Whether a kept token had a refused sibling that was tested before it.
export const sidestepped = ({ nodes, path }) =>
  path.some((kept) => nodes.some((node, i) => i < kept && node.parent === nodes[kept].parent && node.status === "rejected"));

export const compareRuns = (names, runs, each, marked) =>
  runs.map(({ plain, fast }, i) => ({
    option: names[i],
    values: { milliseconds: two(each[i]), accepted: two(100 * acceptRate(fast)), speedup: two(speedup(plain, fast)) },
    share: each[i] / Math.max(...each),
    marked: i === marked,
  }));
