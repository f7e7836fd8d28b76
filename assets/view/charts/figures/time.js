// Where the time of each step goes: draft, verify and the rest.

import { TIMES, two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { Pen } from "../pen.js";
import { ceiling, indices, middles, overSteps, zeros } from "./steps.js";

/**
 * @import { FigureOf, Look } from "../figure"
 * @import { JudgedStep } from "../../core/state"
 */

/** How each series looks, in the chart and in its key. @type {Record<string, Look>} */
const LOOKS = {
  draft: { shape: "hatch", colour: "drafted" },
  verify: { shape: "bar", colour: "soft" },
  overhead: { shape: "dots", colour: "ink" },
};

/** @type {FigureOf} */
export function time(run, words, colours) {
  const { steps, lane } = run;
  const all = Object.values(TIMES).reduce((sum, part) => sum + (lane?.[part] ?? 0), 0);
  const shares = Object.fromEntries(Object.entries(TIMES).map(([name, part]) => [name, lane && all ? two((100 * lane[part]) / all) : "–"]));
  const names = Object.fromEntries(Object.keys(TIMES).map((name) => [name, fill(words[name], { share: shares[name] })]));
  const pen = new Pen(colours, LOOKS, names);
  let tops = zeros(steps);
  const traces = Object.entries(TIMES).map(([name, part]) => {
    const bottoms = tops;
    tops = bottoms.map((bottom, i) => bottom + 1000 * steps[i][part]);
    return pen.bars(name, run, bottoms, tops);
  });
  /** @param {JudgedStep} step @param {number} sum */
  const row = (step, sum) => ({ total: two(sum), ...Object.fromEntries(Object.entries(TIMES).map(([name, part]) => [name, two(1000 * step[part])])) });
  const texts = steps.map((step, i) => fill(words.time_hover, { step: step.index + 1, ...row(step, tops[i]) }));
  return {
    ...overSteps(run, words),
    looks: LOOKS,
    names,
    note: fill(words.time_total, { steps: steps.length, seconds: two(all) }),
    traces: [...traces, pen.hover(middles(run), tops, texts, indices(steps))],
    y: { title: words.milliseconds, range: [0, 1.12 * ceiling(tops, 1)], nticks: 5 },
    label: fill(words.time_label, { ...shares, seconds: two(all), steps: steps.length }),
    table: () => ({
      heads: [words.table_step, ...Object.keys(TIMES).map((name) => `${words[`${name}_name`]}, ${words.milliseconds}`), `${words.total}, ${words.milliseconds}`],
      rows: [
        ...steps.map((step, i) => [step.index + 1, ...Object.values(TIMES).map((part) => two(1000 * step[part])), two(tops[i])]),
        [words.table_sum, ...Object.values(TIMES).map((part) => two(1000 * (lane?.[part] ?? 0))), two(1000 * all)],
      ],
    }),
  };
}
