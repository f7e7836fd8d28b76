// Turns values into series, in looks of which no two differ by colour alone.

import { el, svg } from "../parts/dom.js";

/** @import { Look, Palette, Series, Spans } from "./figure" */
/** Turns values into series, drawn in the looks of a table. looks: name -> look names: name -> what a key calls the series */
export class Pen {
  /** @param {Palette} colours @param {Record<string, Look>} looks @param {Record<string, string>} names */
  constructor(colours, looks, names) {
    this.colours = colours;
    this.looks = looks;
    this.names = names;
  }

  /**
   * A bar for each i from starts[i] to ends[i] and bottoms[i] to tops[i].
   * @param {string} name @param {Spans} spans @param {number[]} bottoms @param {(number | null)[]} tops
   */
  bars(name, { starts, ends }, bottoms, tops) {
    return this.#areas(name, tops.flatMap((top, i) => {
      const gap = 0.1 * (ends[i] - starts[i]);
      const [from, to] = [starts[i] + gap, ends[i] - gap];
      return top !== null && top > bottoms[i] ? [[[from, bottoms[i]], [from, top], [to, top], [to, bottoms[i]]]] : [];
    }));
  }

  /**
   * A line through points; null breaks it. more: what else is known of it
   * @param {string | number} name @param {number[]} x @param {(number | null)[]} y @param {Partial<Series>} [more]
   * @returns {Series}
   */
  line(name, x, y, more = {}) {
    const { width, dash, symbol } = this.looks[name];
    const alone = y.length === 1;
    return { ...this.#series(name, x, y), width, dash, ...(symbol || alone ? { marks: { symbol, size: 6 } } : {}), ...more };
  }

  /** A line that keeps each value from its start to its end. @param {string} name @param {Spans} spans @param {(number | null)[]} y */
  level(name, { starts, ends }, y) {
    if (!y.length) return this.line(name, [], []);
    return { ...this.line(name, [...starts, ends[ends.length - 1]], [...y, y[y.length - 1]]), level: true };
  }

  /**
   * Points of their own sizes, in pixels of half their width; the pointer reads their texts.
   * @param {string} name @param {{ x: number, y: number, size: number, text: string }[]} points @returns {Series}
   */
  points(name, points) {
    const { symbol } = this.looks[name];
    const series = this.#series(name, points.map(({ x }) => x), points.map(({ y }) => y));
    return { ...series, marks: { symbol, size: points.map(({ size }) => 2 * size), opacity: 0.85 }, text: points.map(({ text }) => text), free: true };
  }

  /**
   * A flat cap over each value that is not null, from its start to its end; a roof where peaked[i]. thick: in the value's unit
   * @param {string} name @param {Spans} spans @param {(number | null)[]} values @param {(boolean | null)[]} peaked @param {number} thick
   */
  caps(name, { starts, ends }, values, peaked, thick) {
    return this.#areas(name, values.flatMap((value, i) => {
      if (value === null) return [];
      const [from, to, low] = [starts[i], ends[i], value - thick / 2];
      const middle = (from + to) / 2;
      const ridge = peaked[i] ? 2.5 * thick : 0;
      return [[[from, low], [from, low + thick], [middle, low + thick + ridge], [to, low + thick], [to, low], [middle, low + ridge]]];
    }));
  }

  /**
   * What the pointer finds: texts at points that are not seen. ids[i] is handed to those who listen.
   * @param {number[]} x @param {(number | null)[]} y @param {string[]} text @param {(number | null)[]} ids @returns {Series}
   */
  hover(x, y, text, ids) {
    return { kind: "hover", colour: "", x, y, text, ids };
  }

  /** Polygons, with a null between two. @param {string} name @param {number[][][]} polygons @returns {Series} */
  #areas(name, polygons) {
    const points = polygons.flatMap((corners, i) => (i ? [[null, null], ...corners] : corners));
    const { shape } = this.looks[name];
    const pattern = shape === "hatch" || shape === "dots" ? shape : undefined;
    return { ...this.#series(name, points.map(([x]) => x), points.map(([, y]) => y)), kind: "area", pattern };
  }

  /** @param {string | number} name @param {(number | null)[]} x @param {(number | null)[]} y @returns {Series} */
  #series(name, x, y) {
    return { kind: "line", name: this.names[name], colour: this.colours[this.looks[name].colour], x, y };
  }
}

// ---- The key of a chart: a small drawing of each look, and what it stands for

/** A small drawing of a look, for a key. @param {Look} look */
export function sample({ shape, colour, width, dash, symbol }) {
  const drawing = svg("svg", { width: 20, height: 10, class: "sd-sample", style: `color: var(--sd-${colour})`, "aria-hidden": "true" });
  if (shape === "line") drawing.append(svg("line", { x1: 0, x2: 20, y1: 5, y2: 5, "stroke-width": width, "stroke-dasharray": dash ?? "none" }));
  else if (shape !== "caps" && shape !== "point") drawing.append(svg("rect", { x: 5.5, y: 0.5, width: 9, height: 9, fill: shape === "bar" ? "currentColor" : "none" }));
  if (shape === "caps") drawing.append(svg("path", { d: "M0 6h8M11 7l4.5-4l4.5 4", "stroke-width": width }));
  if (shape === "hatch") drawing.append(svg("path", { d: "M6 5 L10 1 M6 9 L14 1 M10 9 L14 5" }));
  if (shape === "dots") drawing.append(svg("path", { d: "M8 3h1 M11 3h1 M8 6h1 M11 6h1", "stroke-width": 1.5 }));
  if (symbol) drawing.append(svg("path", { d: SYMBOLS[symbol], fill: symbol === "circle-open" ? "none" : "currentColor" }));
  return drawing;
}

const CIRCLE = "M7 5a3 3 0 1 0 6 0a3 3 0 1 0-6 0";
const SYMBOLS = {
  circle: CIRCLE, "circle-open": CIRCLE, square: "M7 2h6v6h-6z", diamond: "M10 1l4 4l-4 4l-4-4z",
  "triangle-up": "M10 1l4 8h-8z", "triangle-down": "M10 9l4-8h-8z",
};

/** The entries of a key, from a list of [look or null, text]. @param {[Look | null, string][]} entries */
export const keyItems = (entries) => entries.map(([look, text]) => el("li", {}, ...(look ? [sample(look)] : []), text));
