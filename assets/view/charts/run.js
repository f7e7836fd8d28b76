// A state as the charts read it: judged steps, and where each stands on the horizontal axis.

import { judgedSteps } from "../core/series.js";

/**
 * @import { State } from "../core/state"
 * @import { Choice, Reach, Run } from "./figure"
 */

/** @param {State} state @param {Choice["axis"]} axis @param {Reach} reach @returns {Run} */
export function readRun(state, axis, reach) {
  const { plain, speculative: lane } = state.lanes;
  const steps = judgedSteps(lane);
  const timed = axis === "seconds";
  return {
    state,
    plain,
    lane,
    axis,
    steps,
    starts: steps.map((step, i) => (timed ? (steps[i - 1]?.elapsed ?? 0) : step.index + 0.5)),
    ends: steps.map((step) => (timed ? step.elapsed : step.index + 1.5)),
    x: (point) => (timed ? point.seconds : point.step + 1),
    range: timed ? [0, reach.seconds * 1.01] : [0.4, reach.steps + 0.6],
  };
}
