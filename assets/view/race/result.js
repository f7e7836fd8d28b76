// How a race came out, below its lanes: the table, sentences on what was written, a chart, and the table to copy.

import { Pen } from "../charts/pen.js";
import { Plot } from "../charts/plot.js";
import { fill } from "../core/sentence.js";
import { judgedSteps } from "../core/series.js";
import { el, textEl } from "../parts/dom.js";
import { stackable } from "../parts/table.js";
import { LOOKS } from "./lane.js";
import { compared, margin, markdown, tableOf } from "./standings.js";

/**
 * @import { Drawing, Palette } from "../charts/figure"
 * @import { Lane } from "../core/state"
 * @import { Words } from "../parts/page"
 * @import { Standings, Table } from "./standings"
 * @typedef {{ title: string, lane: Lane | null }} Entry
 */

export class Result {
  #words;
  /** @type {{ head: string, table: Table, notes: string[] } | null} */
  #copying = null; // what is copied

  /** @param {Words} words */
  constructor(words) {
    this.#words = words;
    this.chart = new Plot();
    this.chart.say(words.chart.label);
    const across = textEl("p", words.chart.x, { class: "sd-race-across" });
    const chart = el("section", { class: "sd-chart" }, textEl("h3", words.chart.title), this.chart.root, across);
    this.grid = el("table");
    this.notes = el("div", { class: "sd-race-notes" });
    this.copied = el("span", { class: "sd-race-copied", role: "status" });
    const copy = textEl("button", words.copy, { type: "button", class: "sd-button sd-race-copy", onclick: () => this.#copy() });
    const box = el("div", { class: "sd-race-box", role: "region", tabindex: "0", "aria-label": words.table.label }, this.grid);
    this.root = el("div", { class: "sd-race-result", hidden: true }, el("div", {}, box, this.notes, el("p", {}, copy, this.copied)), chart);
  }

  /**
   * Show what does not change while they race. entries: { title, lane } each, lane null for one that did not run
   * seconds: of the whole race; origin: of the numbers; prompt: where the lanes do not name it
   * @param {Entry[]} entries @param {Standings} result @param {{ seconds: number, origin: string, prompt: string }} how
   */
  show(entries, result, { seconds, origin, prompt }) {
    const words = this.#words;
    const titles = entries.map(({ title }) => title);
    const table = tableOf(titles, result, origin, words);
    /** @param {"th" | "td"} tag @param {string[]} texts */
    const cells = (tag, texts) => texts.map((text, i) => textEl(i === 1 ? "th" : tag, text, i === 1 ? { scope: tag === "th" ? "col" : "row" } : tag === "th" ? { scope: "col" } : {}));
    this.grid.replaceChildren(
      el("thead", {}, el("tr", {}, ...cells("th", table.head))),
      el("tbody", {}, ...table.body.map((row) => el("tr", {}, ...cells("td", row)))));
    stackable(this.grid);
    const ran = entries.flatMap(({ title, lane }) => (lane ? [{ title, lane }] : []));
    const wrote = ran.filter(({ lane }) => lane.tokens);
    const runs = Math.max(1, ...ran.map(({ lane }) => lane.runs));
    const won = margin(titles, result, words);
    const notes = [
      ...(won ? [won] : []),
      ...compared(wrote, words.same),
      ...(result.goal ? [fill(words.table.finish, { tokens: result.goal })] : []),
      ...(result.plain ? [] : [words.table.no_plain]),
      ...(runs > 1 ? [fill(words.shared, { runs })] : []),
    ];
    this.notes.replaceChildren(...notes.map((sentence) => textEl("p", sentence)));
    this.copied.textContent = "";
    this.root.hidden = false;
    this.chart.show((colours) => this.#figure(colours, entries, result, seconds));
    const header = ran[0]?.lane.header;
    const head = fill(words.markdown_head, {
      prompt: prompt || header?.prompt, origin,
      machine: [header?.target?.name, header?.target?.precision, header?.machine].filter(Boolean).join(", "),
    });
    this.#copying = { head, table, notes };
  }

  hide() {
    this.root.hidden = true;
  }

  /** Where the race stands, in seconds. @param {number} now */
  mark(now) {
    this.chart.mark([now, now]);
  }

  /** @param {Palette} colours @param {Entry[]} entries @param {Standings} standings @param {number} seconds @returns {Drawing} */
  #figure(colours, entries, { goal, most }, seconds) {
    const words = this.#words.chart;
    const pen = new Pen(colours, Object.fromEntries(LOOKS.entries()), Object.fromEntries(entries.map(({ title }, i) => [i, title])));
    const traces = entries.flatMap(({ lane }, i) => {
      if (!lane?.tokens) return [];
      const steps = judgedSteps(lane);
      return [pen.line(i, [0, ...steps.map((step) => step.elapsed)], [0, ...steps.map((step) => step.tokens)])];
    });
    const line = { color: colours.soft, width: 1, dash: "dot" };
    return {
      traces,
      x: { title: words.x, range: [0, seconds * 1.02] },
      y: { title: words.y, range: [0, most * 1.06] },
      shapes: goal ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: goal, y1: goal, line }] : [],
    };
  }

  async #copy() {
    if (!this.#copying) return;
    const { head, table, notes } = this.#copying;
    const text = [head, "", markdown(table), "", ...notes, ""].join("\n");
    try {
      await navigator.clipboard.writeText(text);
      this.copied.textContent = this.#words.copied;
    } catch {
      getSelection()?.selectAllChildren(this.grid);
      this.copied.textContent = this.#words.copy_failed;
    }
  }
}
