// When drafting loses: a draft that is far too long.

import { draftPerStep, judged, speedup, tokensPerSecond, tokensPerStep, two } from "../../core/metrics.js";
import { compared } from "./evidence.js";
import { seconds } from "../moments/seconds.js";

/** @import { Lesson } from "./lesson" */

/** @type {Lesson} */
export const slower = {
  id: "slower",
  runs: ["06-too-far"],
  figure: "speedup",
  live: { run: "06-too-far", changes: { policy: "cost", fallback: true } },
  moment: seconds,
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
