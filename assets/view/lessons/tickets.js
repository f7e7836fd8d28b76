// Two dice against shared tickets: how often a drafted token is accepted by either rule, and whose text stays the same.

import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { el } from "../parts/dom.js";
import { bar, bars, slider } from "./moments.js";
import { button } from "./question.js";
import { draw, gap, outcome, pick } from "./threewords.js";

/** @import { Moment } from "./moment" */

/** The target's probabilities of a few tokens; at the end of the slider the draft has them in the opposite order. */
export const TARGET = [0.45, 0.25, 0.15, 0.1, 0.05];
const DRAWS = 1000;

/** The draft's distribution. @param {number} difference 0 to 1 */
export const draftOf = (difference) => TARGET.map((prob, i) => (1 - difference) * prob + difference * TARGET[TARGET.length - 1 - i]);

/**
 * Chances that a drawn token is accepted: by the rejection rule, and with shared tickets (Daliri 2408.07978), where
 * a token wins in both distributions with 1 / sum of max(p / p of it, q / q of it); `least` is the bound of that.
 * @param {number[]} target @param {number[]} draft
 */
export function chances(target, draft) {
  const dice = 1 - gap(target, draft);
  const tickets = target.reduce((all, prob, i) => {
    const ratios = target.map((other, j) => Math.max(other / prob, draft[j] / draft[i]));
    return all + 1 / ratios.reduce((sum, one) => sum + one, 0);
  }, 0);
  return { dice, tickets, least: dice / (2 - dice) };
}

/** The token with the largest log probability + ticket. @param {number[]} probs @param {number[]} tickets */
export function winner(probs, tickets) {
  const sums = probs.map((prob, i) => Math.log(prob) + tickets[i]);
  return sums.indexOf(Math.max(...sums));
}

/**
 * Draw tokens by both rules. returns: how many drafts were accepted, and how many tokens are those without a draft
 * @param {number[]} target @param {number[]} draft @param {number} times @param {() => number} random
 */
export function compare(target, draft, times, random) {
  const rule = outcome(target, draft);
  const found = { dice: 0, tickets: 0, same: 0 };
  for (let i = 0; i < times; i += 1) {
    const tickets = target.map(() => -Math.log(-Math.log(1 - random())));
    found.tickets += winner(target, tickets) === winner(draft, tickets) ? 1 : 0;
    const alone = pick(target, random()); // what the target's die gives without a draft
    const { kept, result } = draw(draft, rule, random);
    found.dice += kept ? 1 : 0;
    found.same += result === alone ? 1 : 0;
  }
  return found;
}

/** @type {Moment} */
export const sharedTickets = {
  runs: [],
  show(_, { words, from, announce }) {
    from("computed");
    const [dice, tickets, least] = [bar(), bar("sd-moment-kept"), bar("sd-moment-cost")];
    const told = el("p", { class: "sd-moment-told" });
    let draft = draftOf(0.4);
    const paint = (/** @type {number} */ percent) => {
      draft = draftOf(percent / 100);
      const chance = chances(TARGET, draft);
      dice.show(fill(words.dice, { chance: two(chance.dice) }), chance.dice);
      tickets.show(fill(words.tickets, { chance: two(chance.tickets) }), chance.tickets);
      least.show(fill(words.least, { chance: two(chance.least) }), chance.least);
      told.textContent = words.none;
    };
    const run = () => {
      told.textContent = fill(words.told, { total: DRAWS, ...compare(TARGET, draft, DRAWS, Math.random) });
      announce(told.textContent);
    };
    const choose = slider(words.difference, { min: 0, max: 100, value: 40 }, paint);
    paint(40);
    return [choose, bars(dice, tickets, least), button(fill(words.draw, { total: DRAWS }), run, "sd-lesson-main"), told];
  },
};
