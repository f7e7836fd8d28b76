// Why sampling stays exact: the rejection rule, by hand and in a run.

import { two } from "../../core/metrics.js";
import { laneText } from "../../core/reducer.js";
import { EXAMPLE, outcome } from "../rejection.js";
import { judgedSteps } from "../../core/series.js";
import { count, PERCENT, tokenIds } from "./evidence.js";
import { draws } from "../moments/draws.js";

/** @import { Lesson } from "./lesson" */

/** @type {Lesson} */
export const exact = {
  id: "exact",
  runs: ["03-story-sampled"],
  figure: "rate",
  live: { run: "03-story-sampled" },
  exercise: true,
  moment: draws,
  questions: [
    {
      id: "accept",
      runs: [],
      scale: { min: 0, max: 1, step: 0.01 },
      reveal() {
        const { target, draft, drafted } = EXAMPLE;
        const { accept, residual } = outcome(target, draft);
        const values = { target: two(target[drafted]), draft: two(draft[drafted]), accept: two(accept[drafted]), first: two(residual[0]) };
        return { answer: accept[drafted], values };
      },
    },
    {
      id: "seed",
      options: ["same", "other", "worse"],
      reveal([{ plain, fast }]) {
        const [one, two_] = [tokenIds(plain), tokenIds(fast)];
        const same = laneText(plain) === laneText(fast);
        const parted = one.findIndex((id, i) => id !== two_[i]);
        return { answer: same ? "same" : "other", values: { agree: parted < 0 ? one.length : parted } };
      },
    },
    {
      id: "share",
      scale: PERCENT,
      reveal([{ fast }]) {
        const nodes = judgedSteps(fast).flatMap((step) => step.nodes).filter((node) => Number.isFinite(node.accept_prob));
        const kept = count(nodes, (node) => node.status === "accepted");
        const expected = nodes.reduce((sum, node) => sum + (node.accept_prob ?? 0), 0);
        const lucky = judgedSteps(fast).find((step) => step.nodes.some((node) => node.status === "accepted" && (node.accept_prob ?? 1) < 0.9));
        return {
          answer: (100 * kept) / nodes.length,
          values: { kept, tested: nodes.length, expected: two((100 * expected) / nodes.length) },
          step: lucky?.index,
        };
      },
    },
  ],
};
