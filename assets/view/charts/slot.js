// One of the places for a chart: its menu, the key, the drawing, the axis and the ways to take it along.

import { table } from "../parts/blocks.js";
import { button as anyButton, el, menu } from "../parts/dom.js";
import { NAMES, keyOfFigure } from "./figures.js";
import { keyItems } from "./pen.js";
import { Plot } from "./plot.js";

/** @import { Words } from "../parts/page" */
/** @import { Asks, Choice, Figure, Palette } from "./figure" */

export class Slot {
  #words;
  #asks;
  #name = "";
  /** @type {Figure | null} */
  #figure = null;
  #key = "";
  #kind = "";

  /** @param {Words} words @param {number} i @param {Asks} asks */
  constructor(words, i, asks) {
    this.#words = words;
    this.#asks = asks;
    this.menu = menu({ class: "sd-speed sd-chart-menu", "aria-label": words.slots[i], onchange: () => asks.choose(this.menu.value) }, NAMES.map((name) => [name, words.titles[name]]));
    this.key = el("ul", { class: "sd-chart-key" });
    this.empty = el("p", { class: "sd-chart-empty", hidden: true });
    this.plot = new Plot();
    this.plot.root.append(this.empty);
    this.plot.onhover = (index) => asks.select(index ?? -1, false);
    this.plot.onclick = (index) => asks.select(index, true);
    this.axes = Object.fromEntries(Object.entries(words.axes).map(([axis, text]) => [axis, button(text, () => asks.turn(/** @type {Choice["axis"]} */ (axis)))]));
    this.turn = el("div", { class: "sd-chart-axis", role: "group", "aria-label": words.axis }, ...Object.values(this.axes));
    this.across = el("span", { class: "sd-chart-across" });
    this.origin = el("span", { class: "sd-origin" });
    /** @param {"png" | "svg"} format */
    const save = (format) => button(format.toUpperCase(), () => asks.save(this.#name, format), words.save.replace("{format}", format.toUpperCase()));
    this.sheet = el("div", { class: "sd-chart-sheet", role: "region", tabindex: "0" });
    const summary = el("summary", {}, words.table);
    this.table = el("details", { class: "sd-chart-table", ontoggle: () => this.#fillSheet() }, summary, this.sheet);
    this.tools = el("div", { class: "sd-chart-tools" }, this.table, save("png"), save("svg"));
    const foot = el("div", { class: "sd-chart-foot" }, this.turn, this.across, this.origin, this.tools);
    this.panel = el("div", { class: "sd-chart-panel", role: "group" }, this.key, this.plot.root, foot);
    this.root = el("section", { class: "sd-chart" }, this.menu, this.panel);
  }

  /** @param {string} name @param {Choice["axis"]} axis */
  choose(name, axis) {
    this.#name = name;
    this.menu.value = name;
    this.panel.setAttribute("aria-label", this.#words.titles[name]);
    for (const [other, node] of Object.entries(this.axes)) node.setAttribute("aria-pressed", String(other === axis));
    this.plot.redraw();
  }

  /** kind: of the state's source, none before a run @param {string} kind */
  render(kind) {
    if (this.#kind !== kind) {
      this.#kind = kind;
      this.origin.className = `sd-origin sd-origin-${kind}`;
      this.origin.textContent = this.#words.origin[kind] ?? "";
    }
    if (kind && !globalThis.Plotly) this.#note(this.#words.later);
    this.plot.show((colours) => this.#draw(colours));
  }

  light() {
    this.plot.mark(this.#figure?.place(this.#asks.lit()) ?? null);
  }

  #draw(/** @type {Palette} */ colours) {
    const figure = this.#asks.figure(this.#name, colours);
    this.#figure = figure;
    if (figure) this.#say(figure);
    this.light();
    return figure;
  }

  #say(/** @type {Figure} */ figure) {
    const entries = keyOfFigure(figure);
    const key = entries.map(([, text]) => text).join("\n");
    if (key !== this.#key) this.key.replaceChildren(...keyItems(entries));
    this.#key = key;
    this.turn.hidden = !figure.shared;
    this.across.textContent = figure.shared ? "" : figure.x.title;
    this.#note(figure.empty);
    this.#fillSheet();
  }

  /** Say why nothing is drawn. @param {string} reason */
  #note(reason) {
    this.empty.hidden = !reason;
    this.empty.textContent = reason;
  }

  #fillSheet() {
    if (!this.table.open || !this.#figure) return;
    const { heads, rows } = this.#figure.table();
    this.sheet.setAttribute("aria-label", this.#words.table_label.replace("{title}", this.#words.titles[this.#name]));
    this.sheet.replaceChildren(table(heads, rows.map((cells) => cells.map(String))));
  }
}

/** @param {string} text @param {() => void} act @param {string} [label] */
const button = (text, act, label = text) => anyButton(text, act, { class: "sd-chart-button", "aria-label": label, title: label });
