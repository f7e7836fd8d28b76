// How a race came out, below its lanes: the table, sentences on what was written, a chart, and the table to copy.

import { Pen } from "../charts/pen.js";
import { Plot } from "../charts/plot.js";
import { acceptRate, disturbed, judgedSteps, repeatsItself, secondsFor, speedup, tokensPerSecond, tokensPerStep, two } from "../core/metrics.js";
import { tokensOf } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { stackable, table as tableElement } from "../parts/blocks.js";
import { button, copyText, el } from "../parts/dom.js";
import { LOOKS } from "./lane.js";

/**
 * @import { Drawing, Palette } from "../charts/figure"
 * @import { Lane } from "../core/state"
 * @import { Words } from "../parts/page"
 * @typedef {{ title: string, lane: Lane | null }} Entry
 * @typedef {ReturnType<typeof standings>} Standings
 * @typedef {Standings["rows"][number]} Standing
 * @typedef {{ title: string, lane: Lane }} Ran a lane that ran
 * @typedef {{ head: string[], body: string[][] }} Table
 */
export class Result {
  #words;
  #text = ""; // what is copied
  won = ""; // by how much, as a sentence

  constructor(/** @type {Words} */ words) {
    this.#words = words;
    this.chart = new Plot();
    this.chart.say(words.chart.label);
    const across = el("p", { class: "sd-race-across" }, words.chart.x);
    const chart = el("section", { class: "sd-chart" }, el("h3", {}, words.chart.title), this.chart.root, across);
    this.notes = el("div", { class: "sd-race-notes" });
    this.copied = el("span", { class: "sd-race-copied", role: "status" });
    const copy = button(words.copy, () => this.#copy(), { class: "sd-button sd-race-copy" });
    this.box = el("div", { class: "sd-race-box", role: "region", tabindex: "0", "aria-label": words.table.label });
    this.root = el("div", { class: "sd-race-result", hidden: true }, el("div", {}, this.box, this.notes, el("p", {}, copy, this.copied)), chart);
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
    const rows = table.body.map(([rank, title, ...rest]) => [el("td", {}, rank), el("th", { scope: "row" }, title), ...rest]);
    this.box.replaceChildren(stackable(tableElement(table.head, rows)));
    const ran = entries.flatMap(({ title, lane }) => (lane ? [{ title, lane }] : []));
    const wrote = ran.filter(({ lane }) => lane.tokens);
    const runs = Math.max(1, ...ran.map(({ lane }) => lane.runs));
    this.won = margin(titles, result, words);
    const notes = [
      ...(this.won ? [this.won] : []),
      ...compared(wrote, words.same),
      ...(result.goal ? [fill(words.table.finish, { tokens: result.goal })] : []),
      ...(result.plain ? [] : [words.table.no_plain]),
      ...(runs > 1 ? [fill(words.shared, { runs })] : []),
    ];
    this.notes.replaceChildren(...notes.map((sentence) => el("p", {}, sentence)));
    this.copied.textContent = "";
    this.root.hidden = false;
    this.chart.show((colours) => this.#figure(colours, entries, result, seconds));
    const header = ran[0]?.lane.header;
    const head = fill(words.markdown_head, {
      prompt: prompt || header?.prompt, origin,
      machine: [header?.target?.name, header?.target?.precision, header?.machine].filter(Boolean).join(", "),
    });
    this.#text = [head, "", markdown(table), "", ...notes, ""].join("\n");
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
    const done = await copyText(this.#text, this.copied, this.#words.copied, this.#words.copy_failed);
    if (!done) getSelection()?.selectAllChildren(this.box);
  }
}

// ---- How a race came out: the order, whether all wrote the same, and the table of it. Pure

/** @param {Lane | null | undefined} lane */
const whole = (lane) => (lane?.tokens && (lane.end === "stop" || lane.end === "length") ? lane : null);
const isPlain = (/** @type {Lane | null | undefined} */ lane) => lane?.header.method === "nothing";

/**
 * How a race came out. lanes: folded, null for one that did not run
 * The finish line is the last token that every lane has which ran to its end; rank and finish are null for the others.
 * @param {(Lane | null | undefined)[]} lanes
 */
export function standings(lanes) {
  const ran = lanes.map(whole);
  const lengths = ran.flatMap((lane) => lane?.tokens ?? []);
  const goal = lengths.length ? Math.min(...lengths) : null;
  const plain = lanes.find((lane) => isPlain(lane) && lane?.tokens) ?? null;
  const finishes = ran.map((lane) => (lane && goal !== null ? secondsFor(lane, goal) : null));
  /** @param {number | null} seconds */
  const rank = (seconds) => (seconds === null ? null : 1 + finishes.filter((other) => other !== null && other < seconds).length);
  const rows = lanes.map((lane, index) => ({
    index,
    plain: isPlain(lane),
    finish: finishes[index],
    rank: rank(finishes[index]),
    rate: tokensPerSecond(lane),
    speedup: plain ? speedup(plain, lane) : null,
    disturbed: lane !== plain && lane?.header.target?.precision === plain?.header.target?.precision && disturbed(plain, lane),
    repeats: lane !== plain && repeatsItself(lane),
    perPass: lane ? tokensPerStep(lane) : null,
    kept: lane ? acceptRate(lane) : null,
    seconds: lane?.tokens ? lane.elapsed : null,
    tokens: lane?.tokens ?? 0,
  }));
  return { goal, plain: Boolean(plain), most: Math.max(0, ...rows.map((row) => row.tokens)), rows };
}

/**
 * By how much the first lane won, as a sentence: before plain decoding where that ran, else before the next lane.
 * Empty where nobody was behind. words: of the part
 * @param {string[]} titles @param {Pick<Standings, "rows">} standings @param {Words} words
 */
export function margin(titles, { rows }, words) {
  const ended = rows.flatMap(({ index, plain, finish }) => (finish === null ? [] : [{ title: titles[index], plain, finish }]));
  const [first, ...rest] = ended.sort((one, other) => one.finish - other.finish);
  const other = rest.find(({ plain }) => plain) ?? rest[0];
  const seconds = other ? other.finish - first.finish : 0;
  return seconds > 0 ? fill(words.margin, { first: first.title, other: other.title, seconds: two(seconds) }) : "";
}

/**
 * Index of the first token in which two lists differ, as far as both go; null when there is none.
 * @param {{ token_id?: number }[]} one @param {{ token_id?: number }[]} other
 */
export function parting(one, other) {
  const common = Math.min(one.length, other.length);
  for (let i = 0; i < common; i += 1) if (one[i].token_id !== other[i].token_id) return i;
  return null;
}

/**
 * Whether all wrote the same, and where not, as sentences. entries: { title, lane } of each lane that wrote something
 * @param {Ran[]} entries @param {Words} words
 */
export function compared(entries, words) {
  if (entries.length < 2) return [];
  const reference = entries.find(({ lane }) => isPlain(lane)) ?? entries[0];
  const right = tokensOf(reference.lane);
  const out = [];
  let parted = false;
  let equal = true;
  for (const entry of entries) {
    if (entry === reference) continue;
    const own = tokensOf(entry.lane);
    const place = parting(own, right);
    const named = { lane: entry.title, reference: reference.title };
    if (place !== null) {
      out.push(fill(words.parts, { ...named, place: place + 1, own: shown(own[place]), other: shown(right[place]) }));
      parted = true;
    } else if (own.length !== right.length) {
      out.push(fill(words.longer, { ...named, tokens: Math.min(own.length, right.length) }));
    } else continue;
    equal = false;
  }
  if (equal) return [fill(words.all, { tokens: right.length })];
  for (const { title, lane } of entries) if (lane.header.lossy) out.push(fill(words.lossy, { lane: title }));
  const precisions = new Set(entries.map(({ lane }) => lane.header.target?.precision));
  const sampled = (reference.lane.header.settings?.sampling?.temperature ?? 0) > 0;
  if (parted && precisions.size > 1) out.push(words.precisions);
  else if (parted && sampled) out.push(words.sampled);
  else if (parted && !precisions.has("fp32")) out.push(fill(words.greedy, { kernel: reference.lane.header.target?.kernel || "–" }));
  return out;
}

const shown = (/** @type {{ text?: string }} */ token) => (token.text ?? "").replaceAll("\n", "↵") || "·";

/**
 * The cells of the table: a head and a row for each lane, the fastest first. words: of the part
 * @param {string[]} titles @param {Standings} standings @param {string} origin @param {Words} words
 */
export function tableOf(titles, { rows, plain }, origin, words) {
  const names = words.table;
  const order = [...rows].sort((one, other) => (one.rank ?? 9) - (other.rank ?? 9) || one.index - other.index);
  /** @param {number | null} share */
  const percent = (share) => (share === null ? "–" : fill(words.percent, { percent: two(100 * share) }));
  const head = [names.rank, names.lane, fill(names.rate, { origin }), names.speedup, names.per_pass, names.kept, names.seconds, names.tokens];
  const body = order.map((row) => [
    words.rank[row.rank ?? ""] ?? "–",
    titles[row.index],
    two(row.rate),
    row.disturbed ? words.disturbed : plain && row.speedup !== null ? fill(row.repeats ? words.times_repeats : words.times, { speedup: two(row.speedup) }) : "–",
    two(row.perPass),
    percent(row.kept),
    two(row.seconds),
    String(row.tokens),
  ]);
  return { head, body };
}

/** A table as Markdown. @param {Table} table */
export function markdown({ head, body }) {
  const line = (/** @type {string[]} */ cells) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  const rule = `|${head.map((_, i) => (i === 1 ? " --- " : " ---: ")).join("|")}|`;
  return [line(head), rule, ...body.map(line)].join("\n");
}
