// The element that keeps a drawing as it grows, is resized or changes its theme. Knows nothing of what is drawn.

import { el } from "../parts/dom.js";
import { layout, margins } from "./axes.js";

/** @import { Draw, Drawing, Palette, PlotlyElement, PlotlyEvent } from "./figure" */

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
    new ResizeObserver(([entry]) => this.#resize(entry.contentRect)).observe(this.root);
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

  /** @param {{ width: number, height: number }} how */
  #resize({ width, height }) {
    this.#size = { width: Math.floor(width), height: Math.floor(height) };
    this.redraw(); // the presenter mode changes the theme too
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
    /** @param {PlotlyEvent} event */
    const id = (event) => event.points?.[0]?.customdata ?? null;
    const plot = /** @type {PlotlyElement} */ (this.plot);
    plot.on("plotly_hover", (event) => this.onhover?.(id(event)));
    plot.on("plotly_unhover", () => this.onhover?.(null));
    plot.on("plotly_click", (event) => id(event) !== null && this.onclick?.(id(event)));
  }

  #placeMark() {
    const [from, to] = this.#range ?? [0, 1];
    const { l, r } = margins(this.#colours ?? palette(this.root));
    const room = this.#size.width - l - r;
    /** @param {number} x */
    const at = (x) => l + (room * (x - from)) / (to - from);
    const mark = this.#mark && this.#range && this.#mark[0] <= to ? this.#mark : null;
    this.band.hidden = !mark;
    if (!mark) return;
    const [left, right] = mark.map(at);
    this.band.style.left = `${left}px`;
    this.band.style.width = `${Math.max(2, right - left)}px`;
  }
}
