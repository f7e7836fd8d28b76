// How far ahead to draft, and what a policy chooses.

import { two } from "../../core/metrics.js";
import { reasonValue } from "../../core/reasons.js";
import { judgedSteps } from "../../core/series.js";
import { count, PERCENT } from "./evidence.js";
import { chainCut } from "../moments/cut.js";

/**
 * @import { JudgedStep } from "../../core/state"
 * @import { Lesson } from "./lesson"
 */

/** @type {Lesson} */
export const ahead = {
  id: "ahead",
  runs: ["07-constant-three", "01-guess-and-check", "06-too-far"],
  figure: "lookahead",
  live: { run: "07-constant-three", changes: { policy: "cost", lookahead: 8 } },
  moment: chainCut,
  questions: [
    {
      id: "whole",
      scale: PERCENT,
      reveal([{ fast }]) {
        const steps = judgedSteps(fast).filter((step) => step.nodes.length);
        const whole = steps.filter((step) => step.path.length === step.nodes.length);
        const none = count(steps, (step) => !step.path.length);
        return {
          answer: (100 * whole.length) / steps.length,
          values: { whole: whole.length, none, steps: steps.length },
          step: whole[0]?.index,
        };
      },
    },
    {
      id: "chosen",
      runs: ["01-guess-and-check"],
      scale: { min: 1, max: 8, step: 0.1 },
      reveal([{ fast }]) {
        const steps = judgedSteps(fast).filter((step) => step.nodes.length);
        const lengths = steps.map((step) => step.nodes.length);
        const estimated = steps.find((step) => reasonValue(step, "gain") !== undefined);
        return {
          answer: fast.drafted / steps.length,
          values: { least: Math.min(...lengths), most: Math.max(...lengths), ...forecast(estimated) },
          step: estimated?.index,
        };
      },
    },
    {
      id: "waste",
      runs: ["06-too-far"],
      scale: { min: 0, max: 16, step: 0.5 },
      reveal([{ fast }]) {
        const steps = judgedSteps(fast).filter((step) => step.nodes.length);
        const kept = fast.accepted / steps.length;
        return { answer: kept, values: { kept: two(kept), drafted: two(fast.drafted / steps.length), steps: steps.length }, step: steps[0]?.index };
      },
    },
  ],
};

/** The forecast that ended a draft: the position that would not have paid, its tokens and its cost. @param {JudgedStep | undefined} step */
const forecast = (step) =>
  Object.fromEntries(["position", "gain", "cost"].map((name) => [name, (step && reasonValue(step, name)) ?? "–"]));
