// The charts of a run by name: each takes a run as the charts read it and returns what Plotly draws. A new one goes into the table at the end.

import { reasonText } from "../core/decision.js";
import { TIMES, acceptanceHistory, disturbed, forecastSteps, judgedSteps, oracle, overlapBound, plainRates, positions, predictedCurve, rateCurve, speedup as speedupOf, speedupCurve, stepsKnown, tokensPerSecond, two } from "../core/metrics.js";
import { roundsKnown } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { depthOf, isTree } from "../core/tree.js";
import { Pen, escapeMarkup, evenLine } from "./pen.js";

/** @import { JudgedStep, State } from "../core/state" */
/** @import { Words } from "../parts/page" */
/** @import { Choice, Figure, FigureOf, Look, Reach, Run, Spans } from "./figure" */

// ---- A state as the charts read it: judged steps, and where each stands on the horizontal axis

/** @param {State} state @param {Choice["axis"]} axis @param {Reach} reach @returns {Run} */
export function readRun(state, axis, reach) {
  const { plain, speculative: lane } = state.lanes;
  const steps = judgedSteps(lane);
  const timed = axis === "seconds";
  return {
    state,
    plain,
    lane,
    axis,
    steps,
    starts: steps.map((step, i) => (timed ? (steps[i - 1]?.elapsed ?? 0) : step.index + 0.5)),
    ends: steps.map((step) => (timed ? step.elapsed : step.index + 1.5)),
    x: (point) => (timed ? point.seconds : point.step + 1),
    range: timed ? [0, reach.seconds * 1.01] : [0.4, reach.steps + 0.6],
  };
}

// ---- What the charts of a run have in common: their horizontal axis, and sums over their values

const RECENT = 8; // steps that a rate of late is measured over

// Of charts over steps or seconds; more: instead of it.
/** @param {Run} run @param {Words} words @param {Partial<Figure>} [more] @returns {Pick<Figure, "x" | "shared" | "empty" | "place">} */
const overSteps = (run, words, more = {}) => ({
  x: { title: words.across[run.axis], range: run.range },
  shared: true,
  empty: run.steps.length && run.lane && stepsKnown(run.lane) ? "" : nothing(run, words),
  place: (i) => (i in run.starts ? [run.starts[i], run.ends[i]] : null),
  ...more,
});

/** Why there are no drafts to show: none so far, none at all, or not known. @param {Run} run @param {Words} words @returns {string} */
const nothing = ({ lane, plain, state }, words) => ((lane ?? plain)?.end ? (lane && !roundsKnown(lane) ? words.not_reported : words.none_drafted) : state.source.kind === "live" ? words.at_end : words.no_steps);

/** @param {Words} words @param {...string} names */
const pick = (words, ...names) => Object.fromEntries(names.map((name) => [name, words[name]]));
const zeros = (/** @type {readonly unknown[]} */ items) => items.map(() => 0);
const indices = (/** @type {{ index: number }[]} */ steps) => steps.map((step) => step.index);
/** @param {Spans} spans */
const middles = ({ starts, ends }) => starts.map((start, i) => (start + ends[i]) / 2);
/** @param {number[]} values */
const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

/**
 * Where a vertical axis ends: at the largest value, but a rare one may leave the frame if it would press down the rest.
 * @param {(number | null)[]} values @param {number} least
 */
export function ceiling(values, least) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!sorted.length) return least;
  const usual = sorted[Math.floor(0.95 * (sorted.length - 1))];
  return Math.max(Math.min(sorted[sorted.length - 1], 1.6 * usual), least);
}

// ---- How the series of the charts look, by their names

/** @type {Record<string, Look>} */
const LOOKS = {
  accepted: { shape: "bar", colour: "accepted" },
  not_accepted: { shape: "hatch", colour: "rejected" },
  allowed: { shape: "line", colour: "ink", width: 1.5 },
  oracle: { shape: "caps", colour: "correction", width: 2.5 },
  fast: { shape: "line", colour: "accepted", width: 2.5 },
  recent: { shape: "line", colour: "drafted", width: 1.5, dash: "1px,2px" },
  plain: { shape: "line", colour: "ink", width: 1.5, dash: "6px,3px" },
  speedup: { shape: "line", colour: "accepted", width: 2.5 },
  predicted: { shape: "line", colour: "correction", width: 2, dash: "2px,3px" },
  bound: { shape: "line", colour: "bonus", width: 2, dash: "8px,3px,2px,3px" },
  kept_tested: { shape: "line", colour: "accepted", width: 2, symbol: "circle" },
  kept_drafted: { shape: "dots", colour: "soft" },
  draft: { shape: "hatch", colour: "drafted" },
  verify: { shape: "bar", colour: "soft" },
  overhead: { shape: "dots", colour: "ink" },
  came: { shape: "line", colour: "accepted", width: 1.75 },
  foreseen: { shape: "line", colour: "correction", width: 2, dash: "2px,3px" },
  history: { shape: "line", colour: "accepted", width: 2, symbol: "circle" },
};

// ---- Per step: how deep was allowed, how deep was drafted, what was kept, and how deep would have been best

const LINE = 58; // letters of a line that the pointer reads

/** @type {FigureOf} */
function lookahead(run, words, colours, methods) {
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

const tick = (/** @type {number} */ top) => (top > 8 ? 4 : 2);

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

// ---- Tokens a second: so far, over the last steps, and of the plain run beside it

/** @type {FigureOf} */
function rate(run, words, colours) {
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
    ...overSteps(run, words, { empty: run.lane || run.plain ? "" : nothing(run, words) }),
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

// ---- Speedup over plain decoding so far: measured, foreseen by the cost model, and the bound of drafting ahead

/** @typedef {{ step: number, seconds: number, speedup: number }[]} Curve */

/** @type {FigureOf} */
function speedup(run, words, colours) {
  const { plain, lane } = run;
  const points = speedupCurve(plain, lane);
  const predicted = predictedCurve(plain, lane);
  const bound = overlapBound(plain, lane);
  const names = pick(words, "speedup", ...(predicted.length ? ["predicted"] : []), ...(bound.length ? ["bound"] : []));
  const pen = new Pen(colours, LOOKS, names);
  /** @type {Record<string, Curve>} */
  const curves = { speedup: points, predicted, bound };
  const drawn = Object.keys(names).map((name) => pen.line(name, curves[name].map(run.x), curves[name].map((point) => point.speedup)));
  // What is measured sets the scale: predictions may leave the frame, and so may the first steps, which jump about.
  const scaled = points.length ? points : predicted;
  const top = 1.25 * Math.max(1.5, ...scaled.slice(Math.min(3, scaled.length - 1)).map((point) => point.speedup));
  const late = mean(points.slice(-Math.ceil(points.length / 3)).map((point) => point.speedup)); // where the words stand
  const by = (/** @type {Curve} */ curve) => new Map(curve.map((point) => [point.step, point]));
  const [measured, foreseen, bounds] = [by(points), by(predicted), by(bound)];
  const all = run.steps.filter(({ index }) => measured.has(index) || foreseen.has(index));
  /** @param {Curve[number] | undefined} point @param {string} sentence */
  const hover = (point, sentence) => (point ? fill(sentence, { ...point, seconds: two(point.seconds), speedup: two(point.speedup) }) : "");
  const texts = all.map(({ index }) => [
    hover(measured.get(index), words.speedup_hover), hover(foreseen.get(index), words.predicted_hover), hover(bounds.get(index), words.bound_hover),
  ].filter(Boolean).join("<br>"));
  const here = all.map((step) => run.x({ step: step.index, seconds: step.elapsed }));
  const heights = all.map(({ index }) => (measured.get(index) ?? foreseen.get(index))?.speedup ?? null);
  const last = (/** @type {Curve} */ curve) => two(curve.at(-1)?.speedup);
  const why = disturbed(plain, lane) ? words.disturbed : plain ? nothing(run, words) : words.no_plain;
  return {
    ...overSteps(run, words, { empty: points.length ? "" : why }),
    names,
    traces: [...drawn, pen.hover(here, heights, texts, indices(all))],
    y: { title: words.times, range: [0, top], dtick: [0.5, 1, 2, 5, 10].find((gap) => top <= 5 * gap) ?? 20 },
    ...evenLine(colours, words.even, Number(late) < 1 ? "bottom" : "top"),
    label: fill(words.speedup_label, { speedup: two(points.length ? speedupOf(plain, lane) : null), predicted: last(predicted), bound: last(bound) }),
    table: () => ({
      heads: [words.table_step, ...Object.values(names)],
      rows: all.map(({ index }) => [index + 1, two(measured.get(index)?.speedup), ...(predicted.length ? [two(foreseen.get(index)?.speedup)] : []), ...(bound.length ? [two(bounds.get(index)?.speedup)] : [])]),
    }),
  };
}

// ---- Share of drafted tokens that are kept, by their depth in the draft

/** @type {FigureOf} */
function position(run, words, colours) {
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

// ---- Where the time of each step goes: draft, verify and the rest

/** @type {FigureOf} */
function time(run, words, colours) {
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

// ---- Tokens and milliseconds of each step: what the cost model foresaw, and what came

/** @type {FigureOf} */
function forecast(run, words, colours) {
  const steps = forecastSteps(run.lane);
  const origin = words.origin[run.state.source.kind];
  const names = { foreseen: words.foreseen, came: fill(words.came, { origin }) };
  const pen = new Pen(colours, LOOKS, names);
  const scaled = (/** @type {number | null} */ value) => (value === null ? null : 1000 * value);
  const tokens = steps.map((step) => step.tokens);
  const expected = steps.map((step) => step.expectedTokens);
  const took = steps.map((step) => 1000 * step.seconds);
  const planned = steps.map((step) => scaled(step.expectedSeconds));
  const known = steps.filter((step) => step.expectedTokens !== null);
  const texts = steps.map((step, i) => fill(words.forecast_hover, {
    step: step.step + 1, origin, tokens: tokens[i], expected_tokens: two(expected[i]), expected: two(planned[i]), measured: two(took[i]),
  }));
  const low = { yaxis: "y2", showlegend: false };
  const average = (/** @type {(step: typeof steps[number]) => number} */ read) => two(mean(known.map(read)));
  return {
    ...overSteps(run, words, { empty: known.length ? "" : steps.length ? words.no_forecast : nothing(run, words) }),
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

// ---- Accepted share run by run, for methods that learn from one run to the next

/** @type {FigureOf} */
function history(run, words, colours) {
  const points = acceptanceHistory(run.lane);
  const names = pick(words, "history");
  const pen = new Pen(colours, LOOKS, names);
  const shares = points.map((point) => 100 * point.share);
  const texts = points.map((point) => fill(point.current ? words.history_now : words.history_hover, { run: point.run, share: two(100 * point.share) }));
  const at = points.map((point) => point.run);
  return {
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

/** @type {Record<string, FigureOf>} */
export const FIGURES = { lookahead, rate, speedup, position, time, forecast, history };

export const NAMES = Object.keys(FIGURES);

/** The entries of a figure's key. @param {Figure} figure @returns {[Look | null, string][]} */
export const keyOfFigure = ({ names, note }) => {
  const entries = Object.entries(names).map(([name, text]) => /** @type {[Look | null, string]} */ ([LOOKS[name], text]));
  return note ? [...entries, [null, note]] : entries;
};
