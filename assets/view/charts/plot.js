// The element that keeps a drawing as it grows, is resized or changes its theme. Knows nothing of what is drawn.

import { el } from "../parts/dom.js";
import { CLEAR } from "./pen.js";

/** @import { Axis, Draw, Drawing, Figure, Palette, PlotlyElement, PlotlyEvent } from "./figure" */
const COLOURS = ["ink", "soft", "line", "grid", "card", "accepted", "rejected", "correction", "bonus", "drafted"];
const CONFIG = { displayModeBar: false };
const EVERY = 60; // milliseconds from one drawing's begin to the next, so that a chart is never seen behind the player
const REST = 2; // times as long as a drawing took, the next one waits: a slow machine draws less often
const LATE = 10; // milliseconds that a drawing may wait for a moment between two frames
/** @param {() => void} call */
const whenIdle = (call) => ("requestIdleCallback" in globalThis ? requestIdleCallback(call, { timeout: LATE }) : call());

/** The theme's colours, font and size of ticks where an element stands. @param {Element} element */
export function palette(element) {
  const style = getComputedStyle(element);
  const colours = COLOURS.map((name) => [name, style.getPropertyValue(`--sd-${name}`).trim()]);
  return { font: style.fontFamily, tick: style.getPropertyValue("--sd-tick"), ...Object.fromEntries(colours) };
}

/** An element that keeps a drawing. `show` may be called as often as one likes. */
export class Plot {
  /** @type {((id: any) => void) | null} */
  onhover = null; // (id or null): the pointer came upon a point, or left
  /** @type {((id: any) => void) | null} */
  onclick = null; // (id)
  /** @type {Draw | null} */
  #figure = null;
  #size = { width: 0, height: 0 };
  /** @type {Palette | null} */
  #colours = null;
  #timer = 0;
  #rested = 0; // when the next drawing may be made, by performance.now()
  /** @type {[number, number] | null} */
  #range = null;
  /** @type {[number, number] | null} */
  #mark = null;

  /** What the picture shows, for who cannot see it; an image without a name would be worse than none. @param {string} label */
  say(label) {
    this.plot.setAttribute("role", "img");
    this.plot.setAttribute("aria-label", label);
  }

  constructor() {
    this.plot = el("div", { class: "sd-plot" });
    this.band = el("div", { class: "sd-plot-mark", hidden: true });
    this.units = el("div", { class: "sd-plot-units", "aria-hidden": "true" });
    this.root = el("div", { class: "sd-plot-box" }, this.plot, this.units, this.band);
    new ResizeObserver(([{ contentRect: { width, height } }]) => {
      this.#size = { width: Math.floor(width), height: Math.floor(height) };
      this.redraw(); // the presenter mode changes the theme too
    }).observe(this.root);
    const theme = new MutationObserver(() => (this.root.isConnected ? this.redraw() : theme.disconnect()));
    theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  }

  /** Draw soon what figure(colours) gives by then: its traces, what `layout` takes, and as `label` what is read out. @param {Draw} figure */
  show(figure) {
    this.#figure = figure;
    this.#soon();
  }

  /** The theme may have changed. */
  redraw() {
    this.#colours = null;
    this.#rested = 0;
    this.#soon();
  }

  /** Light a stretch [from, to] of the horizontal axis, or none. @param {[number, number] | null} stretch */
  mark(stretch) {
    this.#mark = stretch;
    this.#placeMark();
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => whenIdle(() => this.#draw()), Math.max(0, this.#rested - performance.now()));
  }

  #draw() {
    const { width, height } = this.#size;
    if (!this.#figure || width < 80 || height < 40 || !this.root.isConnected) return;
    const began = performance.now();
    const { Plotly } = globalThis;
    if (!Plotly) this.#rested = began + 100; // it is large and comes after the text
    if (!Plotly || began < this.#rested) {
      this.#soon();
      return;
    }
    const colours = (this.#colours ??= palette(this.root));
    const figure = this.#figure(colours);
    if (!figure) return;
    Plotly.react(this.plot, figure.traces, { ...layout(colours, figure), width, height }, CONFIG);
    if (figure.label) this.say(figure.label);
    this.#name(figure);
    this.#listen();
    this.#range = figure.x.range;
    this.#placeMark();
    const took = performance.now() - began;
    this.#rested = began + took + Math.max(EVERY - took, REST * took);
  }

  /** The units of the vertical axes, beside them. @param {Drawing} drawing */
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
    const id = (/** @type {PlotlyEvent} */ event) => event.points?.[0]?.customdata ?? null;
    const plot = /** @type {PlotlyElement} */ (this.plot);
    plot.on("plotly_hover", (event) => this.onhover?.(id(event)));
    plot.on("plotly_unhover", () => this.onhover?.(null));
    plot.on("plotly_click", (event) => id(event) !== null && this.onclick?.(id(event)));
  }

  #placeMark() {
    const [from, to] = this.#range ?? [0, 1];
    const { l, r } = margins(this.#colours ?? palette(this.root));
    const room = this.#size.width - l - r;
    const at = (/** @type {number} */ x) => l + (room * (x - from)) / (to - from);
    const mark = this.#mark && this.#range && this.#mark[0] <= to ? this.#mark : null;
    this.band.hidden = !mark;
    if (!mark) return;
    const [left, right] = mark.map(at);
    this.band.style.left = `${left}px`;
    this.band.style.width = `${Math.max(2, right - left)}px`;
  }
}

// ---- Plotly's layout of a figure: on the page, where its titles stand beside it, and as a picture on paper

const TICK = 12; // pixels of a tick's letters, where the style sheet says nothing

/** Pixels around the plotting area, for the ticks' letters; the horizontal title stands below it. @param {Palette} colours */
export function margins({ tick }) {
  const letters = Number(tick) || TICK;
  return { l: 3 * letters + 6, r: 10, t: 7, b: letters + 8 };
}

/**
 * Plotly's layout of a figure, in the colours of the theme and without motion.
 * figure: { x, y } and perhaps y2, which stands below y: Plotly's axes, { title, range, ... }; shapes, annotations
 * The titles are left to the page: to measure texts is most of what a drawing costs.
 * @param {Palette} colours @param {Pick<Figure, "x" | "y" | "y2" | "shapes" | "annotations">} figure
 */
function layout(colours, { x, y, y2, shapes = [], annotations = [] }) {
  const size = Number(colours.tick) || TICK;
  /** @param {Axis} axis */
  const axis = ({ title: _, ...rest }) => ({
    gridcolor: colours.grid, linecolor: colours.line, zeroline: false, fixedrange: true,
    tickfont: { size }, tickangle: 0, ticklabeloverflow: "allow", ...rest,
  });
  return {
    margin: margins(colours),
    paper_bgcolor: CLEAR,
    plot_bgcolor: CLEAR,
    font: { family: colours.font, size, color: colours.soft },
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

/**
 * A figure with its traces as it stands on paper: with a title, a legend and the names of its axes.
 * @param {Palette} colours @param {Figure} figure @param {string} title
 */
export function picture(colours, figure, title) {
  const drawn = layout(colours, figure);
  /** @param {"xaxis" | "yaxis" | "yaxis2"} name @param {Axis} axis */
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
