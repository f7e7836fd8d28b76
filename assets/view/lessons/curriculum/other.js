// Other ways to draft, and what a drafted token costs them.

import { draftPerStep, speedup, tokensPerStep, two } from "../../core/metrics.js";
import { judgedSteps } from "../../core/series.js";
import { acceptPercent, compared, compareRuns } from "./evidence.js";
import { same } from "../moments/same.js";

/** @import { Lesson } from "./lesson" */

/** @type {Lesson} */
export const other = {
  id: "other",
  runs: ["02-copy-and-edit", "08-early-exit", "09-medusa", "10-feature"],
  figure: "speedup",
  live: { run: "02-copy-and-edit" },
  moment: same,
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
