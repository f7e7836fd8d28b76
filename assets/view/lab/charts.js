// The lab's charts. Speedup over drafted tokens: lines are modelled, points are measured, the chosen lookahead can be dragged.
// And the ladder of a machine: what a target pass of several rows costs, next to the assumption that rows are free.

import { Pen, evenLine, keyItems } from "../charts/pen.js";
import { Plot, margins, palette } from "../charts/plot.js";
import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { table } from "../parts/blocks.js";
import { el } from "../parts/dom.js";

/** @import { Drawing, Look, Palette } from "../charts/figure" */
/** @import { Words } from "../parts/page" */
/** @import { Shown } from "./types" */

/** Lines and points; every kind of point has a shape of its own besides its colour. @type {Record<string, Look>} */
const LOOKS = {
  chain: { shape: "line", colour: "accepted", width: 2.5 },
  tree: { shape: "line", colour: "correction", width: 2.5, dash: "9px,4px" },
  overlap: { shape: "line", colour: "bonus", width: 2.5, dash: "9px,3px,2px,3px" },
  recorded: { shape: "point", colour: "accepted", symbol: "circle-open" },
  measured: { shape: "point", colour: "accepted", symbol: "circle" },
  whole: { shape: "point", colour: "ink", symbol: "square" },
};
const STAR = 15; // pixels of the mark of the best step
const NARROW = 480; // pixels below which every second number of the axis is written
const SPARE = 0.3; // drafted tokens between the axis and the first of them
const THUMB = 22; // pixels of the thumb of a slider, as in the style sheet

export class CostChart {
  #words;
  #edge = 1; // the longest chain that can be chosen

  /** pick(k): called with another lookahead that is chosen. @param {Words} words @param {(k: number) => void} pick */
  constructor(words, pick) {
    this.#words = words;
    this.plot = new Plot();
    const moved = () => pick(Math.min(this.#edge, Math.max(1, Number(this.grip.value))));
    this.grip = el("input", { type: "range", class: "sd-cost-grip", min: 0, step: 1, "aria-label": words.k, oninput: moved });
    this.legend = el("ul", { class: "sd-cost-legend" });
    this.plot.root.classList.add("sd-cost-picture");
    this.plot.root.append(this.grip);
    const across = el("p", { class: "sd-race-across" }, words.x_axis);
    this.root = el("div", { class: "sd-cost-chart" }, el("p", { class: "sd-cost-unit" }, words.y_axis), el("div", { class: "sd-cost-box" }, this.plot.root), across, this.legend);
  }

  render(/** @type {Shown} */ shown) {
    this.plot.show((colours) => costFigure(shown, this.#words, colours, this.plot.root.clientWidth < NARROW));
    this.#place(shown);
    const names = new Set([...shown.lines, ...shown.points].map((one) => one.name));
    if (this.legend.dataset.names === [...names].join()) return;
    this.legend.dataset.names = [...names].join();
    this.legend.replaceChildren(...keyItems([...names].map((name) => [LOOKS[name], this.#words.names[name]])));
  }

  /** The slider of the chosen lookahead stands on the axis. @param {Shown} shown */
  #place({ chosen, best, edge, most }) {
    const { l, r } = margins(palette(this.plot.root));
    const spare = `${(SPARE / (most + 2 * SPARE)).toFixed(4)} * (100% - ${l + r}px)`;
    this.grip.style.left = `calc(${l - THUMB / 2}px + ${spare})`;
    this.grip.style.width = `calc(100% - ${l + r - THUMB}px - 2 * ${spare})`;
    this.#edge = edge;
    this.grip.max = String(most);
    this.grip.value = String(chosen.drafted);
    this.grip.setAttribute("aria-valuetext", best ? fill(this.#words.chosen, { k: chosen.drafted, speedup: two(chosen.speedup) }) : String(chosen.drafted));
  }
}

/** @param {Shown} shown @param {Words} words @param {Palette} colours @param {boolean} [narrow] @returns {Drawing} */
export function costFigure({ most, top, lines, points, chosen, best }, words, colours, narrow = false) {
  const pen = new Pen(colours, LOOKS, words.names);
  /** @param {number} x @param {number} y @param {object} marker */
  const mark = (x, y, marker) => ({ type: "scatter", mode: "markers", x: [x], y: [y], marker, hoverinfo: "skip", cliponaxis: false });
  const named = !best ? "" : best.drafted ? fill(words.best_label, { k: best.drafted, speedup: two(best.speedup) }) : words.never;
  const { shapes, annotations } = evenLine(colours, words.even, best && lines.some(({ steps }) => (steps[most] ?? best).speedup < 1) ? "bottom" : "top");
  const stem = { type: "line", x0: chosen.drafted, x1: chosen.drafted, y0: 0, y1: best ? chosen.speedup : top, line: { color: colours.accepted, width: 1.5 } };
  return {
    traces: [
      ...lines.map(({ name, steps }) => pen.line(name, steps.map((one) => one.drafted), steps.map((one) => one.speedup))),
      ...lines.flatMap(({ name, mark: at }) => (at ? [mark(at.drafted, at.speedup, { color: colours.card, size: 8, line: { color: colours[LOOKS[name].colour], width: 2 } })] : [])),
      ...(best ? [mark(best.drafted, best.speedup, { symbol: "diamond", color: colours.card, size: STAR, line: { color: colours.ink, width: 2 } })] : []),
      ...[...new Set(points.map(({ name }) => name))].map((name) => pen.points(name, points.filter((point) => point.name === name))),
      ...(best ? [mark(chosen.drafted, chosen.speedup, { color: colours.accepted, size: 10, line: { color: colours.card, width: 2 } })] : []),
    ],
    x: { title: words.x_axis, range: [-SPARE, most + SPARE], dtick: most > 16 ? 4 : narrow ? 2 : 1 },
    y: { title: "", range: [0, top], dtick: [0.25, 0.5, 1, 2, 5, 10].find((step) => top / step <= 7) ?? 20, ticksuffix: "×" },
    shapes: [...shapes, stem],
    annotations: [...annotations, ...(best ? [{
      // At the top edge, which no line and no point reaches.
      x: best.drafted, yref: "paper", y: 1, yanchor: "top", showarrow: false, text: `<b>${named}</b>`, font: { color: colours.ink },
      xanchor: best.drafted < most / 4 ? "left" : best.drafted > 0.75 * most ? "right" : "center",
    }] : [])],
    label: [words.label, named].filter(Boolean).join(": "),
  };
}

/** A ladder in passes of one row: { rows, cost, milliseconds } of each measured count. @param {[number, number][]} points rows and seconds */
export const rungs = (points) => points.map(([rows, seconds]) => ({ rows, cost: seconds / points[0][1], milliseconds: 1000 * seconds }));

export class Ladder {
  #words;
  #shown = "";

  /** @param {Words} words of the lab */
  constructor(words) {
    this.#words = words;
    this.tag = el("span", { class: "sd-badge" });
    this.told = el("p", { class: "sd-lab-hint" });
    this.plot = new Plot();
    this.plot.root.classList.add("sd-ladder");
    this.numbers = el("div");
    this.root = el("section", { class: "sd-lab-card", hidden: true }, el("h3", {}, words.ladder.title, " ", this.tag), this.plot.root,
      el("p", { class: "sd-race-across" }, words.ladder.rows), this.told,
      el("details", {}, el("summary", {}, words.ladder.numbers), this.numbers));
  }

  /** points: rows and seconds, null if none were measured; origin: where. @param {{ points: [number, number][] | null, origin: string, name: string }} ladder */
  render({ points, origin, name }) {
    this.root.hidden = !points || points.length < 2;
    const key = JSON.stringify([points, origin]);
    if (!points || this.root.hidden || key === this.#shown) return;
    this.#shown = key;
    const { ladder: words, model } = this.#words;
    const all = rungs(points);
    const last = all[all.length - 1];
    this.tag.textContent = model.tags[origin];
    this.tag.className = `sd-badge sd-badge-${origin}`;
    this.told.textContent = fill(words.told, { name, rows: last.rows, cost: two(last.cost), each: two((last.cost - 1) / (last.rows - 1)) });
    this.numbers.replaceChildren(table(words.columns, all.map(({ rows, cost, milliseconds }) => [String(rows), two(milliseconds), two(cost)]), { class: "sd-lab-table" }));
    this.plot.show((colours) => ({
      traces: [new Pen(colours, { chain: { ...LOOKS.chain, symbol: "circle" } }, {}).line("chain", all.map(({ rows }) => rows), all.map(({ cost }) => cost), { cliponaxis: false })],
      x: { title: words.rows, range: [0.5, last.rows + 0.5], tickvals: [1, 4, 8, 16, 32, 64] },
      y: { title: "", range: [0, 1.15 * Math.max(1.4, ...all.map(({ cost }) => cost))], nticks: 6, ticksuffix: "×" },
      ...evenLine(colours, words.assumed, "bottom"),
      label: words.title,
    }));
  }
}
