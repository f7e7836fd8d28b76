// A thousand draws at a real position, with the draft's guesses and without: the same distribution, counted live.

import { two } from "../../core/metrics.js";
import { laneText } from "../../core/reducer.js";
import { fill } from "../../core/sentence.js";
import { judgedSteps } from "../../core/series.js";
import { spell } from "../../core/symbols.js";
import { el } from "../../parts/dom.js";
import { table } from "../../parts/table.js";
import { button } from "../question.js";
import { draw, gap, outcome, pick } from "../rejection.js";
import { pass, tail } from "./pieces.js";

/**
 * @import { Lane } from "../../core/state"
 * @import { Moment } from "./moment"
 */

const DRAWS = 1000;
const SHOWN = 2500; // milliseconds that they take on the page
const KNOWN = 3; // words, at least, whose probabilities both models' lists give
const SHARE = [0.5, 0.95]; // of the target's probability that these words hold together, so that there is something to see

/**
 * Positions of a sampled run at which a drafted token was rejected, each with both models' probabilities there.
 *
 * The trace lists the likeliest words alone. Those that both lists give stand for themselves and all others are one
 * outcome, the last: the rule is exact for these distributions as for any. Positions with more words come first.
 * returns: { before, words, target, draft } each; before: the text up to there; words: one less than probabilities
 * @param {Lane} lane
 */
export function rejections(lane) {
  const all = judgedSteps(lane).flatMap((step) => {
    const at = step.nodes.findIndex(({ status }) => status === "rejected");
    const node = step.nodes[at];
    const place = node && step.places.find(({ after }) => after === (node.parent ?? -1));
    if (!place || node.draft_prob === undefined) return [];
    const drafted = new Map([...(place.draft ?? []), { ...node, prob: node.draft_prob }].map((one) => [one.token_id, one.prob]));
    const likely = new Map([...(place.target ?? []), { ...node, prob: node.target_prob ?? 0 }].map((one) => [one.token_id, one]));
    const both = [...likely.values()].filter(({ token_id: id }) => drafted.has(id));
    const share = both.reduce((sum, { prob }) => sum + prob, 0);
    if (both.length < KNOWN || share < SHARE[0] || share > SHARE[1]) return [];
    /** @param {number[]} probs */
    const whole = (probs) => [...probs, Math.max(0, 1 - probs.reduce((sum, prob) => sum + prob, 0))];
    const text = laneText({ ...lane, steps: lane.steps.slice(0, lane.steps.indexOf(step)) });
    return [{
      before: text + step.path.filter((i) => i < at).map((i) => step.nodes[i].text ?? "").join(""),
      words: both.map((one) => one.text ?? ""),
      target: whole(both.map(({ prob }) => prob)),
      draft: whole(both.map(({ token_id: id }) => drafted.get(id) ?? 0)),
    }];
  });
  return all.sort((one, other) => other.words.length - one.words.length);
}

/**
 * Counts of so many more draws, with drafts by the rule and without from the target alone.
 * @param {Counts} counts @param {{ target: number[], draft: number[] }} place @param {number} times @param {() => number} random
 */
export function count({ drafted, plain, rejected }, { target, draft }, times, random) {
  const rule = outcome(target, draft);
  for (let i = 0; i < times; i += 1) {
    const { result, kept } = draw(draft, rule, random);
    drafted[result] += 1;
    plain[pick(target, random())] += 1;
    rejected += kept ? 0 : 1;
  }
  return { drafted, plain, rejected };
}

/** @typedef {{ drafted: number[], plain: number[], rejected: number }} Counts */

/** Nothing drawn yet, of so many outcomes. @param {number} outcomes @returns {Counts} */
export const none = (outcomes) => ({ drafted: Array(outcomes).fill(0), plain: Array(outcomes).fill(0), rejected: 0 });

/** @type {Moment} */
export const draws = {
  runs: ["03-story-sampled"],
  show([{ fast }], { words, from, announce }) {
    from("drawn");
    const places = rejections(fast);
    const before = el("p", { class: "sd-moment-text" });
    const box = el("div", { class: "sd-three-box", tabindex: "0", role: "region", "aria-label": words.table });
    const told = el("p", { class: "sd-moment-told" });
    let at = 0;
    let counts = none(0);
    let stop = () => {};

    const paint = () => {
      const { words: known, target, draft } = places[at];
      const total = counts.plain.reduce((sum, one) => sum + one, 0);
      /** @param {number[]} list @param {number} i */
      const share = (list, i) => (total ? two(list[i] / total) : "–");
      const rows = target.map((prob, i) => [known[i] === undefined ? words.others : spell(known[i].trim() || known[i]),
        two(prob), two(draft[i]), share(counts.plain, i), share(counts.drafted, i)]);
      const grid = table(words.columns, rows, { class: "sd-moment-table" });
      [...(grid.tBodies[0]?.rows ?? [])].forEach((row, i) => {
        const shares = [0, target[i], draft[i], total && counts.plain[i] / total, total && counts.drafted[i] / total];
        [...row.cells].forEach((cell, column) => column && cell.style.setProperty("--share", String(shares[column])));
      });
      box.replaceChildren(grid);
      /** @param {number[]} list */
      const off = (list) => two(gap(list.map((one) => one / total), target));
      const said = { total, rejected: counts.rejected, drafted: total && off(counts.drafted), plain: total && off(counts.plain) };
      told.textContent = total ? fill(words.told, said) : words.none;
    };
    const open = () => {
      stop();
      counts = none(places[at].target.length);
      before.textContent = `${tail(places[at].before)} ▢`;
      paint();
    };
    const run = () => {
      open();
      let done = 0;
      stop = pass(SHOWN, (share) => {
        const due = Math.round(DRAWS * share);
        counts = count(counts, places[at], due - done, Math.random);
        done = due;
        paint();
        if (share === 1) announce(told.textContent ?? "");
      });
    };
    const other = button(words.other, () => {
      at = (at + 1) % places.length;
      open();
    });
    open();
    return [before, box, el("div", { class: "sd-three-buttons" }, button(fill(words.draw, { count: DRAWS }), run, "sd-lesson-main"), other), told];
  },
};
