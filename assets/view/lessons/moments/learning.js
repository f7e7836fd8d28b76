// Whether a draft that learns is kept more often as it goes: shares of a run's parts, and whether its ends differ.

import { two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { judgedSteps } from "../../core/series.js";
import { el } from "../../parts/dom.js";
import { bar, bars } from "./pieces.js";

/**
 * @import { Lane } from "../../core/state"
 * @import { Moment } from "./moment"
 */

const PARTS = 5;

/**
 * Shares of drafted tokens that were kept, of as many parts of a run's steps: { from, to, kept, drafted, error }.
 * error: the share's standard error, from step to step, as the tokens of one draft are kept or lost together
 * @param {Lane} lane @param {number} parts
 */
export function shares(lane, parts) {
  const steps = judgedSteps(lane).filter(({ nodes }) => nodes.length);
  return Array.from({ length: parts }, (_, i) => {
    const part = steps.slice(Math.round((i * steps.length) / parts), Math.round(((i + 1) * steps.length) / parts));
    const kept = part.reduce((sum, { path }) => sum + path.length, 0);
    const drafted = part.reduce((sum, { nodes }) => sum + nodes.length, 0);
    const squares = part.reduce((sum, { path, nodes }) => sum + (path.length - (nodes.length * kept) / drafted) ** 2, 0);
    const error = Math.sqrt((squares * part.length) / Math.max(1, part.length - 1)) / drafted;
    return { from: part[0]?.index ?? 0, to: part.at(-1)?.index ?? 0, kept, drafted, error };
  });
}

/**
 * How a run's last part differs from its first: "rises", "falls", or "unclear" within two standard errors of the difference.
 * @typedef {{ kept: number, drafted: number, error: number }} Part
 * @param {Part} first @param {Part} last
 */
export function trend(first, last) {
  const difference = last.kept / last.drafted - first.kept / first.drafted;
  const bound = 2 * Math.hypot(first.error, last.error);
  const name = Math.abs(difference) <= bound ? "unclear" : difference > 0 ? "rises" : "falls";
  return { name, difference, bound };
}

/** @type {Moment} */
export const learning = {
  runs: ["15-online"],
  show([{ fast: recorded }], { words, last, from }) {
    const own = last?.fast?.header.method === "online" && last.fast.steps.length >= 2 * PARTS ? last.fast : null;
    from(own ? "measured" : "recorded");
    const all = shares(own ?? recorded, PARTS);
    const rows = all.map(({ from: first, to, kept, drafted }) => {
      const row = bar();
      row.show(fill(words.part, { from: first + 1, to: to + 1, kept, drafted, percent: two((100 * kept) / drafted) }), kept / drafted);
      return row;
    });
    const [early, late] = [all[0], all[PARTS - 1]].map(({ kept, drafted }) => kept / drafted);
    const { name, bound } = trend(all[0], all[PARTS - 1]);
    const told = fill(words[name], { early: two(100 * early), late: two(100 * late), bound: two(100 * bound) });
    return [bars(...rows), el("p", { class: "sd-moment-told" }, told), el("p", {}, own ? words.own : words.recorded)];
  },
};
