// Tokens and milliseconds of each step: what the cost model foresaw, and what came.

import { two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { forecastSteps } from "../../core/series.js";
import { Pen } from "../pen.js";
import { ceiling, indices, mean, middles, nothing, overSteps } from "./steps.js";

/** @import { FigureOf, Look } from "../figure" */

/** How each series looks, in the chart and in its key. @type {Record<string, Look>} */
const LOOKS = {
  came: { shape: "line", colour: "accepted", width: 1.75 },
  foreseen: { shape: "line", colour: "correction", width: 2, dash: "2px,3px" },
};

/** @type {FigureOf} */
export function forecast(run, words, colours) {
  const steps = forecastSteps(run.lane);
  const origin = words.origin[run.state.source.kind];
  const names = { foreseen: words.foreseen, came: fill(words.came, { origin }) };
  const pen = new Pen(colours, LOOKS, names);
  /** @param {number | null} value */
  const scaled = (value) => (value === null ? null : 1000 * value);
  const tokens = steps.map((step) => step.tokens);
  const expected = steps.map((step) => step.expectedTokens);
  const took = steps.map((step) => 1000 * step.seconds);
  const planned = steps.map((step) => scaled(step.expectedSeconds));
  const known = steps.filter((step) => step.expectedTokens !== null);
  const texts = steps.map((step, i) => fill(words.forecast_hover, {
    step: step.step + 1, origin, tokens: tokens[i], expected_tokens: two(expected[i]), expected: two(planned[i]), measured: two(took[i]),
  }));
  const low = { yaxis: "y2", showlegend: false };
  /** @param {(step: typeof steps[number]) => number} read */
  const average = (read) => two(mean(known.map(read)));
  return {
    ...overSteps(run, words, { empty: known.length ? "" : steps.length ? words.no_forecast : nothing(run, words) }),
    looks: LOOKS,
    names,
    traces: [
      pen.level("came", run, tokens),
      pen.level("foreseen", run, expected),
      { ...pen.level("came", run, took), ...low },
      { ...pen.level("foreseen", run, planned), ...low },
      pen.hover(middles(run), tokens, texts, indices(run.steps)),
    ],
    y: { title: words.tokens, range: [0, 1.15 * Math.max(2, ...tokens, ...expected.map(Number))], nticks: 3 },
    y2: { title: words.milliseconds, range: [0, 1.15 * ceiling([...took, ...planned], 1)], nticks: 3 },
    label: fill(words.forecast_label, {
      expected_tokens: average((step) => step.expectedTokens ?? 0),
      tokens: average((step) => step.tokens),
      expected: average((step) => 1000 * (step.expectedSeconds ?? 0)),
      measured: average((step) => 1000 * step.seconds),
    }),
    table: () => ({
      heads: [words.table_step, ...words.forecast_columns],
      rows: steps.map((step, i) => [step.step + 1, two(expected[i]), tokens[i], two(planned[i]), two(took[i])]),
    }),
  };
}
