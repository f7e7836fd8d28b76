// Per step: how deep was allowed, how deep was drafted, what was kept, and how deep would have been best.

import { two } from "../../core/metrics.js";
import { reasonText } from "../../core/reasons.js";
import { fill } from "../../core/sentence.js";
import { oracle } from "../../core/series.js";
import { depthOf, isTree } from "../../core/tree.js";
import { Pen, escapeMarkup } from "../pen.js";
import { indices, mean, middles, overSteps, pick, zeros } from "./steps.js";

/**
 * @import { FigureOf, Look } from "../figure"
 * @import { Words } from "../../parts/page"
 * @import { JudgedStep } from "../../core/state"
 */

/** How each series looks, in the chart and in its key. @type {Record<string, Look>} */
const LOOKS = {
  accepted: { shape: "bar", colour: "accepted" },
  not_accepted: { shape: "hatch", colour: "rejected" },
  allowed: { shape: "line", colour: "ink", width: 1.5 },
  oracle: { shape: "caps", colour: "correction", width: 2.5 },
};

const LINE = 58; // letters of a line that the pointer reads

/** @type {FigureOf} */
export function lookahead(run, words, colours, methods) {
  const { steps } = run;
  const names = pick(words, "accepted", "not_accepted", "allowed", "oracle");
  const pen = new Pen(colours, LOOKS, names);
  const kept = steps.map((step) => step.path.length);
  const deep = steps.map((step) => depthOf(step.nodes));
  const allowed = steps.map((step) => step.lookahead);
  const best = steps.map(oracle);
  const top = Math.max(4, ...deep, ...allowed);
  const texts = steps.map((step, i) => lookaheadText(step, deep[i], best[i], words, methods));
  return {
    ...overSteps(run, words),
    looks: LOOKS,
    names,
    traces: [
      pen.bars("accepted", run, zeros(steps), kept),
      pen.bars("not_accepted", run, kept, deep),
      pen.level("allowed", run, allowed),
      pen.caps("oracle", run, best.map((one) => one?.depth ?? null), best.map((one) => one && !one.exact), 0.024 * top),
      pen.hover(middles(run), deep, texts, indices(steps)),
    ],
    y: { title: words.tokens, range: [0, top * 1.1], dtick: tick(top) },
    label: fill(words.lookahead_label, { steps: steps.length, allowed: two(mean(allowed)), drafted: two(mean(deep)), accepted: two(mean(kept)) }),
    table: () => ({
      heads: [words.table_step, words.allowed, words.drafted, words.accepted, words.oracle_column, words.reason],
      rows: steps.map((step, i) => [
        step.index + 1, allowed[i], deep[i], kept[i],
        best[i] ? (best[i].exact ? best[i].depth : fill(words.at_least, best[i])) : "–", reasonText(step, words.reasons) || "–",
      ]),
    }),
  };
}

/** @param {JudgedStep} step @param {number} depth @param {ReturnType<typeof oracle>} best @param {Words} words @param {Words} methods */
function lookaheadText(step, depth, best, words, methods) {
  const counts = { step: step.index + 1, lookahead: step.lookahead, drafted: step.nodes.length, accepted: step.path.length, depth };
  const lines = [
    fill(isTree(step.nodes) ? words.tree_hover : words.lookahead_hover, counts),
    ...wrap(reasonText(step, words.reasons) || words.no_reason).map(escapeMarkup),
  ];
  if (step.source) lines.push(fill(words.source_hover, { source: escapeMarkup(methods[step.source] ?? step.source) }));
  if (best) lines.push(fill(best.exact ? words.oracle_exact : words.oracle_least, best));
  return lines.join("<br>");
}

/** @param {number} top */
const tick = (top) => (top > 8 ? 4 : 2);

/** A sentence in lines of at most about LINE letters. @param {string} sentence */
export function wrap(sentence) {
  const lines = [""];
  for (const word of sentence.split(" ")) {
    const last = lines.at(-1) ?? "";
    if (last && last.length + word.length > LINE) lines.push(word);
    else lines.push(`${lines.pop()} ${word}`.trimStart());
  }
  return lines;
}
