// The lessons in their order: their recorded runs, and how each question's answer is read off a run.
//
// `reveal(runs)` gets { plain, fast } of each run that the question names and returns { answer, values, bars, step }:
// the answer (an option, or a number on the scale), what the evidence's sentence is filled with, bars to compare
// ({ values, share, marked }), and a step of the first run that shows it. No number is typed in from a run.

import { reasonValue } from "../core/decision.js";
import { draftPerStep, judged, judgedSteps, speedup, tokensPerSecond, tokensPerStep, two } from "../core/metrics.js";
import { laneText } from "../core/reducer.js";
import { PERCENT, SAME, acceptPercent, compareRuns, compared, count, has, passSeconds, sidestepped, tokenIds } from "./evidence.js";
import { keep, readKept } from "../parts/dom.js";
import { yourself } from "./game.js";
import { chainCut, learning, passes, sameText, timeOfToken, treeCut } from "./moments.js";
import { shared } from "./tickets.js";
import { EXAMPLE, outcome } from "./threewords.js";

/** @import { JudgedStep } from "../core/state" */
/** @import { Lesson, LessonRun, Question } from "./lesson" */

// ---- Why one token costs a whole pass, and what several rows in one pass cost

/** @type {Lesson} */
const slow = {
  id: "slow",
  runs: ["05-plain"],
  moments: { slow: passes },
  questions: [
    {
      id: "passes",
      options: ["one", "half", "each"],
      reveal([{ plain }]) {
        const share = judged(plain) / plain.tokens;
        const answer = share > 0.9 ? "each" : share > 0.1 ? "half" : "one";
        const milliseconds = two((1000 * plain.elapsed) / judged(plain));
        return { answer, values: { tokens: plain.tokens, passes: judged(plain), milliseconds } };
      },
    },
    {
      id: "rows",
      scale: { min: 1, max: 8, step: 0.1 },
      reveal([{ plain }]) {
        const one = passSeconds(plain.header, 1);
        const eight = passSeconds(plain.header, 8);
        const costs = [1, 2, 4, 8, 16, 32].map((rows) => [rows, passSeconds(plain.header, rows)]);
        const most = Math.max(...costs.map(([, seconds]) => seconds));
        const bars = costs.map(([rows, seconds]) => ({
          values: { rows, milliseconds: two(1000 * seconds) },
          share: seconds / most,
          marked: rows === 1 || rows === 8,
        }));
        return { answer: eight / one, values: { one: two(1000 * one), eight: two(1000 * eight), ratio: two(eight / one) }, bars };
      },
    },
  ],
};

// ---- What is kept of a draft, and what is dropped behind a refusal

/** @type {Lesson} */
const check = {
  id: "check",
  runs: ["20-larger-model"],
  figure: "position",
  moments: { yourself },
  questions: [
    {
      id: "kept",
      scale: PERCENT,
      reveal([{ fast }]) {
        return { answer: acceptPercent(fast), values: { accepted: fast.accepted, drafted: fast.drafted } };
      },
    },
    {
      id: "behind",
      options: ["kept", "tested", "dropped"],
      reveal([{ fast }]) {
        const steps = judgedSteps(fast);
        const dropped = count(steps.flatMap((step) => step.nodes), (node) => node.status === "unreached");
        const known = /** @type {const} */ (["unreached", "rejected"]).every((status) => steps.some((step) => has(step, status)));
        return {
          answer: known ? "dropped" : "kept",
          values: { dropped, drafted: fast.drafted },
          step: steps.find((step) => has(step, "rejected") && has(step, "unreached"))?.index,
        };
      },
    },
    {
      id: "per_step",
      scale: { min: 1, max: 6, step: 0.1 },
      reveal([{ plain, fast }]) {
        return {
          answer: tokensPerStep(fast),
          values: { tokens: fast.tokens, steps: judged(fast), speedup: two(speedup(plain, fast)) },
          step: judgedSteps(fast).find((step) => step.path.length >= 2)?.index,
        };
      },
    },
  ],
};

// ---- Why sampling stays exact: the rejection rule, by hand and in a run

/** @type {Lesson} */
const exact = {
  id: "exact",
  runs: ["03-story-sampled"],
  figure: "rate",
  exercise: true,
  moments: { tickets: shared },
  questions: [
    {
      id: "accept",
      runs: [],
      scale: { min: 0, max: 1, step: 0.01 },
      reveal() {
        const { target, draft, drafted } = EXAMPLE;
        const { accept, residual } = outcome(target, draft);
        const values = { target: two(target[drafted]), draft: two(draft[drafted]), accept: two(accept[drafted]), first: two(residual[0]) };
        return { answer: accept[drafted], values };
      },
    },
    {
      id: "seed",
      options: ["same", "other", "worse"],
      reveal([{ plain, fast }]) {
        const [one, two_] = [tokenIds(plain), tokenIds(fast)];
        const same = laneText(plain) === laneText(fast);
        const parted = one.findIndex((id, i) => id !== two_[i]);
        return { answer: same ? "same" : "other", values: { agree: parted < 0 ? one.length : parted } };
      },
    },
    {
      id: "share",
      scale: PERCENT,
      reveal([{ fast }]) {
        const nodes = judgedSteps(fast).flatMap((step) => step.nodes).filter((node) => Number.isFinite(node.accept_prob));
        const kept = count(nodes, (node) => node.status === "accepted");
        const expected = nodes.reduce((sum, node) => sum + (node.accept_prob ?? 0), 0);
        const lucky = judgedSteps(fast).find((step) => step.nodes.some((node) => node.status === "accepted" && (node.accept_prob ?? 1) < 0.9));
        return {
          answer: (100 * kept) / nodes.length,
          values: { kept, tested: nodes.length, expected: two((100 * expected) / nodes.length) },
          step: lucky?.index,
        };
      },
    },
  ],
};

// ---- How far ahead to draft, and what a policy chooses

/** @type {Lesson} */
const ahead = {
  id: "ahead",
  runs: ["07-constant-three", "01-guess-and-check", "06-too-far"],
  figure: "lookahead",
  changes: { policy: "cost", lookahead: 8 },
  moments: { ahead: chainCut },
  questions: [
    {
      id: "whole",
      scale: PERCENT,
      reveal([{ fast }]) {
        const steps = judgedSteps(fast).filter((step) => step.nodes.length);
        const whole = steps.filter((step) => step.path.length === step.nodes.length);
        const none = count(steps, (step) => !step.path.length);
        return {
          answer: (100 * whole.length) / steps.length,
          values: { whole: whole.length, none, steps: steps.length },
          step: whole[0]?.index,
        };
      },
    },
    {
      id: "chosen",
      runs: ["01-guess-and-check"],
      scale: { min: 1, max: 8, step: 0.1 },
      reveal([{ fast }]) {
        const steps = judgedSteps(fast).filter((step) => step.nodes.length);
        const lengths = steps.map((step) => step.nodes.length);
        const estimated = steps.find((step) => reasonValue(step, "gain") !== undefined);
        return {
          answer: fast.drafted / steps.length,
          values: { least: Math.min(...lengths), most: Math.max(...lengths), ...forecast(estimated) },
          step: estimated?.index,
        };
      },
    },
    {
      id: "waste",
      runs: ["06-too-far"],
      scale: { min: 0, max: 16, step: 0.5 },
      reveal([{ fast }]) {
        const steps = judgedSteps(fast).filter((step) => step.nodes.length);
        const kept = fast.accepted / steps.length;
        return { answer: kept, values: { kept: two(kept), drafted: two(fast.drafted / steps.length), steps: steps.length }, step: steps[0]?.index };
      },
    },
  ],
};

/** The forecast that ended a draft: the position that would not have paid, its tokens and its cost. @param {JudgedStep | undefined} step */
const forecast = (step) =>
  Object.fromEntries(["position", "gain", "cost"].map((name) => [name, (step && reasonValue(step, name)) ?? "–"]));

// ---- When drafting loses: a draft that is far too long

/** @type {Lesson} */
const slower = {
  id: "slower",
  runs: ["06-too-far"],
  figure: "speedup",
  changes: { policy: "cost", fallback: true },
  moments: { slower: timeOfToken },
  questions: [
    {
      id: "faster",
      options: ["faster", "same", "slower"],
      reveal([{ plain, fast }]) {
        const values = { speedup: two(speedup(plain, fast)), fast: two(tokensPerSecond(fast)), plain: two(tokensPerSecond(plain)) };
        return { answer: compared(speedup(plain, fast)), values };
      },
    },
    {
      id: "price",
      scale: { min: 1, max: 8, step: 0.1 },
      reveal([{ plain, fast }]) {
        const pass = plain.elapsed / plain.tokens;
        const step = fast.elapsed / judged(fast);
        const values = {
          pass: two(1000 * pass), step: two(1000 * step), draft: two(1000 * Number(draftPerStep(fast))),
          price: two(step / pass), gives: two(tokensPerStep(fast)), speedup: two(speedup(plain, fast)),
        };
        return { answer: step / pass, values };
      },
    },
  ],
};

// ---- Other ways to draft, and what a drafted token costs them

/** @type {Lesson} */
const other = {
  id: "other",
  runs: ["02-copy-and-edit", "08-early-exit", "09-medusa", "10-feature"],
  figure: "speedup",
  moments: { other: sameText },
  questions: [
    {
      id: "copied",
      scale: { min: 1, max: 16, step: 0.5 },
      reveal([{ plain, fast }]) {
        const longest = judgedSteps(fast).reduce((best, step) => (step.path.length > best.path.length ? step : best));
        return {
          answer: tokensPerStep(fast),
          values: { longest: longest.path.length, speedup: two(speedup(plain, fast)), draft: two(1000 * Number(draftPerStep(fast))) },
          step: longest.index,
        };
      },
    },
    {
      id: "cheapest",
      runs: ["02-copy-and-edit", "08-early-exit", "09-medusa", "10-feature"],
      options: ["02-copy-and-edit", "08-early-exit", "09-medusa", "10-feature"],
      reveal(runs) {
        const each = runs.map(({ fast }) => (1000 * fast.draftSeconds) / fast.drafted);
        const cheapest = each.indexOf(Math.min(...each));
        return { answer: this.options?.[cheapest], values: {}, bars: compareRuns(this.runs ?? [], runs, each, cheapest) };
      },
    },
    {
      id: "exit",
      runs: ["08-early-exit"],
      options: ["faster", "same", "slower"],
      reveal([{ plain, fast }]) {
        const each = fast.draftSeconds / fast.drafted;
        const pass = plain.elapsed / plain.tokens;
        return {
          answer: compared(speedup(plain, fast)),
          values: { speedup: two(speedup(plain, fast)), share: two((100 * each) / pass), accepted: two(acceptPercent(fast)) },
        };
      },
    },
  ],
};

// ---- Several guesses at once: what a tree saves and what it costs

/** @type {Lesson} */
const trees = {
  id: "trees",
  runs: ["04-tree", "01-guess-and-check", "11-feature-tree"],
  figure: "position",
  moments: { trees: treeCut },
  questions: [
    {
      id: "share",
      runs: ["04-tree", "01-guess-and-check"],
      options: ["larger", "same", "smaller"],
      reveal([{ fast: tree }, { fast: chain }]) {
        const values = { tree: two(acceptPercent(tree)), chain: two(acceptPercent(chain)) };
        const more = (acceptPercent(tree) - acceptPercent(chain)) / 100;
        return { answer: Math.abs(more) <= SAME ? "same" : more > 0 ? "larger" : "smaller", values };
      },
    },
    {
      id: "per_step",
      runs: ["04-tree", "01-guess-and-check"],
      scale: { min: 1, max: 6, step: 0.1 },
      reveal([tree, chain]) {
        const values = { chain: two(tokensPerStep(chain.fast)), tree_x: two(speedup(tree.plain, tree.fast)), chain_x: two(speedup(chain.plain, chain.fast)) };
        return { answer: tokensPerStep(tree.fast), values };
      },
    },
    {
      id: "rescued",
      scale: PERCENT,
      reveal([{ fast }]) {
        const steps = judgedSteps(fast);
        const rescued = steps.filter(sidestepped);
        return { answer: (100 * rescued.length) / steps.length, values: { rescued: rescued.length, steps: steps.length }, step: rescued[0]?.index };
      },
    },
  ],
};

// ---- The latest methods: admitted lengths, wide drafts, drafting ahead, learning

/** @type {Lesson} */
const latest = {
  id: "latest",
  runs: ["12-dspark", "13-jetspec", "14-parallel", "15-online"],
  figure: "lookahead",
  moments: { latest: learning },
  questions: [
    {
      id: "admitted",
      scale: { min: 0, max: 5, step: 0.1 },
      reveal([{ fast }]) {
        const steps = judgedSteps(fast);
        const lengths = steps.map((step) => step.nodes.length);
        const values = { least: Math.min(...lengths), most: Math.max(...lengths), accepted: two(acceptPercent(fast)) };
        return { answer: fast.drafted / steps.length, values, step: steps.find((step) => step.nodes.length)?.index };
      },
    },
    {
      id: "wider",
      runs: ["13-jetspec", "12-dspark"],
      options: ["13-jetspec", "12-dspark"],
      reveal(runs) {
        const [jet, spark] = runs.map(({ fast }) => fast);
        const values = {
          jet: two(tokensPerStep(jet)), spark: two(tokensPerStep(spark)),
          jet_nodes: two(jet.drafted / judged(jet)), spark_nodes: two(spark.drafted / judged(spark)),
        };
        return { answer: this.options?.[Number(tokensPerStep(jet)) > Number(tokensPerStep(spark)) ? 0 : 1], values };
      },
    },
    {
      id: "ahead",
      runs: ["14-parallel"],
      options: ["faster", "same", "slower"],
      reveal([{ plain, fast }]) {
        const ready = judgedSteps(fast).find((step) => step.hit);
        const values = { speedup: two(speedup(plain, fast)), hits: fast.hits, known: fast.known, saved: two(1000 * fast.savedSeconds) };
        return { answer: compared(speedup(plain, fast)), values, step: ready?.index };
      },
    },
  ],
};

export const LESSONS = [slow, check, exact, ahead, slower, other, trees, latest];

/** The runs that a question's answer is read off; the lesson's first where it names none. @param {Lesson} lesson @param {Question} question */
export const runsOf = (lesson, question) => question.runs ?? lesson.runs.slice(0, 1);

/**
 * What the Play tab is set to for a lesson: the settings of a recorded run by the names of an address, and the lesson's changes.
 * @param {LessonRun} how @param {Record<string, unknown>} [changes]
 */
export function liveState({ prompt, settings }, changes = {}) {
  const { sampling = {}, max_new_tokens: tokens, ...rest } = settings;
  const { repetition_penalty: penalty = 1, ...drawn } = sampling;
  const usual = { temperature: 0, top_k: 0, top_p: 1, penalty, seed: 0, memory: false, fallback: false };
  return { prompt, tokens, ...usual, ...drawn, ...rest, ...changes };
}

// ---- How far a visitor has come: kept in the browser, as far as it keeps anything

/** @typedef {{ done: string[], at: string }} Progress lessons that are done, and the one that is looked at */

const STORE = "specdemo-lessons";

/** The event that says that progress was made. */
export const PROGRESS = "specdemo-progress";

/** Index of the lesson to open: the one that the address names, else where the visitor was. @param {Progress} progress */
export function firstPlace(progress) {
  const asked = Number(new URLSearchParams(location.search).get("lesson"));
  if (Number.isInteger(asked) && LESSONS[asked - 1]) return asked - 1;
  return Math.max(0, LESSONS.findIndex(({ id }) => id === progress.at));
}

/** @returns {Progress} */
export function readProgress() {
  const { done, at } = readKept(STORE) ?? {};
  return { done: Array.isArray(done) ? done : [], at: at ?? "" };
}

export function saveProgress(/** @type {Progress} */ progress) {
  keep(STORE, progress);
  dispatchEvent(new Event(PROGRESS));
}
