// The lab's chart: speedup over drafted tokens. Lines are modelled, points are measured; the chosen lookahead can be dragged.

import { el, svg } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { two } from "../core/metrics.js";
import { placeLabels } from "./labels.js";

/**
 * @import { Point, Priced, Shown } from "./types"
 * @import { Words } from "../parts/page"
 * @import { Place } from "./labels"
 */

const LEFT = 44;
const RIGHT = 18;
const TOP = 22;
const BOTTOM = 46;

export class CostChart {
  #words;
  #pick;
  /** @type {Shown | null} */
  #drawn = null;
  /** @type {{ x(drafted: number): number, y(value: number): number, width: number, height: number }} */
  #scale = { x: Number, y: Number, width: 0, height: 0 };

  /** pick(k): called with another lookahead that is chosen. @param {Words} words @param {(k: number) => void} pick */
  constructor(words, pick) {
    this.#words = words;
    this.#pick = pick;
    this.picture = svg("svg", { class: "sd-cost-picture" });
    this.grip = svg("g", { class: "sd-cost-grip", role: "slider", tabindex: 0, "aria-label": words.k, "aria-valuemin": 1 });
    this.legend = el("ul", { class: "sd-cost-legend" });
    this.box = el("div", { class: "sd-cost-box" }, this.picture);
    this.root = el("div", { class: "sd-cost-chart" }, this.box, this.legend);
    new ResizeObserver(() => this.#draw()).observe(this.box);
    this.#listen();
  }

  /** @param {Shown} shown */
  render(shown) {
    this.#drawn = shown;
    this.#draw();
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.box;
    if (!this.#drawn || !width || !height) return;
    const { most, top, lines, points, chosen, best, edge } = this.#drawn;
    /** @param {number} drafted */
    const x = (drafted) => LEFT + (drafted / most) * (width - LEFT - RIGHT);
    /** @param {number} value */
    const y = (value) => height - BOTTOM - (Math.min(value, top) / top) * (height - TOP - BOTTOM);
    this.#scale = { x, y, width, height };
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    /** @type {SVGElement[]} */
    const parts = [...this.#axes(most, top)];
    for (const line of lines) {
      const path = line.steps.filter((one) => one.drafted <= most).map((one, i) => `${i ? "L" : "M"}${x(one.drafted).toFixed(1)} ${y(one.speedup).toFixed(1)}`);
      parts.push(svg("path", { d: path.join(""), class: `sd-cost-line sd-cost-${line.name}` }));
      if (line.mark) parts.push(svg("circle", { cx: x(line.mark.drafted), cy: y(line.mark.speedup), r: 4, class: `sd-cost-dot sd-cost-${line.name}` }));
    }
    if (best) parts.push(this.#star(best));
    for (const point of points.filter((one) => one.x <= most)) parts.push(this.#point(point));
    parts.push(this.#chosen(chosen, best, edge), ...this.#labels(this.#drawn));
    const focused = document.activeElement === this.grip;
    this.picture.replaceChildren(...parts);
    if (focused) this.grip.focus();
    this.#names(lines, points);
  }

  /** @param {number} most @param {number} top */
  *#axes(most, top) {
    const { x, y, width, height } = this.#scale;
    const tick = [0.25, 0.5, 1, 2, 5, 10].find((step) => top / step <= 7) ?? 20;
    for (let value = 0; value <= top + 1e-9; value += tick) {
      yield svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: "sd-cost-grid" });
      yield label(`${Number(value.toFixed(2))}×`, { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" });
    }
    const every = most > 16 ? 4 : width < 480 ? 2 : 1;
    for (let drafted = 0; drafted <= most; drafted += every) {
      yield label(drafted, { x: x(drafted), y: height - BOTTOM + 23, "text-anchor": "middle" });
    }
    yield label(this.#words.x_axis, { x: (LEFT + width - RIGHT) / 2, y: height - 6, "text-anchor": "middle" });
    yield label(this.#words.y_axis, { x: 4, y: 12 });
    yield svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(1), y2: y(1), class: "sd-cost-even" });
  }

  /** The labels among the marks, where they meet none. @param {Shown} shown */
  #labels(shown) {
    const { x, y, width, height } = this.#scale;
    const words = this.#words;
    const { best } = shown;
    const named = !best ? "" : best.drafted ? fill(words.best_label, { k: best.drafted, speedup: two(best.speedup) }) : words.never;
    const size = parseFloat(getComputedStyle(this.legend).fontSize);
    const places = placeLabels(shown, { x, y, frame: { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM } }, { even: words.even, best: named, size });
    /** @param {string} text @param {Place} place @param {string} kind */
    const at = (text, { x: left, y: above, anchor }, kind) => label(text, { x: left, y: above, "text-anchor": anchor, class: `sd-cost-text ${kind} sd-cost-halo` });
    return [at(words.even, places.even, "sd-cost-plain"), ...(places.best ? [at(named, places.best, "sd-cost-strong")] : [])];
  }

  /** @param {Point} point */
  #point({ name, x: at, y: value, size, text }) {
    const { x, y } = this.#scale;
    const shape = svg("path", { d: SHAPES[name](size), class: `sd-cost-point sd-cost-${name}`, transform: `translate(${x(at).toFixed(1)} ${y(value).toFixed(1)})` });
    const title = svg("title", {});
    title.textContent = text;
    shape.append(title);
    return shape;
  }

  /** @param {Priced} best */
  #star(best) {
    const { x, y } = this.#scale;
    return svg("path", { d: SHAPES.best(11), class: "sd-cost-star", transform: `translate(${x(best.drafted)} ${y(best.speedup)})` });
  }

  // The chosen lookahead: a line from the axis up, with a grip that the pointer drags and the arrow keys move.
  /** @param {Priced} chosen @param {Priced | null} best @param {number} edge */
  #chosen(chosen, best, edge) {
    const { x, y, height } = this.#scale;
    const [left, above] = [x(chosen.drafted), y(chosen.speedup)];
    const hidden = !best;
    this.grip.setAttribute("aria-valuemax", String(edge));
    this.grip.setAttribute("aria-valuenow", String(chosen.drafted));
    this.grip.setAttribute("aria-valuetext", hidden ? String(chosen.drafted) : fill(this.#words.chosen, { k: chosen.drafted, speedup: two(chosen.speedup) }));
    this.grip.replaceChildren(
      svg("line", { x1: left, x2: left, y1: hidden ? TOP : above, y2: height - BOTTOM, class: "sd-cost-stem" }),
      svg("rect", { x: left - 11, y: height - BOTTOM - 11, width: 22, height: 22, rx: 11, class: "sd-cost-handle" }),
      svg("path", { d: `M${left - 2} ${height - BOTTOM - 4}l-4 4l4 4M${left + 2} ${height - BOTTOM - 4}l4 4l-4 4`, class: "sd-cost-arrows" }),
      ...(hidden ? [] : [svg("circle", { cx: left, cy: above, r: 5.5, class: "sd-cost-here" })]),
    );
    return this.grip;
  }

  /** @param {Shown["lines"]} lines @param {Point[]} points */
  #names(lines, points) {
    const names = [...new Set([...lines, ...points].map((one) => one.name))];
    if (this.legend.dataset.names === names.join()) return;
    this.legend.dataset.names = names.join();
    this.legend.replaceChildren(...names.map((name) => {
      const sample = svg("svg", { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" });
      sample.append(name in SHAPES
        ? svg("path", { d: SHAPES[name](5), transform: "translate(13 6)", class: `sd-cost-point sd-cost-${name}` })
        : svg("path", { d: "M1 6H25", class: `sd-cost-line sd-cost-${name}` }));
      return el("li", {}, sample, this.#words.names[name]);
    }));
  }

  #listen() {
    const { picture, grip } = this;
    /** @param {PointerEvent} event */
    const at = (event) => {
      if (!this.#drawn) return;
      const { left, width } = picture.getBoundingClientRect();
      const { most, edge } = this.#drawn;
      const drafted = ((event.clientX - left - LEFT) / (width - LEFT - RIGHT)) * most;
      this.#pick(Math.min(edge, Math.max(1, Math.round(drafted))));
    };
    picture.addEventListener("pointerdown", (event) => {
      if (!this.#drawn || event.button) return;
      picture.setPointerCapture(event.pointerId);
      at(event);
    });
    picture.addEventListener("pointermove", (event) => picture.hasPointerCapture(event.pointerId) && at(event));
    grip.addEventListener("keydown", (event) => {
      if (!this.#drawn) return;
      const { chosen, edge } = this.#drawn;
      const to = { ArrowRight: chosen.drafted + 1, ArrowUp: chosen.drafted + 1, ArrowLeft: chosen.drafted - 1, ArrowDown: chosen.drafted - 1, Home: 1, End: edge }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.#pick(Math.min(edge, Math.max(1, to)));
    });
  }
}

/** @param {string | number} text @param {Record<string, string | number>} attributes */
function label(text, attributes) {
  const node = svg("text", { class: "sd-cost-text", ...attributes });
  node.textContent = String(text);
  return node;
}

/** Every kind of point has a shape of its own beside its colour; the argument is half its width. @param {number} r */
const circle = (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
/** @type {Record<string, (r: number) => string>} */
const SHAPES = {
  recorded: circle,
  measured: circle,
  whole: (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
  perfect: (r) => `M0 ${-r * 1.1}L${r} ${r * 0.8}H${-r}Z`,
  random: (r) => `M0 ${r * 1.1}L${r} ${-r * 0.8}H${-r}Z`,
  best: (r) => `M0 ${-r}L${r} 0L0 ${r}L${-r} 0Z`,
};
