// The lab: the cost model with sliders on one chart, its formulas with their numbers, and measured points of runs beside it.

import { CostChart } from "./costchart.js";
import { el } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { readTrace } from "../core/lines.js";
import { two } from "../core/metrics.js";
import { foresee, measure } from "./measure.js";
import { best, bestTrees, breakEven, chains, trees } from "./model.js";
import { fold } from "../core/reducer.js";

const EDGE = 16; // the longest chain that can be chosen
const WIDE = 32; // where the axis ends when trees or longer drafts are shown
const ASK = 2000; // milliseconds between two questions whether the model is there
const TRIED = 8; // the longest chain of the experiments
const RUNS = new URL("../../runs/", import.meta.url);

/** Draw the lab in `element`; a server, where there is one, tells this machine's costs: { name, verify, draft }. */
export function mountLab(element, { words, server }) {
  const lab = new Lab(element, words);
  lab.begin();
  if (server?.machine) lab.ask(server);
  return lab;
}

class Lab {
  // What is set. points: [[rows, seconds], ...] of the measured curve, and where they come from
  #set = { a: 0.8, c: 0.05, kind: "flat", slope: 0.05, points: null, k: 4, tree: false, budget: 12, gain: 0.3, overlapped: false };
  #preset = "gpu";
  #machine = null;
  #run = null; // { title, origin, measured }
  #tried = [];
  #guessing = false;
  #inputs = {};

  constructor(element, words) {
    this.words = words;
    this.chart = new CostChart(words.chart, (k) => this.#change({ k }));
    this.#build(element);
    document.addEventListener("sd-lab-tried", (event) => {
      this.#tried = event.detail;
      this.#draw();
    });
    this.#draw();
  }

  /** Name the recorded runs, and show the first. */
  async begin() {
    try {
      const { runs } = await (await fetch(new URL("index.json", RUNS))).json();
      for (const { name, title } of runs) this.pick.append(option(name, title));
    } catch {
      return; // the model works without them
    }
    const first = this.pick.options[1];
    if (first && !this.#run) await this.#recorded(first.value, first.textContent);
  }

  /** Ask for this machine's costs when the lab is looked at, and again while no model is loaded. */
  ask(server) {
    let timer = 0;
    const now = async () => {
      timer = 0;
      if (!this.root.getClientRects().length) return;
      this.#machine = await server.machine("");
      this.#drawInputs();
      if (!this.#machine) timer ||= setTimeout(now, ASK);
    };
    new IntersectionObserver(([seen]) => seen.isIntersecting && !timer && now()).observe(this.root);
  }

  // ---- what is chosen

  #change(values) {
    const own = ["a", "c", "kind", "slope"].some((name) => name in values);
    Object.assign(this.#set, values);
    if (own) this.#preset = "own";
    this.#draw();
  }

  #from(preset) {
    this.#preset = preset;
    this.#guessing = false;
    const run = this.#run?.measured;
    const machine = this.#machine;
    const values = {
      run: () => ({ a: run.a, c: run.c, ...(run.points ? { kind: "measured", points: run.points } : {}), ...(run.gain === null ? {} : { gain: run.gain }), tree: run.trees, overlapped: run.overlapped }),
      machine: () => ({ kind: "measured", points: machine.verify, ...(machine.draft ? { c: machine.draft / machine.verify[0][1] } : {}) }),
      gpu: () => ({ kind: "flat", c: 0.05 }),
      batch: () => ({ kind: "linear", slope: 1, c: 0.05 }),
      own: () => ({}),
    }[preset]();
    Object.assign(this.#set, values);
    this.#draw();
  }

  #guess() {
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

  // ---- runs

  async #recorded(name, title) {
    const response = await fetch(new URL(`${name}.jsonl`, RUNS)).catch(() => null);
    if (!response?.ok) return this.#say(fill(this.words.run.gone, { title }));
    return this.#take(readTrace(await response.text()).items, title, "recorded", name);
  }

  #last() {
    const { events, recorded } = document.querySelector("#sd-view .sd-mount")?.view ?? {};
    if (!events?.length || recorded) return this.#say(this.words.run.no_last);
    return this.#take(events, this.words.run.mine, "measured", "mine");
  }

  async #file() {
    const [file] = this.file.files;
    this.file.value = "";
    if (!file) return;
    const { items } = readTrace(await file.text());
    if (items.length) this.#take(items, file.name, "recorded", "file");
    else this.#say(fill(this.words.run.unreadable, { title: file.name }));
  }

  #take(items, title, origin, value) {
    const measured = measure(fold(items));
    if (!measured) return this.#say(fill(this.words.run.no_drafts, { title }));
    this.#run = { title, origin, measured };
    const { pick } = this;
    const known = [...pick.options].find((one) => one.value === value);
    if (known) known.textContent = title;
    else pick.append(option(value, title));
    pick.value = value;
    this.#say("");
    return this.#from("run");
  }

  #say(sentence) {
    this.problem.textContent = sentence;
    if (sentence && this.#run) this.pick.value = [...this.pick.options].find((one) => one.textContent === this.#run.title)?.value ?? "";
  }

  // ---- drawing

  #lines() {
    const { tree, budget, overlapped, k } = this.#set;
    const model = this.#model();
    const run = this.#run?.measured;
    const far = Math.max(0, ...(run?.lookaheads ?? []).map((one) => one.drafted));
    const wide = tree || far > EDGE ? WIDE : EDGE;
    const chain = chains({ ...model, overlapped: false }, wide);
    const lines = [{ name: "chain", steps: chain }];
    if (tree) {
      const steps = trees({ ...model, overlapped: false }, WIDE);
      lines.push({ name: "tree", steps, mark: steps[budget] });
    }
    if (overlapped) lines.push({ name: "overlap", steps: chains(model, wide) });
    const judged = (overlapped ? lines.at(-1).steps : chain).slice(0, EDGE + 1);
    return { lines, wide, mine: judged[k], most: best(judged) };
  }

  #model() {
    const { a, c, gain, overlapped, kind, slope, points } = this.#set;
    return { a, c, gain, overlapped, curve: { kind, slope, points } };
  }

  #draw() {
    const { lines, wide, mine, most } = this.#lines();
    const points = this.#guessing ? [] : [...this.#runPoints(), ...this.#triedPoints()];
    const bounds = this.#guessing ? [] : this.#bounds();
    const all = [...lines.flatMap((line) => line.steps), ...bounds.flatMap((line) => line.steps)].map((one) => one.speedup);
    const top = 1.12 * Math.max(1.4, ...all, ...points.map((point) => point.y));
    this.chart.render({
      most: wide, top, edge: EDGE, chosen: mine, points,
      best: this.#guessing ? null : most,
      lines: this.#guessing ? [] : [...bounds, ...lines],
    });
    this.#drawInputs();
    this.#drawVerdict(mine, most);
    this.#drawTerms(mine);
    this.#drawRun();
  }

  #runPoints() {
    if (!this.#run) return [];
    const { measured, origin } = this.#run;
    const words = this.words.chart;
    const said = this.words.model.tags[origin];
    const points = measured.lookaheads.filter((one) => one.drafted).map((one) => ({
      name: origin, x: one.drafted, y: one.speedup, size: 3 + 5 * Math.sqrt(one.steps / measured.steps),
      said: fill(words.steps_point, { steps: one.steps, drafted: one.drafted, speedup: two(one.speedup), tokens: two(one.tokens), origin: said }),
    }));
    const whole = { name: "whole", x: measured.drafted, y: measured.speedup, size: 5, said: fill(words.whole_point, { speedup: two(measured.speedup), drafted: two(measured.drafted), origin: said }) };
    return [...points, whole];
  }

  #triedPoints() {
    return this.#tried.flatMap(({ name, points }) => points.map(({ lookahead, speedup }) => ({
      name, x: lookahead, y: speedup, size: 6,
      said: fill(this.words.chart[`${name}_point`], { drafted: lookahead, speedup: two(speedup) }),
    })));
  }

  // The model's own word on the experiments: drafts for nothing, every one kept or none.
  #bounds() {
    return this.#tried.flatMap(({ name, verify }) => {
      if (!verify) return [];
      const model = { a: name === "perfect" ? 1 : 0, c: 0, curve: { kind: "measured", points: verify } };
      return [{ name: "bound", steps: chains(model, TRIED) }];
    });
  }

  #drawInputs() {
    const { words } = this;
    const set = this.#set;
    const inputs = this.#inputs;
    const show = (name, value, text) => {
      inputs[name].value = value;
      inputs[name].setAttribute("aria-valuetext", text);
      inputs[name].output.textContent = text;
    };
    show("a", set.a, two(set.a));
    show("c", set.c, two(set.c));
    show("k", set.k, String(set.k));
    show("slope", set.slope, fill(words.model.slope_value, { percent: two(100 * set.slope) }));
    show("budget", set.budget, String(set.budget));
    show("gain", set.gain, fill(words.model.gain_value, { percent: two(100 * set.gain) }));
    inputs.slope.row.hidden = set.kind !== "linear";
    inputs.budget.row.hidden = inputs.gain.row.hidden = this.treeHint.hidden = !set.tree;
    inputs.tree.checked = set.tree;
    inputs.overlapped.checked = set.overlapped;
    this.overlapHint.hidden = !set.overlapped;
    inputs.kind.value = set.kind;
    inputs.kind.querySelector("[value=measured]").disabled = !set.points;
    inputs.preset.value = this.#preset;
    inputs.preset.querySelector("[value=run]").disabled = !this.#run;
    inputs.preset.querySelector("[value=machine]").disabled = !this.#machine;
    const [tag, why] = this.#why();
    this.tag.textContent = words.model.tags[tag];
    this.tag.className = `sd-tag sd-tag-${tag}`;
    this.why.textContent = why;
    this.guessed.textContent = this.#guessing ? words.guess.show : words.guess.start;
    this.guessHint.textContent = this.#guessing ? words.guess.hint : "";
  }

  #why() {
    const { why } = this.words.model;
    if (this.#preset === "run") return [this.#run.origin, fill(why.run, { machine: this.#run.measured.header.machine ?? "" })];
    if (this.#preset === "machine") return ["measured", fill(why.machine, { machine: this.#machine.name })];
    return ["assumed", why[this.#preset]];
  }

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

  #drawTerms(mine) {
    this.terms.hidden = this.#guessing;
    const words = this.words.terms;
    const { a, c, k, tree, budget, gain, overlapped } = this.#set;
    const [A, C] = [two(a), two(c)];
    const sides = (draft, verify, join) => (join ? ["max(", ...draft, ", ", ...verify, ")"] : [...draft, " + ", ...verify]);
    const rows = [
      [words.tokens, a === 1 ? ["k + 1"] : ["(1 − a", up("k + 1"), ") / (1 − a)"], a === 1 ? [`${k} + 1`] : [`(1 − ${A}`, up(k + 1), `) / (1 − ${A})`], two(mine.tokens)],
      [words.cost, sides(["k c"], ["v(k + 1)"], overlapped), sides([`${k} · ${C}`], [two(mine.verify)], overlapped), two(mine.cost)],
      [words.speedup, [], [`${two(mine.tokens)} / ${two(mine.cost)}`], `${two(mine.speedup)}×`],
    ];
    if (tree) {
      const { depth } = bestTrees(a, gain, budget)[budget];
      const one = trees({ ...this.#model(), overlapped: false }, budget)[budget];
      rows.push(
        [fill(words.tree_tokens, { nodes: budget }), [words.tree_formula], [], two(one.tokens)],
        [fill(words.tree_cost, { depth }), ["depth c + v(nodes + 1)"], [`${depth} · ${C} + ${two(one.verify)}`], two(one.cost)],
        [words.tree_speedup, [], [`${two(one.tokens)} / ${two(one.cost)}`], `${two(one.speedup)}×`],
      );
    }
    this.formulas.replaceChildren(...rows.map(([name, symbols, numbers, result]) => el("div", { class: "sd-term" },
      el("dt", {}, name),
      el("dd", {}, ...[symbols, numbers].filter((part) => part.length).flatMap((part) => [el("span", { class: "sd-lab-formula" }, ...part), " = "]), el("b", {}, result)))));
  }

  #drawRun() {
    const { words } = this;
    const run = this.#run;
    this.offBox.hidden = !run || this.#guessing;
    if (!run) return;
    const { measured, origin } = run;
    this.runTag.textContent = words.model.tags[origin];
    this.runTag.className = `sd-tag sd-tag-${origin}`;
    const notes = [fill(words.run.said, { a: two(measured.a), judged: measured.judged, c: two(measured.c), speedup: two(measured.speedup) })];
    if (!measured.plainMeasured) notes.push(words.run.unmeasured_plain);
    if (measured.lookaheads.length > 2) notes.push(words.run.policy);
    this.said.textContent = notes.join(" ");
    const modelled = foresee(this.#model(), measured);
    const shown = (numbers, name) => (numbers[name] === undefined ? "–" : two(numbers[name]) + (name === "speedup" ? "×" : ""));
    this.off.replaceChildren(
      el("thead", {}, el("tr", {}, ...words.run.columns.map((text) => el("th", { scope: "col" }, fill(text, { origin: words.model.tags[origin] }))))),
      el("tbody", {}, ...Object.entries(words.run.rows).map(([name, text]) =>
        el("tr", {}, el("th", { scope: "row" }, text), el("td", {}, shown(modelled, name)), el("td", {}, shown(measured, name))))));
  }

  // ---- what it is made of

  #build(element) {
    const { words } = this;
    const model = words.model;
    this.verdict = el("p", { class: "sd-lab-verdict", "aria-live": "polite" });
    this.even = el("p", { class: "sd-lab-even" });
    this.guessHint = el("p", { class: "sd-lab-hint sd-lab-guess", "aria-live": "polite" });
    this.guessed = button("", () => (this.#guessing ? this.#reveal() : this.#guess()));
    this.tag = el("span", { class: "sd-tag" });
    this.why = el("p", { class: "sd-lab-hint" });
    const hint = (text) => el("p", { class: "sd-lab-hint" }, text);
    this.treeHint = hint(model.tree_hint);
    this.overlapHint = hint(model.overlap_hint);
    const preset = this.#select("preset", model.preset, model.presets, (value) => this.#from(value));
    preset.querySelector("label").append(this.tag);
    const controls = el("div", { class: "sd-lab-controls" },
      preset, this.why,
      this.#slider("a", model.a, 0, 1, 0.01, model.a_hint), this.#slider("c", model.c, 0, 1, 0.005, model.c_hint),
      this.#select("kind", model.curve, model.curves, (kind) => this.#change({ kind })), this.#slider("slope", model.slope, 0, 1, 0.01),
      this.#slider("k", model.k, 1, EDGE, 1),
      el("details", { class: "sd-lab-more" }, el("summary", {}, model.more),
        this.#check("tree", model.tree), this.#slider("budget", model.budget, 1, WIDE, 1), this.#slider("gain", model.gain, 0, 1, 0.01), this.treeHint,
        this.#check("overlapped", model.overlapped), this.overlapHint));
    const stage = el("div", { class: "sd-lab-stage" },
      el("div", { class: "sd-lab-say" }, el("div", {}, this.verdict, this.even, this.guessHint), this.guessed), this.chart.root);
    this.formulas = el("dl", { class: "sd-terms" });
    this.terms = el("section", { class: "sd-lab-card" }, el("h3", {}, words.terms.title, " ", el("span", { class: "sd-tag sd-tag-modelled" }, model.tags.modelled)), this.formulas);
    this.root = el("div", { class: "sd-lab" },
      el("header", {}, el("h2", {}, model.title), el("p", {}, model.lead)),
      el("div", { class: "sd-lab-main" }, controls, stage),
      el("div", { class: "sd-lab-under" }, this.terms, this.#buildRun()));
    element.replaceChildren(this.root);
  }

  #buildRun() {
    const words = this.words.run;
    this.pick = el("select", { "aria-label": words.pick }, option("", words.none));
    this.pick.options[0].disabled = true;
    this.pick.addEventListener("change", () => {
      const { value, selectedOptions } = this.pick;
      if (value === "mine") this.#last();
      else if (value !== "file") this.#recorded(value, selectedOptions[0].textContent);
    });
    this.file = el("input", { type: "file", accept: ".jsonl,.json,.txt", class: "sd-hidden", tabindex: "-1", "aria-label": words.file });
    this.file.addEventListener("change", () => this.#file());
    this.runTag = el("span", { class: "sd-tag" });
    this.said = el("p", { class: "sd-lab-hint" });
    this.problem = el("p", { class: "sd-lab-problem", role: "status" });
    this.off = el("table", { class: "sd-lab-table" });
    this.offBox = el("div", {}, this.said, el("h4", {}, words.off), this.off, el("p", { class: "sd-lab-hint" }, words.off_hint));
    return el("section", { class: "sd-lab-card" }, el("h3", {}, words.title, " ", this.runTag),
      el("div", { class: "sd-lab-pick" }, this.pick, button(words.last, () => this.#last()), button(words.file, () => this.file.click()), this.file),
      this.problem, this.offBox);
  }

  #slider(name, text, min, max, step, title = "") {
    const id = `sd-lab-${name}`;
    const input = el("input", { type: "range", id, min, max, step, title });
    input.addEventListener("input", () => this.#change({ [name]: Number(input.value) }));
    input.output = el("output", { for: id });
    input.row = el("div", { class: "sd-lab-row" }, el("label", { for: id, title }, text), input.output, input);
    this.#inputs[name] = input;
    return input.row;
  }

  #select(name, text, choices, change) {
    const id = `sd-lab-${name}`;
    const select = el("select", { id }, ...Object.entries(choices).map(([value, title]) => option(value, title)));
    select.addEventListener("change", () => change(select.value));
    this.#inputs[name] = select;
    return el("div", { class: "sd-lab-row" }, el("label", { for: id }, text, " "), select);
  }

  #check(name, text) {
    const input = el("input", { type: "checkbox" });
    input.addEventListener("change", () => this.#change({ [name]: input.checked }));
    this.#inputs[name] = input;
    return el("label", { class: "sd-lab-check" }, input, text);
  }
}

const up = (text) => el("sup", {}, String(text));
const option = (value, title) => el("option", { value }, title);

function button(text, run) {
  return el("button", { type: "button", class: "sd-lab-button", onclick: run }, text);
}
