// One of the places for a chart: a row of tabs, the key, the drawing, the axis and the ways to take it along.

import { el } from "../parts/dom.js";
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
    const id = `sd-chart-${Math.random().toString(36).slice(2)}`;
    this.tabs = Object.fromEntries(NAMES.map((name) => [name, this.#tab(name, id)]));
    const row = el("div", { class: "sd-chart-tabs", role: "tablist", "aria-label": words.slots[i], onkeydown: (event) => this.#walk(event) }, ...Object.values(this.tabs));
    this.menu = el("select", { class: "sd-speed sd-chart-menu", "aria-label": words.slots[i], onchange: () => asks.choose(this.menu.value) },
      ...NAMES.map((name) => el("option", { value: name }, words.titles[name])));
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
    this.panel = el("div", { class: "sd-chart-panel", role: "tabpanel", id }, this.key, this.plot.root, foot);
    this.root = el("section", { class: "sd-chart" }, row, this.menu, this.panel);
  }

  /** @param {string} name @param {Choice["axis"]} axis */
  choose(name, axis) {
    this.#name = name;
    for (const [other, tab] of Object.entries(this.tabs)) {
      const chosen = other === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    this.menu.value = name;
    this.panel.setAttribute("aria-label", this.#words.titles[name]);
    for (const [other, node] of Object.entries(this.axes)) node.setAttribute("aria-pressed", String(other === axis));
    this.plot.redraw();
  }

  /**
   * learns: whether there are earlier runs to compare with; kind: of the state's source, none before a run
   * @param {{ learns: boolean, kind: string }} how
   */
  render({ learns, kind }) {
    this.tabs.history.hidden = !learns && this.#name !== "history";
    if (this.#kind !== kind) {
      this.#kind = kind;
      this.origin.className = `sd-origin sd-origin-${kind}`;
      this.origin.textContent = this.#words.origin[kind] ?? "";
    }
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
    this.empty.hidden = !figure.empty;
    this.empty.textContent = figure.empty;
    this.#fillSheet();
  }

  #fillSheet() {
    if (!this.table.open || !this.#figure) return;
    const { heads, rows } = this.#figure.table();
    this.sheet.setAttribute("aria-label", this.#words.table_label.replace("{title}", this.#words.titles[this.#name]));
    /** @param {string} tag @param {(string | number)[]} values @param {string} [scope] */
    const cells = (tag, values, scope) => values.map((value) => el(tag, { scope }, String(value)));
    const head = el("thead", {}, el("tr", {}, ...cells("th", heads, "col")));
    const body = rows.map(([first, ...rest]) => el("tr", {}, ...cells("th", [first], "row"), ...cells("td", rest)));
    this.sheet.replaceChildren(el("table", {}, head, el("tbody", {}, ...body)));
  }

  /** @param {string} name @param {string} controls */
  #tab(name, controls) {
    const { tabs, titles } = this.#words;
    return el("button", { type: "button", role: "tab", title: titles[name], "aria-controls": controls, onclick: () => this.#asks.choose(name) }, tabs[name]);
  }

  /** Arrow keys choose the next chart, as in every row of tabs. @param {KeyboardEvent} event */
  #walk(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const names = NAMES.filter((name) => !this.tabs[name].hidden);
    const next = names[(names.indexOf(this.#name) + by + names.length) % names.length];
    event.preventDefault();
    this.#asks.choose(next);
    this.tabs[next].focus();
  }
}

/** @param {string} text @param {() => void} onclick @param {string} [label] */
function button(text, onclick, label = text) {
  return el("button", { type: "button", class: "sd-chart-button", "aria-label": label, title: label, onclick }, text);
}
