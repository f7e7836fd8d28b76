// Speedup over plain decoding so far: measured, foreseen by the cost model, and the bound of drafting ahead.

import { speedup as speedupOf, speedupCurve, two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { overlapBound, predictedCurve } from "../../core/series.js";
import { Pen } from "../pen.js";
import { indices, nothing, overSteps, pick } from "./steps.js";

/** @import { FigureOf, Look } from "../figure" */
/** @typedef {{ step: number, seconds: number, speedup: number }[]} Curve */

/** How each series looks, in the chart and in its key. @type {Record<string, Look>} */
const LOOKS = {
  speedup: { shape: "line", colour: "accepted", width: 2.5 },
  predicted: { shape: "line", colour: "correction", width: 2, dash: "2px,3px" },
  bound: { shape: "line", colour: "bonus", width: 2, dash: "8px,3px,2px,3px" },
};

/** @type {FigureOf} */
export function speedup(run, words, colours) {
  const { plain, lane, state } = run;
  const points = speedupCurve(plain, lane);
  const predicted = predictedCurve(plain, lane);
  const bound = overlapBound(plain, lane);
  const names = pick(words, "speedup", ...(predicted.length ? ["predicted"] : []), ...(bound.length ? ["bound"] : []));
  const pen = new Pen(colours, LOOKS, names);
  /** @type {Record<string, Curve>} */
  const curves = { speedup: points, predicted, bound };
  const drawn = Object.keys(names).map((name) => pen.line(name, curves[name].map(run.x), curves[name].map((point) => point.speedup)));
  // The first steps jump about: they may leave the frame, the rest may not.
  const settled = Object.values(curves).flatMap((curve) => curve.slice(Math.min(3, curve.length - 1)).map((point) => point.speedup));
  const top = 1.12 * Math.max(2, ...settled);
  /** @param {Curve} curve */
  const by = (curve) => new Map(curve.map((point) => [point.step, point]));
  const [measured, foreseen, bounds] = [by(points), by(predicted), by(bound)];
  const all = run.steps.filter(({ index }) => measured.has(index) || foreseen.has(index));
  /** @param {Curve[number] | undefined} point @param {string} sentence */
  const hover = (point, sentence) => (point ? fill(sentence, { ...point, seconds: two(point.seconds), speedup: two(point.speedup) }) : "");
  const texts = all.map(({ index }) => [
    hover(measured.get(index), words.speedup_hover), hover(foreseen.get(index), words.predicted_hover), hover(bounds.get(index), words.bound_hover),
  ].filter(Boolean).join("<br>"));
  const here = all.map((step) => run.x({ step: step.index, seconds: step.elapsed }));
  const heights = all.map(({ index }) => (measured.get(index) ?? foreseen.get(index))?.speedup ?? null);
  /** @param {Curve} curve */
  const last = (curve) => two(curve.at(-1)?.speedup);
  return {
    ...overSteps(run, words, { empty: points.length ? "" : state.source.kind === "live" && state.lane === "plain" && !plain?.end ? words.wait_plain : plain ? nothing(run, words) : words.no_plain }),
    looks: LOOKS,
    names,
    traces: [...drawn, pen.hover(here, heights, texts, indices(all))],
    y: { title: words.times, range: [0, top], dtick: [0.5, 1, 2, 5, 10].find((gap) => top <= 5 * gap) ?? 20 },
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: colours.ink, width: 1, dash: "dash" } }],
    annotations: [{
      xref: "paper", x: 1, y: 1, xanchor: "right", yanchor: Number(points.at(-1)?.speedup) < 1 ? "bottom" : "top", showarrow: false,
      text: words.even, font: { color: colours.soft },
    }],
    label: fill(words.speedup_label, { speedup: two(speedupOf(plain, lane)), predicted: last(predicted), bound: last(bound) }),
    table: () => ({
      heads: [words.table_step, ...Object.values(names)],
      rows: all.map(({ index }) => [index + 1, two(measured.get(index)?.speedup), ...(predicted.length ? [two(foreseen.get(index)?.speedup)] : []), ...(bound.length ? [two(bounds.get(index)?.speedup)] : [])]),
    }),
  };
}
