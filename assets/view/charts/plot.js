// What all charts of the page share: the theme's colours, the looks of a series and of its key, axes, and the element
// that keeps a drawing as it grows, is resized or changes its theme. Knows nothing of what is drawn.

import { el, svg } from "../parts/dom.js";

const COLOURS = ["ink", "soft", "line", "grid", "card", "accepted", "rejected", "correction", "bonus", "drafted"];
const CONFIG = { displayModeBar: false };
const MARGIN = { l: 42, r: 10, t: 7, b: 20 }; // pixels around the plotting area; the horizontal title stands below it
const REST = 50; // times as long as a drawing took, the next one waits: a slow machine draws less often
const MOST_REST = 2000; // milliseconds
const LATE = 200; // milliseconds that a drawing may wait for a moment between two frames
const whenIdle = (call) => (globalThis.requestIdleCallback ? requestIdleCallback(call, { timeout: LATE }) : call());

/** The theme's colours and font where an element stands. */
export function palette(element) {
  const style = getComputedStyle(element);
  const colours = COLOURS.map((name) => [name, style.getPropertyValue(`--sd-${name}`).trim()]);
  return { font: style.fontFamily, ...Object.fromEntries(colours) };
}

/** Plotly reads a small markup in its labels: text from a trace must not be taken for it. */
export const escapeMarkup = (text) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/**
 * Turns values into Plotly's series, drawn in the looks of a table.
 * looks: name -> { shape: "bar" | "hatch" | "dots" | "line" | "caps", colour, width, dash, symbol }; none by colour alone
 * names: name -> what a key calls the series
 */
export class Pen {
  constructor(colours, looks, names) {
    Object.assign(this, { colours, looks, names });
  }

  /** A bar for each i from starts[i] to ends[i] and bottoms[i] to tops[i]. */
  bars(name, { starts, ends }, bottoms, tops) {
    return this.#areas(name, tops.flatMap((top, i) => {
      const gap = 0.1 * (ends[i] - starts[i]);
      const [from, to] = [starts[i] + gap, ends[i] - gap];
      return top > bottoms[i] ? [[[from, bottoms[i]], [from, top], [to, top], [to, bottoms[i]]]] : [];
    }));
  }

  /** A line through points; null breaks it. more: what else Plotly shall know */
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

  /** A line that keeps each value from its start to its end. */
  level(name, { starts, ends }, y) {
    if (!y.length) return this.line(name, [], []);
    return { ...this.line(name, [...starts, ends.at(-1)], [...y, y.at(-1)]), mode: "lines", line: { ...this.line(name, [], []).line, shape: "hv" } };
  }

  /** A flat cap over each value that is not null, from its start to its end; a roof where peaked[i]. thick: in the value's unit */
  caps(name, { starts, ends }, values, peaked, thick) {
    return this.#areas(name, values.flatMap((value, i) => {
      if (value === null) return [];
      const [from, to, low] = [starts[i], ends[i], value - thick / 2];
      const middle = (from + to) / 2;
      const ridge = peaked[i] ? 2.5 * thick : 0;
      return [[[from, low], [from, low + thick], [middle, low + thick + ridge], [to, low + thick], [to, low], [middle, low + ridge]]];
    }));
  }

  /** What the pointer finds: texts at points that are not seen. ids[i] is handed to those who listen. */
  hover(x, y, texts, ids) {
    return {
      type: "scatter", mode: "none", showlegend: false,
      x, y, text: texts, customdata: ids, hoverinfo: "text",
    };
  }

  // Polygons as one line, which comes to each from the ground and goes back the same way, so that nothing between them is
  // filled: after a gap Plotly would begin another element, and hundreds of them take it too long.
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

  #series(name, x, y) {
    return { type: "scatter", mode: "lines", name: this.names[name], x, y, hoverinfo: "skip" };
  }
}

const CLEAR = "rgba(0,0,0,0)";
const PATTERNS = {
  hatch: { shape: "/", size: 5, solidity: 0.4 },
  dots: { shape: ".", size: 4, solidity: 0.35 },
};

/** A small drawing of a look, for a key. */
export function sample({ shape, colour, width, dash, symbol }) {
  const drawing = svg("svg", { width: 20, height: 10, class: "sd-sample", style: `color: var(--sd-${colour})`, "aria-hidden": "true" });
  if (shape === "line") drawing.append(svg("line", { x1: 0, x2: 20, y1: 5, y2: 5, "stroke-width": width, "stroke-dasharray": dash ?? "none" }));
  else if (shape !== "caps") drawing.append(svg("rect", { x: 5.5, y: 0.5, width: 9, height: 9, fill: shape === "bar" ? "currentColor" : "none" }));
  if (shape === "caps") drawing.append(svg("path", { d: "M0 6h8M11 7l4.5-4l4.5 4", "stroke-width": width }));
  if (shape === "hatch") drawing.append(svg("path", { d: "M6 5 L10 1 M6 9 L14 1 M10 9 L14 5" }));
  if (shape === "dots") drawing.append(svg("path", { d: "M8 3h1 M11 3h1 M8 6h1 M11 6h1", "stroke-width": 1.5 }));
  if (symbol) drawing.append(svg("path", { d: SYMBOLS[symbol], fill: "currentColor" }));
  return drawing;
}

const SYMBOLS = { circle: "M7 5a3 3 0 1 0 6 0a3 3 0 1 0-6 0", square: "M7 2h6v6h-6z", diamond: "M10 1l4 4l-4 4l-4-4z" };

/** The entries of a key, from a list of [look or null, text]. */
export const keyItems = (entries) => entries.map(([look, text]) => el("li", {}, ...(look ? [sample(look)] : []), text));

/**
 * Plotly's layout of a figure, in the colours of the theme and without motion.
 * figure: { x, y } and perhaps y2, which stands below y: Plotly's axes, { title, range, ... }; shapes, annotations
 * The titles are left to the page: to measure texts is most of what a drawing costs.
 */
export function layout(colours, { x, y, y2, shapes = [], annotations = [] }) {
  const axis = ({ title: _, ...rest }) => ({
    gridcolor: colours.grid, linecolor: colours.line, zeroline: false, fixedrange: true,
    tickfont: { size: 10 }, tickangle: 0, ticklabeloverflow: "allow", ...rest,
  });
  return {
    margin: MARGIN,
    paper_bgcolor: CLEAR,
    plot_bgcolor: CLEAR,
    font: { family: colours.font, size: 11, color: colours.soft },
    hovermode: "x",
    hoverdistance: 40,
    hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { family: colours.font, color: colours.ink, size: 12 }, align: "left" },
    xaxis: { ...axis(x), showgrid: false, ...(y2 ? { anchor: "y2" } : {}) },
    yaxis: { ...axis(y), ...(y2 ? { domain: [0.56, 1] } : {}) },
    ...(y2 ? { yaxis2: { ...axis(y2), domain: [0, 0.44] } } : {}),
    showlegend: false,
    shapes,
    annotations,
  };
}

/** A figure with its traces as it stands on paper: with a title, a legend and the names of its axes. */
export function picture(colours, figure, title) {
  const drawn = layout(colours, figure);
  const titled = (name, { title: text }) => ({ [name]: { ...drawn[name], title: { text, font: { size: 12 } } } });
  return {
    data: figure.traces,
    layout: {
      ...drawn,
      ...titled("xaxis", figure.x),
      ...titled("yaxis", figure.y),
      ...(figure.y2 ? titled("yaxis2", figure.y2) : {}),
      title: { text: title, font: { size: 16, color: colours.ink }, x: 0.03, xanchor: "left", y: 0.97, yanchor: "top" },
      margin: { l: 62, r: 24, t: 84, b: 54 },
      paper_bgcolor: colours.card,
      showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    },
  };
}

/** An element that keeps a drawing. `show` may be called as often as one likes. */
export class Plot {
  onhover = null; // (id or null): the pointer came upon a point, or left
  onclick = null; // (id)
  #figure = null;
  #size = { width: 0, height: 0 };
  #colours = null;
  #timer = 0;
  #rested = 0; // when the next drawing may be made, by performance.now()
  #range = null;
  #mark = null;

  /** What the picture shows, for who cannot see it; an image without a name would be worse than none. */
  say(label) {
    this.plot.setAttribute("role", "img");
    this.plot.setAttribute("aria-label", label);
  }

  constructor() {
    this.plot = el("div", { class: "sd-plot" });
    this.band = el("div", { class: "sd-plot-mark", hidden: true });
    this.units = el("div", { class: "sd-plot-units", "aria-hidden": "true" });
    this.root = el("div", { class: "sd-plot-box" }, this.plot, this.units, this.band);
    new ResizeObserver(([entry]) => this.#resize(entry.contentRect)).observe(this.root);
    const theme = new MutationObserver(() => (this.root.isConnected ? this.redraw() : theme.disconnect()));
    theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  }

  /** Draw soon what figure(colours) gives by then: its traces, what `layout` takes, and as `label` what is read out. */
  show(figure) {
    this.#figure = figure;
    this.#soon();
  }

  /** The theme has changed. */
  redraw() {
    this.#colours = null;
    this.#rested = 0;
    this.#soon();
  }

  /** Light a stretch [from, to] of the horizontal axis, or none. */
  mark(stretch) {
    this.#mark = stretch;
    this.#placeMark();
  }

  #resize({ width, height }) {
    this.#size = { width: Math.floor(width), height: Math.floor(height) };
    this.#rested = 0;
    this.#soon();
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => whenIdle(() => this.#draw()), Math.max(0, this.#rested - performance.now()));
  }

  #draw() {
    const { width, height } = this.#size;
    if (!this.#figure || width < 80 || height < 40 || !this.root.isConnected) return;
    const began = performance.now();
    if (!globalThis.Plotly) this.#rested = began + 100; // it is large and comes after the text
    if (began < this.#rested) {
      this.#soon();
      return;
    }
    this.#colours ??= palette(this.root);
    const figure = this.#figure(this.#colours);
    globalThis.Plotly.react(this.plot, figure.traces, { ...layout(this.#colours, figure), width, height }, CONFIG);
    this.say(figure.label);
    this.#name(figure);
    this.#listen();
    this.#range = figure.x.range;
    this.#placeMark();
    const ended = performance.now();
    this.#rested = ended + Math.min(MOST_REST, REST * (ended - began));
  }

  // The units of the vertical axes, beside them.
  #name({ y, y2 }) {
    const titles = [y, y2].flatMap((axis) => axis?.title ?? []);
    if (titles.join() === this.#titles) return;
    this.#titles = titles.join();
    this.units.replaceChildren(...titles.map((title) => el("span", {}, title)));
  }

  #titles = "";
  #listening = false;

  #listen() {
    if (this.#listening) return;
    this.#listening = true;
    const id = (event) => event.points?.[0]?.customdata ?? null;
    this.plot.on("plotly_hover", (event) => this.onhover?.(id(event)));
    this.plot.on("plotly_unhover", () => this.onhover?.(null));
    this.plot.on("plotly_click", (event) => id(event) !== null && this.onclick?.(id(event)));
  }

  #placeMark() {
    const [from, to] = this.#range ?? [0, 1];
    const room = this.#size.width - MARGIN.l - MARGIN.r;
    const at = (x) => MARGIN.l + (room * (x - from)) / (to - from);
    this.band.hidden = !this.#mark || !this.#range || this.#mark[0] > to;
    if (this.band.hidden) return;
    const [left, right] = this.#mark.map(at);
    this.band.style.left = `${left}px`;
    this.band.style.width = `${Math.max(2, right - left)}px`;
  }
}
