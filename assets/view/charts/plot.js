// The element that keeps a drawing as it grows, is resized or changes its theme. Knows nothing of what is drawn.

import { el } from "../parts/dom.js";
import { areas, drawn, margins } from "./paper.js";

/** @import { Draw, Drawing, Palette } from "./figure" */
const COLOURS = ["ink", "soft", "line", "grid", "card", "accepted", "rejected", "correction", "bonus", "drafted"];
const NEAR = 40; // pixels from the pointer to a point that it finds
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
  /** What is drawn, for who looks at it. @type {Drawing | null} */
  drawing = null;
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
    this.hover = el("div", { class: "sd-plot-hover", hidden: true, "aria-hidden": "true" });
    this.root = el("div", { class: "sd-plot-box" }, this.plot, this.units, this.band, this.hover);
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("pointerleave", () => this.#point(null));
    this.plot.addEventListener("click", () => this.#found !== null && this.onclick?.(this.#found));
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
    if (began < this.#rested) {
      this.#soon();
      return;
    }
    const colours = (this.#colours ??= palette(this.root));
    const figure = this.#figure(colours);
    if (!figure) return;
    const text = drawn(colours, figure, this.#frame(colours), this.#id);
    this.plot.replaceChildren(document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true));
    if (figure.label) this.say(figure.label);
    this.#name(figure);
    this.drawing = figure;
    Object.assign(this.plot, { drawing: figure });
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
  #id = `sd-plot-${Math.random().toString(36).slice(2)}`;
  /** @type {number | null} */
  #found = null; // what belongs to the point under the pointer

  #frame(/** @type {Palette} */ colours) {
    return { ...this.#size, ...margins(colours) };
  }

  /** Read the point next to the pointer: the nearest across, and of those the nearest one. @param {PointerEvent | null} event */
  #point(event) {
    const { drawing } = this;
    const near = event && drawing && this.#colours ? this.#nearest(event, drawing, this.#colours) : null;
    this.hover.hidden = !near;
    if (near) {
      this.hover.textContent = near.text;
      const right = near.x < this.#size.width / 2;
      this.hover.style.left = right ? `${near.x + 8}px` : "auto";
      this.hover.style.right = right ? "auto" : `${this.#size.width - near.x + 8}px`;
      this.hover.style.top = `${Math.max(0, Math.min(near.y - 12, this.#size.height - this.hover.offsetHeight))}px`;
    }
    const found = near?.id ?? null;
    if (found !== this.#found) this.onhover?.(found);
    this.#found = found;
  }

  /** @param {PointerEvent} event @param {Drawing} drawing @param {Palette} colours */
  #nearest({ clientX, clientY }, drawing, colours) {
    const { left, top } = this.plot.getBoundingClientRect();
    const { x, above } = areas(drawing, this.#frame(colours));
    const points = drawing.traces.flatMap(({ x: across, y, text, ids }) => (text ?? []).flatMap((said, i) => {
      const [at, height] = [across[i], y[i] ?? null];
      if (at === null || height === null || !said) return [];
      return [{ x: x(at), y: above.up(height), text: said, id: ids?.[i] ?? null, far: Math.abs(x(at) - clientX + left) + Math.abs(above.up(height) - clientY + top) / 1000 }];
    }));
    const near = points.sort((one, other) => one.far - other.far)[0];
    return near && near.far < NEAR ? near : null;
  }

  #placeMark() {
    const [, to] = this.drawing?.x.range ?? [0, 1];
    const mark = this.#mark && this.drawing && this.#colours && this.#mark[0] <= to ? this.#mark : null;
    this.band.hidden = !mark;
    if (!mark || !this.drawing || !this.#colours) return;
    const [left, right] = mark.map(areas(this.drawing, this.#frame(this.#colours)).x);
    this.band.style.left = `${left}px`;
    this.band.style.width = `${Math.max(2, right - left)}px`;
  }
}
