// The run beside the model: which one it is, what its trace says of the model's terms, and how far the model is off.

import { judgedSteps, plainRate, stepSeconds, tokensPerSecond, two } from "../core/metrics.js";
import { fetchFile, fetchRuns } from "../core/recorded.js";
import { fold, tested, tokenCount } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { depthOf, isTree } from "../core/tree.js";
import { table } from "../parts/blocks.js";
import { button, el, menu } from "../parts/dom.js";
import { shownView } from "../play/runs.js";
import { bestTrees, chainTokens, step } from "./model.js";

/**
 * @import { JudgedStep, Line } from "../core/state"
 * @import { Words } from "../parts/page"
 * @import { Model } from "./types"
 * @typedef {{ value: string, origin: "measured" | "recorded", measured: Measured }} Run value: of its option
 */
export class RunCard {
  /** @type {Run | null} */
  run = null;
  #words;
  #tags;
  #say;
  #taken;

  /** words: the lab's; taken(): another run was chosen @param {Words} words @param {(text: string) => string} say @param {() => void} taken */
  constructor(words, say, taken) {
    this.#words = words.run;
    this.#tags = words.model.tags;
    this.#say = say;
    this.#taken = taken;
    this.pick = menu({ "aria-label": this.#words.pick }, [["", this.#words.none]]);
    this.pick.options[0].disabled = true;
    this.pick.addEventListener("change", () => {
      const { value, selectedOptions } = this.pick;
      if (value === "mine") this.#mine();
      else this.#recorded(value, selectedOptions[0].text);
    });
    this.tag = el("span", { class: "sd-tag" });
    this.notes = el("p", { class: "sd-lab-hint" });
    this.problem = el("p", { class: "sd-lab-problem", role: "status" });
    this.off = el("div");
    this.offBox = el("div", {}, this.notes, el("h4", {}, this.#words.off), this.off, el("p", { class: "sd-lab-hint" }, this.#words.off_hint));
    this.root = el("section", { class: "sd-lab-card" }, el("h3", {}, this.#words.title, " ", this.tag),
      el("div", { class: "sd-lab-pick" }, this.pick, button(this.#words.last, () => this.#mine(), { class: "sd-lab-button" })),
      this.problem, this.offBox);
  }

  /** Name the recorded runs, and show the first. */
  async begin() {
    const runs = await fetchRuns(); // the model works without them
    this.pick.append(...runs.map(({ name, title }) => new Option(this.#say(title), name)));
    if (runs.length && !this.run) await this.#recorded(runs[0].name, this.#say(runs[0].title));
  }

  /** model: what is set; hidden: while the visitor guesses @param {Model} model @param {{ hidden: boolean }} how */
  render(model, { hidden }) {
    const words = this.#words;
    this.offBox.hidden = !this.run || hidden;
    if (!this.run) return;
    const { measured, origin } = this.run;
    this.tag.textContent = this.#tags[origin];
    this.tag.className = `sd-tag sd-tag-${origin}`;
    const notes = [fill(words.said, { a: two(measured.a), judged: measured.judged, c: two(measured.c), speedup: two(measured.speedup) })];
    if (!measured.plainMeasured) notes.push(words.unmeasured_plain);
    if (measured.lookaheads.length > 2) notes.push(words.policy);
    this.notes.textContent = notes.join(" ");
    const modelled = foresee(model, measured);
    /** @param {Record<string, any>} numbers @param {string} name */
    const shown = (numbers, name) => two(numbers[name]) + (name === "speedup" ? "×" : "");
    const heads = words.columns.map((text) => fill(text, { origin: this.#tags[origin] }));
    const rows = Object.entries(words.rows).map(([name, text]) => [text, shown(modelled, name), shown(measured, name)]);
    this.off.replaceChildren(table(heads, rows, { class: "sd-lab-table" }));
  }

  /** @param {string} name @param {string} title */
  async #recorded(name, title) {
    const items = await fetchFile(name);
    if (items) this.#take(items, title, "recorded", name);
    else this.#complain(fill(this.#words.gone, { title }));
  }

  /** Take the run on the first tab: a live one, a recorded one, or a file that was opened there. */
  #mine() {
    const { events = [], recorded } = shownView() ?? {};
    if (events.length) this.#take(events, this.#words.mine, recorded ? "recorded" : "measured", "mine");
    else this.#complain(this.#words.no_last);
  }

  /** @param {Line[]} items @param {string} title @param {"measured" | "recorded"} origin @param {string} value */
  #take(items, title, origin, value) {
    const measured = measure(fold(items));
    if (!measured) {
      this.#complain(fill(this.#words.no_drafts, { title }));
      return;
    }
    this.run = { value, origin, measured };
    const { pick } = this;
    const known = [...pick.options].find((one) => one.value === value);
    if (known) known.textContent = title;
    else pick.append(new Option(title, value));
    pick.value = value;
    this.problem.textContent = "";
    this.#taken();
  }

  #complain(/** @type {string} */ sentence) {
    this.problem.textContent = sentence;
    if (this.run) this.pick.value = this.run.value;
  }
}

// ---- What a run's own trace says of the cost model's terms, and what the model expects of such a run. Pure

/**
 * What a run says of the model's terms; null without a speculative lane that drafted. Costs in plain decoding's
 * seconds for a token, measured in the same run where there is a plain lane.
 *
 * a, gain      kept over judged, of first guesses and of further siblings; gain null where none was judged
 * c            drafting over draft steps, hidden drafting included
 * points       rows and seconds of target passes, as measured at loading
 * lookaheads   for each number of drafted tokens: { drafted, steps, tokens, speedup }, tokens a step
 * drafted, tokens, draft, verify, overhead, speedup   means over all steps, and the run as a whole
 * depths       draft steps of each step
 * @param {Pick<import("../core/state").State, "lanes">} state
 */
export function measure({ lanes }) {
  const { plain, speculative: lane } = lanes;
  const steps = judgedSteps(lane);
  const rate = plainRate(plain, lane);
  if (!lane || !rate || !steps.some((one) => one.nodes.length)) return null;
  const first = { judged: 0, kept: 0 };
  const further = { judged: 0, kept: 0 };
  for (const one of steps) {
    const kept = new Set(one.path);
    let elder = null;
    for (const node of tested(one)) {
      const parent = one.nodes[node].parent ?? -1;
      const count = parent === elder ? further : first;
      count.judged += 1;
      count.kept += kept.has(node) ? 1 : 0;
      elder = parent;
    }
  }
  /** @param {JudgedStep[]} list @param {(one: JudgedStep) => number} of */
  const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);
  const mean = (/** @type {(one: JudgedStep) => number} */ of) => (rate * sum(steps, of)) / steps.length;
  const drafting = sum(steps, (one) => (one.nodes.length ? one.draftSeconds + (one.savedSeconds ?? 0) : 0));
  const { header } = lane;
  return {
    a: first.judged ? first.kept / first.judged : 0,
    judged: first.judged,
    gain: further.judged ? further.kept / further.judged : null,
    c: (rate * drafting) / sum(steps, (one) => depthOf(one.nodes)),
    points: header.verify_costs?.length ? header.verify_costs : null,
    trees: steps.some((one) => isTree(one.nodes)),
    overlapped: steps.some((one) => one.hit !== null && one.hit !== undefined),
    lookaheads: [...new Set(steps.map((one) => one.nodes.length))].sort((one, other) => one - other).map((drafted) => {
      const list = steps.filter((one) => one.nodes.length === drafted);
      const tokens = sum(list, tokenCount);
      return { drafted, steps: list.length, tokens: tokens / list.length, speedup: tokens / sum(list, stepSeconds) / rate };
    }),
    steps: steps.length,
    drafted: sum(steps, (one) => one.nodes.length) / steps.length,
    tokens: sum(steps, tokenCount) / steps.length,
    draft: mean((one) => one.draftSeconds),
    verify: mean((one) => one.verifySeconds),
    overhead: mean((one) => one.overheadSeconds),
    speedup: Number(tokensPerSecond(lane)) / rate,
    plainMeasured: tokensPerSecond(plain) !== null,
    depths: steps.map((one) => [one.nodes.length, depthOf(one.nodes)]),
    header,
  };
}

/** @typedef {NonNullable<ReturnType<typeof measure>>} Measured */

/**
 * What the model expects of a run at the very sizes that it drafted: means a step, as `measure` gives them.
 * @param {Model} model @param {Measured} run
 */
export function foresee(model, run) {
  const shapes = run.trees ? bestTrees(model.a, model.gain, Math.max(...run.depths.map(([nodes]) => nodes))) : null;
  const steps = run.depths.map(([nodes, depth]) =>
    step(model, { drafted: nodes, draftSteps: depth, tokens: shapes ? shapes[nodes].tokens : chainTokens(model.a, nodes) }));
  /** @param {"tokens" | "draft" | "verify" | "cost"} name */
  const mean = (name) => steps.reduce((total, one) => total + one[name], 0) / steps.length;
  return { tokens: mean("tokens"), draft: mean("draft"), verify: mean("verify"), cost: mean("cost"), speedup: mean("tokens") / mean("cost") };
}
