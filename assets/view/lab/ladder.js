// The ladder of a machine: what a target pass of several rows costs, measured, beside the assumption that rows are free.

import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { el, svg } from "../parts/dom.js";
import { table } from "../parts/table.js";

/** @import { Words } from "../parts/page" */

const HEIGHT = 220;
const TOP = 28; // above it stands what the dashed line is, clear of every line
const LEFT = 40;
const BOTTOM = 36;

/** A ladder in passes of one row: { rows, cost, milliseconds } of each measured count. @param {[number, number][]} points rows and seconds */
export const rungs = (points) => points.map(([rows, seconds]) => ({ rows, cost: seconds / points[0][1], milliseconds: 1000 * seconds }));

export class Ladder {
  #words;
  #shown = "";
  /** @type {ReturnType<typeof rungs>} */
  #rungs = [];

  /** @param {Words} words of the lab */
  constructor(words) {
    this.#words = words;
    this.tag = el("span", { class: "sd-badge" });
    this.told = el("p", { class: "sd-lab-hint" });
    this.picture = svg("svg", { class: "sd-ladder", role: "img", "aria-label": words.ladder.title });
    this.numbers = el("div");
    this.root = el("section", { class: "sd-lab-card", hidden: true }, el("h3", {}, words.ladder.title, " ", this.tag), this.picture, this.told,
      el("details", {}, el("summary", {}, words.ladder.numbers), this.numbers));
    new ResizeObserver(() => this.#draw()).observe(this.picture);
  }

  /** points: rows and seconds, null where none were measured; origin: where. @param {{ points: [number, number][] | null, origin: string, name: string }} ladder */
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
    this.#rungs = all;
    this.#draw();
  }

  // As wide as its place, so that letters keep their size on a phone.
  #draw() {
    const { ladder: words } = this.#words;
    const all = this.#rungs;
    const width = this.picture.getBoundingClientRect().width;
    if (!all.length || !width) return;
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const last = all[all.length - 1];
    const top = 1.15 * Math.max(1.4, ...all.map(({ cost }) => cost));
    /** @param {number} rows */
    const x = (rows) => LEFT + ((rows - 1) / (last.rows - 1)) * (width - LEFT - 16);
    /** @param {number} cost */
    const y = (cost) => HEIGHT - BOTTOM - (cost / top) * (HEIGHT - BOTTOM - TOP);
    /** @param {string} text @param {number} left @param {number} above @param {string} anchor */
    const label = (text, left, above, anchor) => {
      const node = svg("text", { x: left, y: above, "text-anchor": anchor, class: "sd-cost-text" });
      node.textContent = text;
      return node;
    };
    const costs = Array.from({ length: Math.floor(top) + 1 }, (_, i) => i).filter((cost) => top < 6 || cost % 4 === 0);
    const marks = all.map(({ rows, cost }) => svg("circle", { cx: x(rows), cy: y(cost), r: 4, class: "sd-cost-point" }));
    this.picture.replaceChildren(
      ...costs.map((cost) => svg("line", { x1: LEFT, x2: width - 16, y1: y(cost), y2: y(cost), class: "sd-cost-grid" })),
      ...costs.map((cost) => label(`${cost}×`, LEFT - 8, y(cost) + 4, "end")),
      ...[1, ...[4, 8, 16, 32, 64].filter((rows) => rows <= last.rows)].map((rows) => label(String(rows), x(rows), HEIGHT - BOTTOM + 15, "middle")),
      label(words.rows, (LEFT + width) / 2, HEIGHT - 4, "middle"),
      svg("line", { x1: x(1), x2: x(last.rows), y1: y(1), y2: y(1), class: "sd-cost-even" }),
      svg("line", { x1: LEFT, x2: LEFT + 24, y1: 10, y2: 10, class: "sd-cost-even" }),
      label(words.assumed, LEFT + 30, 14, "start"),
      svg("path", { d: all.map(({ rows, cost }, i) => `${i ? "L" : "M"}${x(rows).toFixed(1)} ${y(cost).toFixed(1)}`).join(""), class: "sd-cost-line sd-cost-chain" }),
      ...marks,
    );
  }
}
