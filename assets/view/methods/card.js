// The training card of the chosen method's weights: what they are, how well they do, from what and how they were made.

import { table } from "../parts/blocks.js";
import { el, follow } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { decimals, two } from "../core/metrics.js";
import { Pen, keyItems } from "../charts/pen.js";
import { Plot } from "../charts/plot.js";

/**
 * @import { Drawing, Look, Palette } from "../charts/figure"
 * @import { Given, Words } from "../parts/page"
 * @typedef {[number, number][]} Series steps and nats
 * @typedef {Record<string, unknown> & {
 *   kind?: string, results?: Record<string, number>, losses?: Series, checks?: Series, data?: string[], recipe?: Record<string, unknown>,
 * }} Card
 */

/** @type {Record<string, Look>} */
const LOOKS = {
  losses: { shape: "line", colour: "accepted", width: 2 },
  checks: { shape: "line", colour: "rejected", width: 2, dash: "6px,3px", symbol: "circle" },
};
const FIGURES = [1, 1.5, 2, 3, 5, 7]; // of the axis of nats, times a power of ten
const LEAST = 1e-3; // nats; a logarithm needs an end

/** Draw in `element` a `card`, or a sentence as `none`. @param {HTMLElement} element @param {Given} given */
export function mountCard(element, given) {
  const root = el("div", { class: "sd-card" });
  element.replaceChildren(root);
  follow(given, (value) => root.replaceChildren(...content(value, given.words.card)));
}

/** @param {{ card?: Card, none?: string }} how @param {Words} words */
function content({ card, none }, words) {
  if (!card) return [el("p", { class: "sd-card-about" }, none)];
  const what = words.kinds[card.kind ?? "draft"] ?? "";
  const { plain, placed } = results(card.results ?? {}, words);
  return [
    el("p", { class: "sd-card-about" }, fill(words.about, { what, ...card }).trim()),
    part(words.results, plain.length ? boxed([], plain, words.results_label) : el("p", {}, words.unmeasured)),
    ...(placed.rows.length ? [part(words.by_place, boxed(["", ...placed.heads], placed.rows, words.by_place))] : []),
    ...(seriesOf(card).length ? [part(words.curve, ...picture(card, words))] : []),
    part(words.data, el("ul", {}, ...(card.data ?? []).map((line) => el("li", {}, line)))),
    part(words.recipe, list([...Object.entries(card.recipe ?? {}).map(([name, value]) => [name, String(value)]), ...facts(card, words)])),
  ];
}

/**
 * The results as rows of texts: `plain` with one value each, `placed` with one for each position in the draft.
 * @param {Record<string, number>} values @param {Words} words
 */
export function results(values, words) {
  /** @type {string[][]} */
  const plain = [];
  /** @type {Map<string, Map<number, string>>} */
  const placed = new Map(); // measure -> position -> value
  for (const [name, value] of Object.entries(values)) {
    const [, measure, position] = name.match(/^(.+)_(\d+)$/) ?? [];
    if (!position) plain.push([words.names[name] ?? name.replaceAll("_", " "), shown(name, value, words)]);
    else placed.set(measure, (placed.get(measure) ?? new Map()).set(Number(position), shown(measure, value, words)));
  }
  const columns = [...new Set([...placed.values()].flatMap((row) => [...row.keys()]))].sort((a, b) => a - b);
  const rows = [...placed].map(([measure, row]) => [
    words.names[measure] ?? measure.replaceAll("_", " "),
    ...columns.map((position) => row.get(position) ?? "–"),
  ]);
  return { plain, placed: { heads: columns.map((position) => fill(words.place, { place: position })), rows } };
}

/** @param {string} name @param {number} value @param {Words} words */
function shown(name, value, words) {
  if (words.shares.includes(name)) return `${decimals(100 * value, 1)} %`;
  return Number.isInteger(value) ? value.toLocaleString("en") : decimals(value, 3);
}

/** What the card says of the making, as [name, text]; what it lacks is left out. @param {Card} card @param {Words} words */
export function facts(card, words) {
  return Object.entries(words.facts).flatMap(([key, name]) => {
    const value = card[key];
    if (value === undefined || value === null || value === "" || (Array.isArray(value) && !value.length)) return [];
    if (key === "minutes") return [[name, two(Number(value))]];
    if (Array.isArray(value)) return [[name, value.join(", ")]];
    return [[name, typeof value === "number" && key !== "seed" ? value.toLocaleString("en") : String(value)]];
  });
}

/** The series of a card that have values, by their names. @param {Pick<Card, "losses" | "checks">} card */
const seriesOf = ({ losses = [], checks = [] }) => Object.entries({ losses, checks }).filter(([, series]) => series.length);

/**
 * The curve as `Plot.show` takes it: both series over steps, on a logarithmic axis that encloses them.
 * @param {Card} card @param {Words} words @param {Palette} colours @returns {Drawing}
 */
export function curve({ losses = [], checks = [] }, words, colours) {
  const pen = new Pen(colours, LOOKS, words);
  const pairs = [...losses, ...checks];
  const levels = ticks(pairs.map(([, nats]) => Math.max(LEAST, nats)));
  const end = (/** @type {Series} */ series) => (two(series.at(-1)?.[1]));
  return {
    traces: seriesOf({ losses, checks }).map(([name, series]) => pen.line(name, series.map(([step]) => step), series.map(([, nats]) => Math.max(LEAST, nats)))),
    x: { title: words.steps, range: [0, 1.01 * Math.max(1, ...pairs.map(([step]) => step))] },
    y: { title: "", type: "log", range: [Math.log10(levels[0]), Math.log10(levels[levels.length - 1])], tickvals: levels, ticktext: levels.map((nats) => String(Number(nats.toPrecision(3)))) },
    label: fill(words.curve_label, { losses: end(losses), checks: end(checks) }),
  };
}

/** Round numbers that enclose the values, at least two. @param {number[]} values */
function ticks(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const marks = [];
  for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.ceil(Math.log10(high)) + 1; power++) {
    marks.push(...FIGURES.map((figure) => figure * 10 ** power));
  }
  const first = marks.findLastIndex((mark) => mark <= low);
  const last = marks.findIndex((mark) => mark >= high);
  return marks.slice(first, Math.max(last, first + 1) + 1);
}

/** @param {Card} card @param {Words} words */
function picture(card, words) {
  const plot = new Plot();
  plot.show((colours) => curve(card, words, colours));
  const key = keyItems(seriesOf(card).map(([name]) => [LOOKS[name], words[name]]));
  return [el("ul", { class: "sd-chart-key" }, ...key), plot.root, el("p", { class: "sd-card-steps" }, words.steps)];
}

/** @param {string} title @param {...Node} children */
const part = (title, ...children) => el("section", {}, el("h3", {}, title), ...children);

/** @param {string[]} heads @param {string[][]} rows @param {string} label */
const boxed = (heads, rows, label) => el("div", { class: "sd-card-box", tabindex: "0", role: "region", "aria-label": label }, table(heads, rows));

/** @param {string[][]} pairs */
const list = (pairs) => el("dl", {}, ...pairs.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
