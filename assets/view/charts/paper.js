// A figure as SVG text: axes with their numbers, series, lines and notes. What is saved is drawn as what the page shows.

import { tag } from "../core/markup.js";
import { decimals } from "../core/metrics.js";

/**
 * @import { Axis, Drawing, Figure, Note, Palette, Rule, Series } from "./figure"
 * @import { Child } from "../core/markup"
 * @typedef {{ width: number, height: number, l: number, r: number, t: number, b: number }} Frame pixels of a picture, and around its plotting area
 * @typedef {(value: number) => number} Scale from a value to pixels
 */
const LETTER = 12; // pixels of a tick's letters, where the style sheet says nothing
const TICKS = 6; // at most on an axis that names none
const LOW = 0.44; // share of the height of each of two axes that stand one below the other
const DASHES = { solid: "none", dash: "9 6", dot: "2 3" };
const NICE = [1, 2, 5, 10];

/** Pixels of a tick's letters. @param {Palette} colours */
const letters = ({ tick }) => Number(tick) || LETTER;

/** Pixels around the plotting area on the page, for the ticks' letters; the horizontal title stands below it. @param {Palette} colours */
export const margins = (colours) => ({ l: 3 * letters(colours) + 6, r: 10, t: 7, b: letters(colours) + 8 });

/** An axis over a stretch of pixels; a backward one grows upwards. @param {Axis} axis @param {number} start @param {number} length @returns {Scale} */
export function scale({ range: [from, to], type }, start, length) {
  return (value) => start + (length * ((type === "log" ? Math.log10(value) : value) - from)) / (to - from);
}

/** The values at which an axis is marked, each with its text. @param {Axis} axis @returns {[number, string][]} */
export function ticks({ range: [from, to], dtick, tickvals, ticktext, nticks = TICKS, ticksuffix = "" }) {
  if (tickvals) return tickvals.map((value, i) => [value, ticktext?.[i] ?? `${value}${ticksuffix}`]);
  const least = (to - from) / nticks;
  const unit = 10 ** Math.floor(Math.log10(least));
  const gap = dtick ?? unit * (NICE.find((times) => times * unit >= least - 1e-9) ?? 10);
  const digits = String(Number(gap.toPrecision(3))).split(".")[1]?.length ?? 0;
  const first = Math.ceil(from / gap - 1e-9);
  return Array.from({ length: Math.floor(to / gap + 1e-9) - first + 1 }, (_, i) => [(first + i) * gap, decimals((first + i) * gap, digits) + ticksuffix]);
}

/** Where a drawing lies: its plotting areas and the scales of its axes. @param {Drawing} drawing @param {Frame} frame */
export function areas({ x, y, y2 }, { width, height, l, r, t, b }) {
  const [across, down] = [width - l - r, height - t - b];
  const one = y2 ? LOW * down : down;
  const above = { y, top: t, down: one, up: scale(y, t + one, -one) };
  const below = y2 ? { y: y2, top: t + down - one, down: one, up: scale(y2, t + down, -one) } : null;
  return { x: scale(x, l, across), across, above, below, bottom: t + down };
}

/**
 * A drawing as the text of an SVG. id: unique on the page; more: what else stands in it
 * @param {Palette} colours @param {Drawing} drawing @param {Frame} frame @param {string} id @param {...Child} more
 */
export function drawn(colours, drawing, frame, id, ...more) {
  const { x, above, below, across, bottom } = areas(drawing, frame);
  const size = letters(colours);
  const clips = [above, ...(below ? [below] : [])].map(({ top, down }, i) => (
    tag("clipPath", { id: `${id}-${i}` }, tag("rect", { x: frame.l, y: top, width: across, height: down }))));
  const patterns = drawing.traces.flatMap((one, i) => (one.pattern ? [pattern(`${id}-p${i}`, one.pattern, one.colour)] : []));
  const grid = [above, ...(below ? [below] : [])].flatMap(({ y, up }) => ticks(y).flatMap(([value, text]) => [
    tag("path", { d: `M${frame.l} ${round(up(value))}h${across}`, stroke: colours.grid }),
    tag("text", { x: frame.l - 5, y: round(up(value) + size / 3), "text-anchor": "end" }, text),
  ]));
  const marks = ticks(drawing.x).map(([value, text]) => tag("text", { x: round(x(value)), y: bottom + size + 3, "text-anchor": "middle" }, text));
  const series = drawing.traces.map((one, i) => {
    const low = one.low && below;
    const clip = one.free ? "none" : `url(#${id}-${low ? 1 : 0})`;
    return tag("g", { class: "sd-series", "data-name": one.name ?? "", "clip-path": clip }, ...seriesOf(one, x, (low ? below : above).up, `${id}-p${i}`));
  });
  const rules = (drawing.rules ?? []).map((rule) => ruleOf(rule, x, above.up, frame));
  const notes = (drawing.notes ?? []).map((note) => noteOf(note, x, above.up, frame, colours));
  const root = { xmlns: "http://www.w3.org/2000/svg", width: frame.width, height: frame.height, viewBox: `0 0 ${frame.width} ${frame.height}`, "font-family": colours.font ?? "sans-serif", "font-size": size, fill: colours.soft };
  return tag("svg", root, tag("defs", {}, ...clips, ...patterns), ...more, ...grid, ...marks, ...series, ...rules, ...notes).text;
}

// ---- Parts of a drawing

const round = (/** @type {number} */ value) => Math.round(100 * value) / 100;

/** The elements of a series. @param {Series} series @param {Scale} x @param {Scale} y @param {string} filled id of its pattern @returns {Child[]} */
function seriesOf(series, x, y, filled) {
  const at = series.x.map((value, i) => {
    const height = series.y[i] ?? null;
    return value === null || height === null ? null : /** @type {const} */ ([round(x(value)), round(y(height))]);
  });
  const { colour, width = 0, dash = "solid", marks } = series;
  const out = [];
  if (series.kind === "area") out.push(tag("path", { d: path(at, (one) => `L${one[0]} ${one[1]}`, "Z"), fill: series.pattern ? `url(#${filled})` : colour }));
  if (series.kind === "line" && width) {
    const to = series.level ? (/** @type {readonly [number, number]} */ one) => `H${one[0]}V${one[1]}` : (/** @type {readonly [number, number]} */ one) => `L${one[0]} ${one[1]}`;
    const dashes = DASHES[/** @type {"dash"} */ (dash)] ?? dash.replaceAll("px", "").replaceAll(",", " ");
    out.push(tag("path", { d: path(at, to, ""), fill: "none", stroke: colour, "stroke-width": width, "stroke-dasharray": dashes, "stroke-linejoin": "round" }));
  }
  if (!marks) return out;
  const { symbol = "circle", fill = colour, edge = 0, opacity = 1 } = marks;
  const open = symbol === "circle-open";
  return [...out, ...at.flatMap((one, i) => {
    const half = (Array.isArray(marks.size) ? marks.size[i] : marks.size) / 2;
    return one ? [tag("path", { d: symbolAt(symbol, one[0], one[1], half), fill: open ? "none" : fill, stroke: edge || open ? colour : "none", "stroke-width": edge || 1.5, opacity })] : [];
  })];
}

/** Lines through points, broken at each null. @param {(readonly [number, number] | null)[]} points @param {(one: readonly [number, number]) => string} to @param {string} end */
function path(points, to, end) {
  let text = "";
  points.forEach((one, i) => {
    const before = points[i - 1];
    if (!one) text += before ? end : "";
    else text += before ? to(one) : `M${one[0]} ${one[1]}`;
  });
  return text + (points.at(-1) ? end : "");
}

/** @param {string} symbol @param {number} x @param {number} y @param {number} half */
function symbolAt(symbol, x, y, half) {
  const by = { square: [-1, -1, 1, -1, 1, 1, -1, 1], diamond: [0, -1.3, 1.3, 0, 0, 1.3, -1.3, 0], "triangle-up": [0, -1.2, 1.2, 0.9, -1.2, 0.9], "triangle-down": [0, 1.2, 1.2, -0.9, -1.2, -0.9] }[symbol];
  if (!by) return `M${x - half} ${y}a${half} ${half} 0 1 0 ${2 * half} 0a${half} ${half} 0 1 0 ${-2 * half} 0Z`;
  return `M${by.map((part, i) => round((i % 2 ? y : x) + half * part)).join(" ")}Z`;
}

/** @param {string} id @param {"hatch" | "dots"} kind @param {string} colour */
function pattern(id, kind, colour) {
  const tile = kind === "hatch" ? tag("path", { d: "M-1 1L1 -1M0 5L5 0M4 6L6 4", stroke: colour, "stroke-width": 1.4 }) : tag("circle", { cx: 2, cy: 2, r: 0.9, fill: colour });
  const side = kind === "hatch" ? 5 : 4;
  return tag("pattern", { id, width: side, height: side, patternUnits: "userSpaceOnUse" }, tag("g", {}, tile));
}

/** A line at a height, or up from the axis. @param {Rule} rule @param {Scale} x @param {Scale} y @param {Frame} frame */
function ruleOf({ at, up, colour, width, dash = "solid" }, x, y, { width: all, l, r }) {
  const d = at === undefined ? `M${round(x(up?.x ?? 0))} ${round(y(0))}V${round(y(up?.y ?? 0))}` : `M${l} ${round(y(at))}H${all - r}`;
  return tag("path", { d, fill: "none", stroke: colour, "stroke-width": width, "stroke-dasharray": DASHES[/** @type {"dash"} */ (dash)] ?? dash });
}

/** A text at the right end of a height, or at the upper edge. @param {Note} note @param {Scale} x @param {Scale} y @param {Frame} frame @param {Palette} colours */
function noteOf({ text, x: place, y: height, side, anchor = "end", colour, bold }, x, y, { width, r, t }, colours) {
  const size = letters(colours);
  const base = height === undefined ? t : y(height);
  const at = { x: place === undefined ? width - r - 3 : round(x(place)), y: round(side === "top" ? base + size + 1 : base - 4), "text-anchor": anchor };
  return tag("text", { ...at, fill: colour, "font-weight": bold ? 700 : 400, stroke: colours.card, "stroke-width": 4, "paint-order": "stroke" }, text);
}

// ---- A figure on paper: with its title, its key and the names of its axes

const PAGE = { width: 900, height: 440, l: 62, r: 24, t: 84, b: 54 };
const SHARP = 2; // pixels of a saved picture in one of the drawing's
const LETTER_WIDTH = 6.6; // pixels of a key's letters, about

/** @param {Palette} colours @param {Figure} figure @param {string} title */
export function picture(colours, figure, title) {
  let left = PAGE.l;
  const key = Object.entries(figure.names).flatMap(([name, text]) => {
    const { shape, colour: named, width = 2, dash = "solid", symbol } = figure.looks[name];
    const colour = colours[named];
    const at = left;
    left += 40 + LETTER_WIDTH * text.length;
    const area = shape === "bar" || shape === "hatch" || shape === "dots";
    /** @type {Series} */
    const one = area
      ? { kind: "area", colour, pattern: shape === "bar" ? undefined : shape, x: [0, 0, 14, 14], y: [-5, 5, 5, -5] }
      : { kind: "line", colour, width: shape === "point" ? 0 : width, dash, x: [0, 22], y: [0, 0], ...(symbol ? { marks: { symbol, size: 6 } } : {}) };
    const id = `sd-key-${name}`;
    return [
      ...(one.pattern ? [tag("defs", {}, pattern(id, one.pattern, colour))] : []),
      ...seriesOf(one, (x) => at + x, (y) => PAGE.t - 18 + y, id),
      tag("text", { x: at + 27, y: PAGE.t - 14 }, text),
    ];
  });
  const middle = (/** @type {number} */ top, /** @type {number} */ down) => `translate(16 ${top + down / 2}) rotate(-90)`;
  const { above, below } = areas(figure, PAGE);
  const titles = [above, ...(below ? [below] : [])].map(({ y, top, down }) => tag("text", { transform: middle(top, down), "text-anchor": "middle" }, y.title));
  return drawn({ ...colours, tick: String(LETTER) }, figure, PAGE, "sd-paper",
    tag("rect", { width: PAGE.width, height: PAGE.height, fill: colours.card }),
    tag("text", { x: 27, y: 34, "font-size": 16, fill: colours.ink }, title), ...key, ...titles,
    tag("text", { x: (PAGE.l + PAGE.width - PAGE.r) / 2, y: PAGE.height - 12, "text-anchor": "middle" }, figure.x.title));
}

/** A picture as pixels: the address of a PNG. @param {string} svg */
export async function pngOf(svg) {
  const image = new Image();
  image.src = address(svg);
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [SHARP * PAGE.width, SHARP * PAGE.height];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}

/** The address of a picture. @param {string} svg */
export const address = (svg) => `data:image/svg+xml,${encodeURIComponent(svg)}`;
