// Tokens a second: so far, over the last steps, and of the plain run beside it.

import { tokensPerSecond, two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { plainRates, rateCurve } from "../../core/series.js";
import { Pen } from "../pen.js";
import { RECENT, ceiling, indices, nothing, overSteps } from "./steps.js";

/** @import { FigureOf, Look, Run } from "../figure" */

/** How each series looks, in the chart and in its key. @type {Record<string, Look>} */
const LOOKS = {
  fast: { shape: "line", colour: "accepted", width: 2.5 },
  recent: { shape: "line", colour: "drafted", width: 1.5, dash: "1px,2px" },
  plain: { shape: "line", colour: "ink", width: 1.5, dash: "6px,3px" },
};

/** @type {FigureOf} */
export function rate(run, words, colours) {
  const points = rateCurve(run.lane, RECENT);
  const names = { fast: words.fast, recent: fill(words.recent, { count: RECENT }), plain: words.plain };
  const pen = new Pen(colours, LOOKS, names);
  const soFar = points.map((point) => point.soFar);
  const recent = points.map((point) => point.recent);
  const beside = plainRates(run.plain, run.lane);
  const alone = plainCurve(run, points, beside);
  const texts = points.map((point, i) => fill(words.rate_hover, {
    step: point.step + 1, fast: two(point.soFar), recent: two(point.recent), plain: two(beside[i]), count: RECENT,
  }));
  return {
    ...overSteps(run, words, { empty: run.plain ? "" : nothing(run, words) }),
    looks: LOOKS,
    names,
    traces: [
      pen.line("recent", points.map(run.x), recent),
      pen.line("plain", alone.map(({ x }) => x), alone.map(({ rate: value }) => value)),
      pen.line("fast", points.map(run.x), soFar),
      pen.hover(points.map(run.x), soFar, texts, indices(run.steps)),
    ],
    y: { title: words.rate_unit, range: [0, 1.12 * ceiling([...soFar, ...recent, ...alone.map((point) => point.rate)], 1)], nticks: 5 },
    label: fill(words.rate_label, { fast: two(tokensPerSecond(run.lane)), plain: two(tokensPerSecond(run.plain)) }),
    table: () => ({
      heads: [words.table_step, ...Object.values(names)],
      rows: points.map((point, i) => [point.step + 1, two(point.soFar), two(point.recent), two(beside[i])]),
    }),
  };
}

// The plain run on its own clock; on an axis of steps, at the tokens that the other run's steps end with.
/** @param {Run} run @param {{ step: number, seconds: number }[]} points @param {(number | null)[]} beside */
function plainCurve(run, points, beside) {
  if (run.axis === "steps" && points.length) return points.map((point, i) => ({ x: run.x(point), rate: beside[i] }));
  return rateCurve(run.plain, RECENT).map((point) => ({ x: run.x(point), rate: point.soFar })).filter(({ x }) => x <= run.range[1]);
}
