// A moment of the lesson on sampling: two dice beside shared tickets, at a recorded position, and how often both draws agree.

import { decimals, judgedSteps, two } from "../core/metrics.js";
import { laneText } from "../core/reducer.js";
import { fill, quote } from "../core/sentence.js";
import { table } from "../parts/blocks.js";
import { el } from "../parts/dom.js";
import { bar, bars, pass, slider, tail } from "./moments.js";
import { button } from "./question.js";
import { pick } from "./threewords.js";

/** @import { Lane } from "../core/state" */
/** @import { Moment } from "./lesson" */

const DRAWS = 1000;
const SHOWN = 2500; // milliseconds that they take on the page

/**
 * The chance that target and draft draw the same token: with a die each, and with shared tickets. The last: with the
 * rejection rule, which no rule exceeds.
 *
 * Of the target, a token wins both draws with the chance 1 / sum over all tokens w of max(p(w) / p, q(w) / q): the
 * largest of log probability + standard Gumbel number (Daliri, Musco, Suresh 2408.07978).
 * @param {number[]} target @param {number[]} draft
 */
export function agreement(target, draft) {
  const sum = (/** @type {(i: number) => number} */ of) => target.reduce((total, _, i) => total + of(i), 0);
  const both = (/** @type {number} */ i) => 1 / sum((w) => Math.max(target[w] / target[i], draft[w] / draft[i]));
  return {
    dice: sum((i) => target[i] * draft[i]),
    tickets: sum((i) => (target[i] && draft[i] ? both(i) : 0)),
    most: sum((i) => Math.min(target[i], draft[i])),
  };
}

/** A draft between the target (0) and the recorded draft (1). @param {number[]} target @param {number[]} draft @param {number} share */
export const between = (target, draft, share) => target.map((prob, i) => (1 - share) * prob + share * draft[i]);

/** A ticket for each token: a standard Gumbel number. @param {number} count @param {() => number} random */
export const tickets = (count, random) => Array.from({ length: count }, () => -Math.log(-Math.log(1 - random())));

/** The token with the largest log probability + ticket. @param {number[]} probs @param {number[]} drawn */
export function winner(probs, drawn) {
  const sums = probs.map((prob, i) => Math.log(prob) + drawn[i]);
  return sums.indexOf(Math.max(...sums));
}

// ---- Positions of a sampled run at which a drafted token was rejected

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
    const whole = (/** @type {number[]} */ probs) => [...probs, Math.max(0, 1 - probs.reduce((sum, prob) => sum + prob, 0))];
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

/** @type {Moment} */
export const shared = {
  runs: ["03-story-sampled"],
  show([{ fast }], { words, from, announce }) {
    from("drawn");
    const places = rejections(fast);
    let at = 0;
    const now = () => places[at];
    const before = el("p", { class: "sd-moment-text" });
    const told = el("p", { class: "sd-moment-told" });
    const box = el("div", { class: "sd-three-box", tabindex: "0", role: "region", "aria-label": words.table });
    const [dice, same, most] = [bar("sd-moment-cost"), bar("sd-moment-kept"), bar()];
    let share = 1;
    let stop = () => {};
    /** @type {number[]} */
    let drawn = [];
    const draft = () => between(now().target, now().draft, share);

    const paint = () => {
      const { words: known, target } = now();
      const guess = draft();
      const best = { target: winner(target, drawn), draft: winner(guess, drawn) };
      const cell = (/** @type {number} */ prob, /** @type {number} */ i, /** @type {number} */ first) =>
        `${i === first ? "★ " : ""}${prob ? decimals(Math.log(prob) + drawn[i], 2) : "–"}`;
      const rows = target.map((prob, i) => [known[i] === undefined ? words.others : quote({ text: known[i] }), two(prob), two(guess[i]),
        decimals(drawn[i], 2), cell(prob, i, best.target), cell(guess[i], i, best.draft)]);
      box.replaceChildren(table(words.columns, rows));
      const rates = agreement(target, guess);
      for (const [one, name] of /** @type {const} */ ([[dice, "dice"], [same, "tickets"], [most, "most"]])) {
        one.show(fill(words[name], { percent: Math.round(100 * rates[name]) }), rates[name]);
      }
      told.textContent = words[best.target === best.draft ? "accepted" : "rejected"];
    };
    const renew = () => {
      stop();
      drawn = tickets(now().target.length, Math.random);
      paint();
    };
    const run = () => {
      stop();
      const { target } = now();
      const guess = draft();
      const counts = { dice: 0, tickets: 0 };
      let done = 0;
      stop = pass(SHOWN, (part) => {
        for (; done < Math.round(DRAWS * part); done += 1) {
          const numbers = tickets(target.length, Math.random);
          counts.tickets += Number(winner(target, numbers) === winner(guess, numbers));
          counts.dice += Number(pick(target, Math.random()) === pick(guess, Math.random()));
        }
        told.textContent = fill(words.told, { total: done, ...counts });
        if (part === 1) announce(told.textContent);
      });
    };
    const differ = slider(words.differ, { min: 0, max: 100, value: 100 }, (value) => {
      stop();
      share = value / 100;
      paint();
    });
    const open = (/** @type {number} */ place) => {
      at = place % places.length;
      before.textContent = `${tail(now().before)} ▢`;
      renew();
    };
    open(0);
    return [before, box, told, differ, bars(dice, same, most), el("div", { class: "sd-three-buttons" },
      button(words.renew, renew, "sd-lesson-main"), button(fill(words.draw, { count: DRAWS }), run), button(words.other, () => open(at + 1)))];
  },
};
