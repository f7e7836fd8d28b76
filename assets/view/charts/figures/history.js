// Accepted share run by run, for methods that learn from one run to the next.

import { two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { acceptanceHistory } from "../../core/series.js";
import { Pen } from "../pen.js";
import { pick } from "./steps.js";

/** @import { FigureOf, Look } from "../figure" */

/** How each series looks, in the chart and in its key. @type {Record<string, Look>} */
const LOOKS = {
  history: { shape: "line", colour: "accepted", width: 2, symbol: "circle" },
};

/** @type {FigureOf} */
export function history(run, words, colours) {
  const points = acceptanceHistory(run.lane);
  const names = pick(words, "history");
  const pen = new Pen(colours, LOOKS, names);
  const shares = points.map((point) => 100 * point.share);
  const texts = points.map((point) => fill(point.current ? words.history_now : words.history_hover, { run: point.run, share: two(100 * point.share) }));
  const at = points.map((point) => point.run);
  return {
    looks: LOOKS,
    names,
    traces: [
      pen.line("history", at, shares, { cliponaxis: false, marker: { size: points.map((point) => (point.current ? 10 : 6)), color: colours.accepted } }),
      pen.hover(at, shares, texts, at.map(() => null)),
    ],
    x: { title: words.across.run, range: [0.5, Math.max(6, points.length) + 0.5], dtick: points.length > 12 ? 5 : 1 },
    y: { title: words.share, range: [0, 100], dtick: 25 },
    empty: points.length ? "" : words.no_history,
    label: fill(words.history_label, { shares: shares.map((share) => `${two(share)} %`).join(", ") || "–" }),
    table: () => ({ heads: [words.run, words.share], rows: points.map((point, i) => [point.run, two(shares[i])]) }),
    place: () => null,
  };
}
