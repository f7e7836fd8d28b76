// Share of drafted tokens that are kept, by their depth in the draft.

import { positions, two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { Pen } from "../pen.js";
import { nothing, pick, zeros } from "./steps.js";

/** @import { FigureOf, Look } from "../figure" */

/** How each series looks, in the chart and in its key. @type {Record<string, Look>} */
const LOOKS = {
  kept_tested: { shape: "line", colour: "accepted", width: 2, symbol: "circle" },
  kept_drafted: { shape: "dots", colour: "soft" },
};

/** @type {FigureOf} */
export function position(run, words, colours) {
  const places = positions(run.lane);
  const names = pick(words, "kept_tested", "kept_drafted");
  const pen = new Pen(colours, LOOKS, names);
  /** @param {number} part @param {number} whole */
  const share = (part, whole) => (whole ? (100 * part) / whole : null);
  const tested = places.map((place) => share(place.kept, place.tested));
  const drafted = places.map((place) => share(place.kept, place.drafted));
  const at = places.map((_, i) => i + 1);
  const texts = places.map((place, i) => fill(words.position_hover, {
    ...place, position: i + 1, tested_share: two(tested[i]), drafted_share: two(drafted[i]),
  }));
  const shares = at.map((place, i) => fill(words.position_share, { position: place, share: two(tested[i]) })).join(", ");
  return {
    looks: LOOKS,
    names,
    traces: [
      pen.bars("kept_drafted", { starts: at.map((x) => x - 0.4), ends: at.map((x) => x + 0.4) }, zeros(at), drafted),
      pen.line("kept_tested", at, tested, { cliponaxis: false }),
      pen.hover(at, tested, texts, at.map(() => null)),
    ],
    x: { title: words.across.position, range: [0.5, Math.max(8, places.length) + 0.5], dtick: places.length > 12 ? 2 : 1 },
    y: { title: words.share, range: [0, 105], dtick: 25 },
    empty: places.length ? "" : nothing(run, words),
    label: fill(words.position_label, { shares: shares || "–" }),
    table: () => ({
      heads: [words.position, words.drafted, words.tested, words.kept, `${words.kept_tested}, %`, `${words.kept_drafted}, %`],
      rows: places.map((place, i) => [i + 1, place.drafted, place.tested, place.kept, two(tested[i]), two(drafted[i])]),
    }),
    // As far as this step's draft was kept.
    place: (i) => (run.steps[i]?.path.length ? [0.5, run.steps[i].path.length + 0.5] : null),
  };
}
