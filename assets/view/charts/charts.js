// The charts of a run: two places, in each of which one of them can be chosen, on one horizontal axis and with one cursor.

import { el } from "../parts/dom.js";
import { FIGURES, keyOfFigure, readRun } from "./figures.js";
import { Plot, keyItems, palette, picture } from "./plot.js";

const NAMES = Object.keys(FIGURES);
const FIRST = { slots: ["lookahead", "speedup"], axis: "steps" };
const KEPT = "specdemo.charts"; // in the browser's storage: what was chosen
const size = (format) => ({ format, width: 900, height: 440, scale: format === "png" ? 2 : 1 }); // pixels of a saved picture
const LEAST = { steps: 12, seconds: 0.4 }; // of the horizontal axis

export class ChartsView {
  /** (place of a step among its lane's steps or -1, chosen): the pointer came upon it in a chart or left, or clicked. */
  onselect = null;
  #words;
  #methods; // titles
  #state = null;
  #lit = -1;
  #choice = recall();
  #reach = { header: null, whole: false, most: LEAST, ...LEAST };

  constructor(words) {
    this.#words = words.charts;
    this.#methods = words.methods;
    this.slots = this.#choice.slots.map((_, i) => new Slot(this.#words, i, {
      figure: (name, colours) => this.#figure(name, colours),
      choose: (name) => this.#choose(i, name),
      turn: (axis) => this.#keep({ ...this.#choice, axis }),
      save: (name, format) => this.export(name, format),
      select: (index, chosen) => this.onselect?.(this.#find(index), chosen),
      lit: () => this.#find(this.#lit),
    }));
    this.root = el("div", { class: "sd-charts" }, ...this.slots.map((slot) => slot.root));
    this.#tell();
  }

  /** Draw a state soon. */
  render(state) {
    this.#state = state;
    this.#extend(state.lanes.speculative ?? state.lanes.plain);
    const kind = state.lane ? state.source.kind : "";
    const learns = Boolean(state.lanes.speculative?.header.history?.length);
    for (const slot of this.slots) slot.render({ learns, kind });
  }

  /** Draw anew, in other colours perhaps. */
  redraw() {
    for (const slot of this.slots) slot.plot.redraw();
  }

  /** Light the step of this index, or none (-1). */
  highlight(index) {
    this.#lit = index;
    for (const slot of this.slots) slot.light();
  }

  /** Save a chart, seen or not, as "png" or "svg". */
  async export(name, format) {
    if (this.#state) await globalThis.Plotly?.downloadImage(this.#picture(name), { ...size(format), filename: `specdemo-${name}` });
  }

  /** Pictures of all charts that have something to show: [{ name, title, url }], each url a data URL. */
  async images(format = "png") {
    if (!this.#state || !globalThis.Plotly) return [];
    const shown = NAMES.filter((name) => !this.#figure(name, palette(this.root)).empty);
    return Promise.all(shown.map(async (name) => ({
      name,
      title: this.#words.titles[name],
      url: await globalThis.Plotly.toImage(this.#picture(name), size(format)),
    })));
  }

  #find(index) {
    return this.#state?.lanes.speculative?.steps.findIndex((step) => step.index === index) ?? -1;
  }

  #figure(name, colours) {
    return this.#state && FIGURES[name](readRun(this.#state, this.#choice.axis, this.#reach), this.#words, colours, this.#methods);
  }

  #picture(name) {
    const colours = palette(this.root);
    const title = `${this.#words.titles[name]} (${this.#words.origin[this.#state.source.kind]})`;
    return picture(colours, this.#figure(name, colours), title);
  }

  // The axis reaches as far as this run has been seen to go, so that looking back does not move it; while a run goes on
  // it grows by a third at a time.
  #extend(lane) {
    const header = lane?.header ?? null;
    const before = header === this.#reach.header ? this.#reach : { whole: false, most: LEAST };
    const most = { steps: Math.max(before.most.steps, (lane?.steps.at(-1)?.index ?? 0) + 1), seconds: Math.max(before.most.seconds, lane?.elapsed ?? 0) };
    const whole = before.whole || Boolean(lane?.end);
    const end = (name) => (whole ? most[name] : roundUp(most[name], LEAST[name]));
    this.#reach = { header, whole, most, steps: end("steps"), seconds: end("seconds") };
  }

  #choose(i, name) {
    this.#keep({ ...this.#choice, slots: this.#choice.slots.with(i, name) });
  }

  #keep(choice) {
    this.#choice = choice;
    remember(choice);
    this.#tell();
  }

  #tell() {
    this.slots.forEach((slot, i) => slot.choose(this.#choice.slots[i], this.#choice.axis));
  }
}

// One place: a row of tabs, the key, the drawing, the axis and the ways to take it along.
class Slot {
  #words;
  #asks;
  #name = "";
  #figure = null;
  #key = "";

  constructor(words, i, asks) {
    this.#words = words;
    this.#asks = asks;
    const id = `sd-chart-${Math.random().toString(36).slice(2)}`;
    this.tabs = Object.fromEntries(NAMES.map((name) => [name, this.#tab(name, id)]));
    const row = el("div", { class: "sd-chart-tabs", role: "tablist", "aria-label": words.slots[i], onkeydown: (event) => this.#walk(event) }, ...Object.values(this.tabs));
    this.key = el("ul", { class: "sd-chart-key" });
    this.empty = el("p", { class: "sd-chart-empty", hidden: true });
    this.plot = new Plot();
    this.plot.root.append(this.empty);
    this.plot.onhover = (index) => asks.select(index ?? -1, false);
    this.plot.onclick = (index) => asks.select(index, true);
    this.axes = Object.fromEntries(Object.entries(words.axes).map(([axis, text]) => [axis, button(text, () => asks.turn(axis))]));
    this.turn = el("div", { class: "sd-chart-axis", role: "group", "aria-label": words.axis }, ...Object.values(this.axes));
    this.across = el("span", { class: "sd-chart-across" });
    this.origin = el("span", { class: "sd-origin" });
    const save = (format) => button(format.toUpperCase(), () => asks.save(this.#name, format), words.save.replace("{format}", format.toUpperCase()));
    this.sheet = el("div", { class: "sd-chart-sheet", role: "region", tabindex: "0" });
    const summary = el("summary", {}, words.table);
    this.table = el("details", { class: "sd-chart-table", ontoggle: () => this.#fillSheet() }, summary, this.sheet);
    const foot = el("div", { class: "sd-chart-foot" }, this.turn, this.across, this.origin, el("div", { class: "sd-chart-tools" }, this.table, save("png"), save("svg")));
    this.panel = el("div", { class: "sd-chart-panel", role: "tabpanel", id }, this.key, this.plot.root, foot);
    this.root = el("section", { class: "sd-chart" }, row, this.panel);
  }

  choose(name, axis) {
    this.#name = name;
    for (const [other, tab] of Object.entries(this.tabs)) {
      const chosen = other === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    this.panel.setAttribute("aria-label", this.#words.titles[name]);
    for (const [other, node] of Object.entries(this.axes)) node.setAttribute("aria-pressed", String(other === axis));
    this.plot.redraw();
  }

  /** learns: whether there are earlier runs to compare with; kind: of the state's source, none before a run */
  render({ learns, kind }) {
    this.tabs.history.hidden = !learns && this.#name !== "history";
    this.origin.className = `sd-origin sd-origin-${kind}`;
    this.origin.textContent = this.#words.origin[kind] ?? "";
    this.plot.show((colours) => this.#draw(colours));
  }

  light() {
    this.plot.mark(this.#figure?.place(this.#asks.lit()) ?? null);
  }

  #draw(colours) {
    const figure = this.#asks.figure(this.#name, colours);
    this.#figure = figure;
    this.#say(figure);
    this.light();
    return figure;
  }

  #say(figure) {
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
    const cells = (tag, values, scope) => values.map((value) => el(tag, { scope }, String(value)));
    const head = el("thead", {}, el("tr", {}, ...cells("th", heads, "col")));
    const body = rows.map(([first, ...rest]) => el("tr", {}, ...cells("th", [first], "row"), ...cells("td", rest)));
    this.sheet.replaceChildren(el("table", {}, head, el("tbody", {}, ...body)));
  }

  #tab(name, controls) {
    const { tabs, titles } = this.#words;
    return el("button", { type: "button", role: "tab", title: titles[name], "aria-controls": controls, onclick: () => this.#asks.choose(name) }, tabs[name]);
  }

  // Arrow keys choose the next chart, as in every row of tabs.
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

function button(text, onclick, label = text) {
  return el("button", { type: "button", class: "sd-chart-button", "aria-label": label, title: label, onclick }, text);
}

/** The next of a row of lengths, each a third longer than the one before, that is not below a value. */
export const roundUp = (value, least) => least * (4 / 3) ** Math.max(0, Math.ceil(Math.log(value / least) / Math.log(4 / 3) - 1e-9));

// What was chosen last time; a browser that keeps nothing, or something else, begins anew.
function recall() {
  try {
    const { slots, axis } = JSON.parse(localStorage.getItem(KEPT));
    const known = slots.length === FIRST.slots.length && slots.every((name) => NAMES.includes(name));
    return known && (axis === "steps" || axis === "seconds") ? { slots, axis } : FIRST;
  } catch {
    return FIRST;
  }
}

function remember(choice) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(choice));
  } catch {
    // Storage is blocked: the choice holds until the page is left.
  }
}
