// A recorded run, priced as if every draft had ended sooner: what a shorter chain or a smaller tree would have given.

import { two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { judgedSteps } from "../../core/series.js";
import { depthOf } from "../../core/tree.js";
import { el } from "../../parts/dom.js";
import { passSeconds } from "../curriculum/evidence.js";
import { bar, bars, slider } from "./pieces.js";

/**
 * @import { Lane } from "../../core/state"
 * @import { Moment } from "./moment"
 */

/**
 * For drafts of at most 1, 2 ... nodes: what a step gives and costs, on average.
 *
 * tokens: kept and the target's own; cost: in plain passes; drafted, kept: tokens of all steps; speedup: tokens over cost
 * A cut draft keeps what was kept of its nodes: their order is the one in which they were drafted. A pass costs what
 * was measured for its rows, a level of the draft what it took on average. The steps begin where they were recorded.
 *
 *     nodes   0 accepted   1 accepted   2 rejected      cut at 1: keeps node 0, and the target's own token is 1's
 * @param {Lane} lane
 */
export function cuts(lane) {
  const steps = judgedSteps(lane).filter(({ nodes }) => nodes.length);
  /** @param {(step: (typeof steps)[number]) => number} of */
  const sum = (of) => steps.reduce((total, step) => total + of(step), 0);
  const level = sum(({ draftSeconds }) => draftSeconds) / sum(({ nodes }) => depthOf(nodes));
  const most = Math.max(...steps.map(({ nodes }) => nodes.length));
  return Array.from({ length: most }, (_, i) => {
    const limit = i + 1;
    const kept = sum(({ path }) => path.filter((node) => node < limit).length);
    const drafted = sum(({ nodes }) => Math.min(limit, nodes.length));
    const seconds = sum(({ nodes }) => level * depthOf(nodes.slice(0, limit)) + passSeconds(lane.header, 1 + Math.min(limit, nodes.length)));
    const tokens = 1 + kept / steps.length;
    const cost = seconds / steps.length / passSeconds(lane.header, 1);
    return { limit, tokens, cost, drafted, kept, speedup: tokens / cost };
  });
}

/** @param {string} run @returns {Moment} */
const cutting = (run) => ({
  runs: [run],
  show([{ fast }], { words, from }) {
    from("modelled");
    const all = cuts(fast);
    const best = all.reduce((one, other) => (other.speedup > one.speedup ? other : one));
    const most = { tokens: Math.max(...all.map(({ tokens, cost }) => Math.max(tokens, cost))), speedup: best.speedup };
    const [tokens, cost, speedup] = [bar("sd-moment-kept"), bar("sd-moment-cost"), bar()];
    const told = el("p", { class: "sd-moment-told", "aria-live": "polite" });
    /** @param {number} limit */
    const paint = (limit) => {
      const one = all[limit - 1];
      tokens.show(fill(words.tokens, { tokens: two(one.tokens) }), one.tokens / most.tokens);
      cost.show(fill(words.cost, { cost: two(one.cost) }), one.cost / most.tokens);
      speedup.show(fill(words.speedup, { speedup: two(one.speedup) }), one.speedup / most.speedup);
      told.textContent = fill(words.told, { kept: one.kept, drafted: one.drafted, wasted: one.drafted - one.kept, best: best.limit, speedup: two(best.speedup) });
    };
    const start = all.length;
    paint(start);
    return [slider(words.limit, { min: 1, max: all.length, value: start }, paint), bars(tokens, cost, speedup), told];
  },
});

export const chainCut = cutting("06-too-far");
export const treeCut = cutting("04-tree");
