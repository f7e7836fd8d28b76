// A moment of the lesson on sampling: two dice beside shared tickets, at a recorded position, and how often both draws agree.

import { two } from "../core/metrics.js";
import { fill, quote } from "../core/sentence.js";
import { table } from "../parts/blocks.js";
import { el } from "../parts/dom.js";
import { bar, bars, pass, positions, slider } from "./moments.js";
import { button } from "./question.js";
import { pick } from "./threewords.js";

/** @import { Moment } from "./moment" */

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

/** @type {Moment} */
export const shared = {
  runs: ["03-story-sampled"],
  show([{ fast }], { words, from, announce }) {
    from("drawn");
    const { before, box, told, other, open, now } = positions(fast, words, () => renew());
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
        `${i === first ? "★ " : ""}${prob ? (Math.log(prob) + drawn[i]).toFixed(2) : "–"}`;
      const rows = target.map((prob, i) => [known[i] === undefined ? words.others : quote({ text: known[i] }), two(prob), two(guess[i]),
        drawn[i].toFixed(2), cell(prob, i, best.target), cell(guess[i], i, best.draft)]);
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
    open();
    return [before, box, told, differ, bars(dice, same, most), el("div", { class: "sd-three-buttons" },
      button(words.renew, renew, "sd-lesson-main"), button(fill(words.draw, { count: DRAWS }), run), other)];
  },
};
