// The lab: the cost model with sliders on one chart, its formulas with their numbers, and measured points of runs beside it.

import { two } from "../core/metrics.js";
import { remember } from "../core/permalink.js";
import { fill } from "../core/sentence.js";
import { button, el } from "../parts/dom.js";
import { CostChart, Ladder } from "./charts.js";
import { Controls } from "./controls.js";
import { best, bestTrees, breakEven, chains, trees } from "./model.js";
import { RunCard } from "./runcard.js";

/**
 * @import { Words } from "../parts/page"
 * @import { Line, Machine, Model, Priced, Server, Setting } from "./types"
 * @typedef {string | Node} Part
 */
const EDGE = 16; // the longest chain that can be chosen
const WIDE = 32; // where the axis ends when trees or longer drafts are shown
const ASK = 2000; // milliseconds between two questions whether the model is there

/**
 * Draw the lab in `element`; a server, where there is one, reports this machine's costs: { name, verify, draft }.
 * @param {HTMLElement} element @param {{ words: Words, server?: Server, say?: (text: string) => string }} how
 */
export function mountLab(element, { words, server, say = (text) => text }) {
  const lab = new Lab(element, words, say);
  lab.open(new URLSearchParams(location.search).get("lab") ?? "");
  lab.card.begin();
  remember("lab", () => lab.address);
  if (server?.machine) lab.ask(server);
  return lab;
}

class Lab {
  /** @type {Setting} */
  #set = { a: 0.8, c: 0.05, kind: "flat", slope: 0.05, points: null, k: 4, tree: false, budget: 12, gain: 0.3, overlapped: false };
  #preset = "gpu";
  /** @type {Machine | null} */
  #machine = null;
  #guessing = false;
  #asked = false; // an address asked for these settings: the first recorded run does not replace them

  /** @param {HTMLElement} element @param {Words} words @param {(text: string) => string} say */
  constructor(element, words, say) {
    this.words = words;
    this.chart = new CostChart(words.chart, (k) => this.#change({ k }));
    this.controls = new Controls(words.model, { edge: EDGE, wide: WIDE }, { change: (values) => this.#change(values), from: (name) => this.#from(name) });
    this.card = new RunCard(words, say, () => this.#fromRun());
    this.ladder = new Ladder(words);
    const { model, terms } = this.words;
    this.verdict = el("p", { class: "sd-lab-verdict", "aria-live": "polite" });
    this.even = el("p", { class: "sd-lab-even" });
    this.guessHint = el("p", { class: "sd-lab-hint sd-lab-guess", "aria-live": "polite" });
    this.guessed = button("", () => (this.#guessing ? this.#reveal() : this.#guess()), { class: "sd-lab-button" });
    const stage = el("div", { class: "sd-lab-stage" },
      el("div", { class: "sd-lab-say" }, el("div", {}, this.verdict, this.even, this.guessHint), this.guessed), this.chart.root);
    this.formulas = el("dl", { class: "sd-terms" });
    this.terms = el("section", { class: "sd-lab-card" }, el("h3", {}, terms.title, " ", el("span", { class: "sd-tag sd-tag-modelled" }, model.tags.modelled)), this.formulas);
    this.root = el("div", { class: "sd-lab" },
      el("header", {}, el("h2", {}, model.title), el("p", {}, model.lead)),
      el("div", { class: "sd-lab-main" }, this.controls.root, stage),
      el("div", { class: "sd-lab-under" }, el("div", { class: "sd-lab-stack" }, this.terms, this.ladder.root), this.card.root));
    element.replaceChildren(this.root);
    this.#draw();
  }

  /** Show the settings that an address asks for, if it asks for any. @param {string} address */
  open(address) {
    if (!address) return;
    this.#asked = true;
    this.#change({ a: this.#set.a, ...readLab(address) });
  }

  /** The settings as an address has them; empty while nobody sees them or they are a preset's. */
  get address() {
    return this.#preset === "own" && !this.#guessing && this.root.getClientRects().length ? writeLab(this.#set) : "";
  }

  /** Ask for this machine's costs when the lab is looked at, and again while no model is loaded. @param {Server} server */
  ask(server) {
    let timer = 0;
    const now = async () => {
      timer = 0;
      if (!this.root.getClientRects().length) return;
      this.#machine = await server.machine("");
      this.#drawControls();
      this.ladder.render(this.#ladder());
      if (!this.#machine) timer ||= setTimeout(now, ASK);
    };
    new IntersectionObserver(([seen]) => seen.isIntersecting && !timer && now()).observe(this.root);
  }

  // ---- what is chosen

  #change(/** @type {Partial<Setting>} */ values) {
    const own = ["a", "c", "kind", "slope"].some((name) => name in values);
    Object.assign(this.#set, values);
    if (own) this.#preset = "own";
    this.#draw();
  }

  #from(/** @type {string} */ preset) {
    this.#preset = preset;
    this.#guessing = false;
    Object.assign(this.#set, this.#presets[preset]());
    this.#draw();
  }

  #fromRun() {
    if (this.#asked) this.#draw();
    else this.#from("run");
    this.#asked = false;
  }

  /** @type {Record<string, () => Partial<Setting> | undefined>} */
  #presets = {
    run: () => {
      const run = this.card.run?.measured;
      return run && { a: run.a, c: run.c, ...(run.points ? { kind: "measured", points: run.points } : {}), ...(run.gain === null ? {} : { gain: run.gain }), tree: run.trees, overlapped: run.overlapped };
    },
    machine: () => {
      if (!this.#machine) return {};
      const { verify, draft } = this.#machine;
      return { kind: "measured", points: verify, ...(draft ? { c: draft / verify[0][1] } : {}) };
    },
    gpu: () => ({ kind: "flat", c: 0.05 }),
    batch: () => ({ kind: "linear", slope: 1, c: 0.05 }),
    own: () => ({}),
  };

  #guess() {
    /** @param {number} low @param {number} high */
    const between = (low, high) => low + Math.round(100 * Math.random() * (high - low)) / 100;
    Object.assign(this.#set, { a: between(0.5, 0.95), c: between(0.02, 0.3), kind: "linear", slope: between(0, 0.12), tree: false, overlapped: false, k: 1 });
    this.#preset = "own";
    this.#guessing = true;
    this.verdict.textContent = "";
    this.#draw();
    this.chart.grip.focus();
  }

  #reveal() {
    this.#guessing = false;
    this.#draw();
    const { k } = this.#set;
    const { mine, most } = this.#lines();
    const how = mine.drafted === most.drafted ? "exact" : mine.speedup > 0.95 * most.speedup ? "near" : "far";
    this.verdict.textContent = fill(this.words.guess[how], { k, speedup: two(mine.speedup), best: most.drafted, most: two(most.speedup) });
  }

  // ---- what follows from it

  /** @returns {Model} */
  #model() {
    const { a, c, gain, overlapped, kind, slope, points } = this.#set;
    return { a, c, gain, overlapped, curve: { kind, slope, points } };
  }

  #lines() {
    const { tree, budget, overlapped, k } = this.#set;
    const model = this.#model();
    const far = Math.max(0, ...(this.card.run?.measured.lookaheads ?? []).map((one) => one.drafted));
    const wide = tree || far > EDGE ? WIDE : EDGE;
    const chain = chains({ ...model, overlapped: false }, wide);
    /** @type {Line[]} */
    const lines = [{ name: "chain", steps: chain }];
    if (tree) {
      const steps = trees({ ...model, overlapped: false }, WIDE);
      lines.push({ name: "tree", steps, mark: steps[budget] });
    }
    if (overlapped) lines.push({ name: "overlap", steps: chains(model, wide) });
    const judged = (overlapped ? chains(model, wide) : chain).slice(0, EDGE + 1);
    return { lines, wide, mine: judged[k], most: best(judged) };
  }

  #runPoints() {
    if (!this.card.run) return [];
    const { measured, origin } = this.card.run;
    const words = this.words.chart;
    const named = this.words.model.tags[origin];
    const points = measured.lookaheads.filter((one) => one.drafted).map((one) => ({
      name: origin, x: one.drafted, y: one.speedup, size: 3 + 5 * Math.sqrt(one.steps / measured.steps),
      text: fill(words.steps_point, { steps: one.steps, drafted: one.drafted, speedup: two(one.speedup), tokens: two(one.tokens), origin: named }),
    }));
    const whole = { name: "whole", x: measured.drafted, y: measured.speedup, size: 5, text: fill(words.whole_point, { speedup: two(measured.speedup), drafted: two(measured.drafted), origin: named }) };
    return [...points, whole];
  }

  // ---- drawing

  #draw() {
    const { lines, wide, mine, most } = this.#lines();
    const points = this.#guessing ? [] : this.#runPoints();
    const all = lines.flatMap((line) => line.steps).map((one) => one.speedup);
    const top = 1.12 * Math.max(1.4, ...all, ...points.map((point) => point.y));
    this.chart.render({
      most: wide, top, edge: EDGE, chosen: mine, points,
      best: this.#guessing ? null : most,
      lines: this.#guessing ? [] : lines,
    });
    this.#drawControls();
    this.#drawVerdict(mine, most);
    this.terms.hidden = this.#guessing;
    this.formulas.replaceChildren(...termsOf(this.#set, this.#model(), mine, this.words.terms));
    this.card.render(this.#model(), { hidden: this.#guessing });
    this.ladder.render(this.#ladder());
  }

  // This machine's, where its model is loaded; else that of the run that is shown.
  #ladder() {
    const { run } = this.card;
    if (this.#machine) return { points: this.#machine.verify, origin: "measured", name: this.#machine.name };
    return { points: run?.measured.points ?? null, origin: run?.origin ?? "recorded", name: run?.measured.header.machine ?? "" };
  }

  #drawControls() {
    const { guess } = this.words;
    const [origin, why] = this.#why();
    this.controls.render(this.#set, { preset: this.#preset, known: { run: Boolean(this.card.run), machine: Boolean(this.#machine) }, origin, why });
    this.guessed.textContent = this.#guessing ? guess.show : guess.start;
    this.guessHint.textContent = this.#guessing ? guess.hint : "";
  }

  #why() {
    const { why } = this.words.model;
    const { run } = this.card;
    if (this.#preset === "run" && run) return [run.origin, fill(why.run, { machine: run.measured.header.machine ?? "" })];
    if (this.#preset === "machine" && this.#machine) return ["measured", fill(why.machine, { machine: this.#machine.name })];
    return ["assumed", why[this.#preset]];
  }

  /** @param {Priced} mine @param {Priced} most */
  #drawVerdict(mine, most) {
    const words = this.words.verdict;
    if (this.#guessing) {
      this.verdict.textContent = this.even.textContent = "";
      return;
    }
    const numbers = { k: mine.drafted, speedup: two(mine.speedup), best: most.drafted, most: two(most.speedup) };
    const same = numbers.speedup === numbers.most;
    const how = !most.drafted ? "never" : mine.drafted === most.drafted ? "best" : mine.speedup < 1 ? "loses" : same ? "near" : "pays";
    this.verdict.textContent = fill(words[how], numbers);
    const least = breakEven(this.#model(), mine.drafted);
    this.even.textContent = least === null ? fill(words.even_never, numbers) : fill(words.even, { ...numbers, percent: two(100 * least) });
  }
}

// ---- The cost model's formulas with their numbers in them

/**
 * Entries of a list of terms.
 *
 * set: { k, tree, budget }, the sizes that are chosen; model: see model.js; step: of the chosen chain; words: `terms` of the lab's
 * @param {Pick<Setting, "k" | "tree" | "budget">} how @param {Model} model @param {Priced} step @param {Words} words
 */
function termsOf({ k, tree, budget }, model, step, words) {
  const { a, c, gain, overlapped } = model;
  const [A, C] = [two(a), two(c)];
  /** @param {Part[]} draft @param {Part[]} verify */
  const sides = (draft, verify) => (overlapped ? ["max(", ...draft, ", ", ...verify, ")"] : [...draft, " + ", ...verify]);
  /** @type {[string, Part[], Part[], string][]} */
  const rows = [
    [words.tokens, a === 1 ? ["k + 1"] : ["(1 − a", up("k + 1"), ") / (1 − a)"], a === 1 ? [`${k} + 1`] : [`(1 − ${A}`, up(k + 1), `) / (1 − ${A})`], two(step.tokens)],
    [words.cost, sides(["k c"], ["v(k + 1)"]), sides([`${k} · ${C}`], [two(step.verify)]), two(step.cost)],
    [words.speedup, [], [`${two(step.tokens)} / ${two(step.cost)}`], `${two(step.speedup)}×`],
  ];
  if (tree) {
    const { depth } = bestTrees(a, gain, budget)[budget];
    const one = trees({ ...model, overlapped: false }, budget)[budget];
    rows.push(
      [fill(words.tree_tokens, { nodes: budget }), [words.tree_formula], [], two(one.tokens)],
      [fill(words.tree_cost, { depth }), ["depth c + v(nodes + 1)"], [`${depth} · ${C} + ${two(one.verify)}`], two(one.cost)],
      [words.tree_speedup, [], [`${two(one.tokens)} / ${two(one.cost)}`], `${two(one.speedup)}×`],
    );
  }
  return rows.map(([name, symbols, numbers, result]) => el("div", { class: "sd-term" },
    el("dt", {}, name),
    el("dd", {}, ...[symbols, numbers].filter((part) => part.length).flatMap((part) => [el("span", { class: "sd-lab-formula" }, ...part), " = "]), el("b", {}, result))));
}

const up = (/** @type {string | number} */ text) => el("sup", {}, String(text));

// ---- The lab's settings as one word of an address: a-0.8_c-0.05_kind-linear_slope-0.05_k-4_tree_budget-12_gain-0.3

/** What each number may be. @type {Record<string, [number, number]>} */
const NUMBERS = { a: [0, 1], c: [0, 1], slope: [0, 1], k: [1, 16], budget: [1, 32], gain: [0, 1] };
const FLAGS = ["tree", "overlapped"];
const KINDS = ["flat", "linear"]; // a measured curve is no part of an address

export function writeLab(/** @type {Setting} */ set) {
  const numbers = Object.keys(NUMBERS).map((name) => `${name}-${set[/** @type {"a"} */ (name)]}`);
  const kind = `kind-${KINDS.includes(set.kind) ? set.kind : KINDS[0]}`;
  return [...numbers, kind, ...FLAGS.filter((name) => set[/** @type {"tree"} */ (name)])].join("_");
}

/** What an address asks for; words that are not ours and numbers out of range are left out. @param {string} text */
export function readLab(text) {
  /** @type {Record<string, number | string | boolean>} */
  const set = Object.fromEntries(FLAGS.map((name) => [name, false]));
  for (const part of text.split("_")) {
    const [name, ...rest] = part.split("-");
    const value = rest.join("-"); // a small number has a sign in its exponent
    const [low, high] = NUMBERS[name] ?? [1, 0];
    const number = Number(value);
    if (value && number >= low && number <= high) set[name] = name === "k" || name === "budget" ? Math.round(number) : number;
    if (name === "kind" && KINDS.includes(value)) set.kind = value;
    if (FLAGS.includes(name)) set[name] = true;
  }
  return /** @type {Partial<Setting>} */ (set);
}
