// Turns values into Plotly's series, in looks of which no two differ by colour alone.

import { el, svg } from "../parts/dom.js";

/** @import { Look, Palette, Spans } from "./figure" */
/** Plotly reads a small markup in its labels: text from a trace must not be taken for it. @param {string} text */
export const escapeMarkup = (text) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** Turns values into Plotly's series, drawn in the looks of a table. looks: name -> look names: name -> what a key calls the series */
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
   * A line through points; null breaks it. more: what else Plotly shall know
   * @param {string | number} name @param {number[]} x @param {(number | null)[]} y @param {object} [more]
   */
  line(name, x, y, more = {}) {
    const { colour, width, dash, symbol } = this.looks[name];
    const alone = y.length === 1;
    return {
      ...this.#series(name, x, y),
      mode: symbol || alone ? "lines+markers" : "lines",
      line: { color: this.colours[colour], width, dash: dash ?? "solid" },
      marker: { color: this.colours[colour], symbol: symbol ?? "circle", size: 6 },
      ...more,
    };
  }

  /** A line that keeps each value from its start to its end. @param {string} name @param {Spans} spans @param {(number | null)[]} y */
  level(name, { starts, ends }, y) {
    if (!y.length) return this.line(name, [], []);
    return { ...this.line(name, [...starts, ends[ends.length - 1]], [...y, y[y.length - 1]]), mode: "lines", line: { ...this.line(name, [], []).line, shape: "hv" } };
  }

  /**
   * Points of their own sizes, in pixels of half their width; the pointer reads their texts.
   * @param {string} name @param {{ x: number, y: number, size: number, text: string }[]} points
   */
  points(name, points) {
    const { colour, symbol } = this.looks[name];
    const marker = { color: this.colours[colour], symbol, size: points.map(({ size }) => 2 * size), opacity: 0.85, line: { width: 1.5 } };
    return {
      ...this.#series(name, points.map(({ x }) => x), points.map(({ y }) => y)),
      mode: "markers", marker, text: points.map(({ text }) => escapeMarkup(text)), hoverinfo: "text", cliponaxis: false,
    };
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
   * @param {number[]} x @param {(number | null)[]} y @param {string[]} texts @param {(number | null)[]} ids
   */
  hover(x, y, texts, ids) {
    return {
      type: "scatter", mode: "none", showlegend: false,
      x, y, text: texts, customdata: ids, hoverinfo: "text",
    };
  }

  // Polygons as one line, which comes to each from the ground and goes back the same way, so that nothing between them is
  // filled: after a gap Plotly would begin another element, and hundreds of them take it too long.
  /** @param {string} name @param {number[][][]} polygons */
  #areas(name, polygons) {
    const points = polygons.flatMap((corners) => [[corners[0][0], 0], ...corners, corners[0], [corners[0][0], 0]]);
    const colour = this.colours[this.looks[name].colour];
    const pattern = PATTERNS[this.looks[name].shape];
    return {
      ...this.#series(name, points.map(([x]) => x), points.map(([, y]) => y)),
      mode: "none",
      fill: "toself",
      fillcolor: pattern ? CLEAR : colour,
      ...(pattern && { fillpattern: { ...pattern, fgcolor: colour, bgcolor: CLEAR } }),
    };
  }

  /** @param {string | number} name @param {number[]} x @param {(number | null)[]} y */
  #series(name, x, y) {
    return { type: "scatter", mode: "lines", name: this.names[name], x, y, hoverinfo: "skip" };
  }
}

export const CLEAR = "rgba(0,0,0,0)";

/** The line of plain decoding, and what it is called. @param {Palette} colours @param {string} text @param {"top" | "bottom"} side */
export const evenLine = (colours, text, side) => ({
  shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: colours.ink, width: 1, dash: "dash" } }],
  annotations: [{ xref: "paper", x: 1, y: 1, xanchor: "right", yanchor: side, showarrow: false, text, font: { color: colours.soft }, bgcolor: colours.card }],
});

/** @type {Record<string, object>} */
const PATTERNS = {
  hatch: { shape: "/", size: 5, solidity: 0.4 },
  dots: { shape: ".", size: 4, solidity: 0.35 },
};

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
const SYMBOLS = { circle: CIRCLE, "circle-open": CIRCLE, square: "M7 2h6v6h-6z" };

/** The entries of a key, from a list of [look or null, text]. @param {[Look | null, string][]} entries */
export const keyItems = (entries) => entries.map(([look, text]) => el("li", {}, ...(look ? [sample(look)] : []), text));
