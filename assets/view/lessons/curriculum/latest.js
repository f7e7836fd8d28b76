// The latest methods: admitted lengths, wide drafts, drafting ahead, learning.

import { judged, speedup, tokensPerStep, two } from "../../core/metrics.js";
import { judgedSteps } from "../../core/series.js";
import { acceptPercent, compared } from "./evidence.js";
import { learning } from "../moments/learning.js";

/** @import { Lesson } from "./lesson" */

/** @type {Lesson} */
export const latest = {
  id: "latest",
  runs: ["12-dspark", "13-jetspec", "14-parallel", "15-online"],
  figure: "lookahead",
  live: { run: "12-dspark" },
  moment: learning,
  questions: [
    {
      id: "admitted",
      scale: { min: 0, max: 5, step: 0.1 },
      reveal([{ fast }]) {
        const steps = judgedSteps(fast);
        const lengths = steps.map((step) => step.nodes.length);
        const values = { least: Math.min(...lengths), most: Math.max(...lengths), accepted: two(acceptPercent(fast)) };
        return { answer: fast.drafted / steps.length, values, step: steps.find((step) => step.nodes.length)?.index };
      },
    },
    {
      id: "wider",
      runs: ["13-jetspec", "12-dspark"],
      options: ["13-jetspec", "12-dspark"],
      reveal(runs) {
        const [jet, spark] = runs.map(({ fast }) => fast);
        const values = {
          jet: two(tokensPerStep(jet)), spark: two(tokensPerStep(spark)),
          jet_nodes: two(jet.drafted / judged(jet)), spark_nodes: two(spark.drafted / judged(spark)),
        };
        return { answer: this.options?.[Number(tokensPerStep(jet)) > Number(tokensPerStep(spark)) ? 0 : 1], values };
      },
    },
    {
      id: "ahead",
      runs: ["14-parallel"],
      options: ["faster", "same", "slower"],
      reveal([{ plain, fast }]) {
        const ready = judgedSteps(fast).find((step) => step.hit);
        const values = { speedup: two(speedup(plain, fast)), hits: fast.hits, known: fast.known, saved: two(1000 * fast.savedSeconds) };
        return { answer: compared(speedup(plain, fast)), values, step: ready?.index };
      },
    },
    {
      id: "learned",
      runs: ["15-online"],
      options: ["more", "fewer"],
      reveal([{ fast }]) {
        const steps = judgedSteps(fast);
        const [early, late] = [steps.slice(0, steps.length >> 1), steps.slice(steps.length >> 1)].map((half) =>
          half.reduce((sum, step) => sum + step.path.length, 0) / half.reduce((sum, step) => sum + step.nodes.length, 0));
        return { answer: late > early ? "more" : "fewer", values: { early: two(100 * early), late: two(100 * late) } };
      },
    },
  ],
};
