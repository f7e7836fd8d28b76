// Several guesses at once: what a tree saves and what it costs.

import { speedup, tokensPerStep, two } from "../../core/metrics.js";
import { judgedSteps } from "../../core/series.js";
import { acceptPercent, PERCENT, SAME, sidestepped } from "./evidence.js";
import { treeCut } from "../moments/cut.js";

/** @import { Lesson } from "./lesson" */

/** @type {Lesson} */
export const trees = {
  id: "trees",
  runs: ["04-tree", "11-feature-tree"],
  figure: "position",
  live: { run: "04-tree" },
  moment: treeCut,
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
