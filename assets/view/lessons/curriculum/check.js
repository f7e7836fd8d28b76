// What is kept of a draft, and what is dropped behind a refusal.

import { judged, speedup, tokensPerStep, two } from "../../core/metrics.js";
import { judgedSteps } from "../../core/series.js";
import { acceptPercent, count, has, PERCENT } from "./evidence.js";
import { judge } from "../moments/judge.js";

/** @import { Lesson } from "./lesson" */

/** @type {Lesson} */
export const check = {
  id: "check",
  runs: ["20-larger-model"],
  figure: "position",
  live: { run: "20-larger-model" },
  moment: judge,
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
