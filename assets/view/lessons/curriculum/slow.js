// Why one token costs a whole pass, and what several rows in one pass cost.

import { judged, two } from "../../core/metrics.js";
import { passSeconds } from "./evidence.js";
import { passes } from "../moments/passes.js";

/** @import { Lesson } from "./lesson" */

/** @type {Lesson} */
export const slow = {
  id: "slow",
  runs: ["05-plain"],
  live: { run: "05-plain" },
  moment: passes,
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
