// The training card of the chosen method's weights: what they are, how well they do, from what and how they were made.

import { el, fill, svg } from "./dom.js";
import { two } from "./metrics.js";

const BOX = { width: 560, height: 230, left: 44, right: 548, top: 26, bottom: 196 };
const FIGURES = [1, 1.5, 2, 3, 5, 7]; // of the axis of nats, times a power of ten
const LEAST = 1e-3; // nats; a logarithm needs an end

/** Draw the card in `element`; `read()` gives JSON with a `card`, or a sentence as `none`; `watch(call)` tells of changes. */
export function mountCard(element, { read, watch, words }) {
  const root = el("div", { class: "sd-card" });
  element.replaceChildren(root);
  const draw = () => root.replaceChildren(...content(JSON.parse(read() || "{}"), words.card));
  watch(draw);
  draw();
}

function content({ card, none }, words) {
  if (!card) return [said("p", none, { class: "sd-card-about" })];
  const what = words.kinds[card.kind ?? "draft"] ?? "";
  const { plain, placed } = results(card.results ?? {}, words);
  return [
    said("p", fill(words.about, { what, ...card }).trim(), { class: "sd-card-about" }),
    part(words.results, plain.length ? table([], plain, words.results_label) : said("p", words.unmeasured)),
    ...(placed.rows.length ? [part(words.by_place, table(["", ...placed.heads], placed.rows, words.by_place))] : []),
    ...(drawable(card) ? [part(words.curve, picture(curve(card), words, card))] : []),
    part(words.data, el("ul", {}, ...(card.data ?? []).map((line) => said("li", line)))),
    part(words.recipe, list([...Object.entries(card.recipe ?? {}), ...facts(card, words)])),
  ];
}

/** The results as rows of texts: `plain` with one value each, `placed` with one for each position in the draft. */
export function results(values, words) {
  const plain = [];
  const places = new Map(); // measure -> place -> value
  for (const [name, value] of Object.entries(values)) {
    const [, measure, place] = name.match(/^(.+)_(\d+)$/) ?? [];
    if (!place) plain.push([words.names[name] ?? name.replaceAll("_", " "), shown(name, value, words)]);
    else {
      if (!places.has(measure)) places.set(measure, new Map());
      places.get(measure).set(Number(place), shown(measure, value, words));
    }
  }
  const columns = [...new Set([...places.values()].flatMap((row) => [...row.keys()]))].sort((a, b) => a - b);
  const rows = [...places].map(([measure, row]) => [
    words.names[measure] ?? measure.replaceAll("_", " "),
    ...columns.map((place) => row.get(place) ?? "–"),
  ]);
  return { plain, placed: { heads: columns.map((place) => fill(words.place, { place })), rows } };
}

function shown(name, value, words) {
  if (words.shares.includes(name)) return `${(100 * value).toFixed(1)} %`;
  return Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(3);
}

/** What the card says of the making, as [name, text]; what it lacks is left out. */
export function facts(card, words) {
  return Object.entries(words.facts).flatMap(([key, name]) => {
    const value = card[key];
    if (value === undefined || value === null || value === "" || value.length === 0) return [];
    if (key === "minutes") return [[name, two(value)]];
    if (Array.isArray(value)) return [[name, value.join(", ")]];
    return [[name, typeof value === "number" && key !== "seed" ? value.toLocaleString("en") : String(value)]];
  });
}

const drawable = (card) => Boolean(card.losses?.length || card.checks?.length);

/** Where the curve's lines, its levels and its steps lie inside BOX: points as [x, y], marks with their labels. */
export function curve({ losses = [], checks = [] }) {
  const pairs = [...losses, ...checks];
  const last = Math.max(1, ...pairs.map(([step]) => step));
  const levels = ticks(pairs.map(([, nats]) => Math.max(LEAST, nats)));
  const [low, high] = [Math.log(levels[0]), Math.log(levels.at(-1))];
  const across = (step) => BOX.left + ((BOX.right - BOX.left) * step) / last;
  const down = (nats) => BOX.bottom - ((BOX.bottom - BOX.top) * (Math.log(Math.max(nats, levels[0])) - low)) / (high - low);
  const place = ([step, nats]) => [across(step), down(nats)];
  return {
    losses: losses.map(place),
    checks: checks.map(place),
    levels: levels.map((nats) => ({ y: down(nats), label: String(Number(nats.toPrecision(3))) })),
    steps: [0, Math.round(last / 2), last].map((step) => ({ x: across(step), label: step.toLocaleString("en") })),
  };
}

// Round numbers that enclose the values, at least two.
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

function picture({ losses, checks, levels, steps }, words, card) {
  const end = (pairs) => (pairs?.length ? two(pairs.at(-1)[1]) : "–");
  const label = fill(words.curve_label, { losses: end(card.losses), checks: end(card.checks) });
  const drawing = svg("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img", "aria-label": label });
  for (const { y, label } of levels) {
    drawing.append(svg("line", { class: "sd-curve-grid", x1: BOX.left, x2: BOX.right, y1: y, y2: y }));
    drawing.append(written(label, BOX.left - 6, y + 4, "end"));
  }
  for (const { x, label } of steps) drawing.append(written(label, x, BOX.bottom + 16, x >= BOX.right ? "end" : "middle"));
  drawing.append(written(words.steps, (BOX.left + BOX.right) / 2, BOX.bottom + 31, "middle"));
  Object.entries({ losses, checks }).forEach(([kind, points], row) => {
    if (!points.length) return;
    const look = { class: `sd-curve sd-curve-${kind}` };
    drawing.append(svg("polyline", { ...look, points: points.map((point) => point.join(",")).join(" ") }));
    if (kind === "checks") drawing.append(...points.map(([cx, cy]) => svg("circle", { ...look, cx, cy, r: 3 })));
    const x = BOX.left + 130 * row;
    drawing.append(svg("line", { ...look, x1: x, x2: x + 26, y1: 12, y2: 12 }), written(words[kind], x + 32, 16, "start"));
  });
  return drawing;
}

function written(text, x, y, anchor) {
  const node = svg("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}

const part = (title, ...children) => el("section", {}, said("h3", title), ...children);

function table(heads, rows, label) {
  const head = heads.length ? [el("thead", {}, el("tr", {}, ...heads.map((name) => said("th", name, { scope: "col" }))))] : [];
  const body = rows.map(([name, ...cells]) => el("tr", {}, said("th", name, { scope: "row" }), ...cells.map((cell) => said("td", cell))));
  return el("div", { class: "sd-card-box", tabindex: "0", role: "region", "aria-label": label }, el("table", {}, ...head, el("tbody", {}, ...body)));
}

const list = (pairs) => el("dl", {}, ...pairs.flatMap(([name, text]) => [said("dt", name), said("dd", String(text))]));

function said(tag, text, attributes = {}) {
  const node = el(tag, attributes);
  node.textContent = text ?? "";
  return node;
}
