// One position of the text in every lane: lanes reach it in steps of their own. Pure.

/** @import { Lane } from "../core/state" */

/**
 * Where a lane writes its token of this number, counted from 1: the step's index, and which of its kept tokens it is.
 * null where the lane has not come so far. An open step has no tokens yet.
 *
 *     tokens a step   3   1   4        token 5: step 2, place 0
 * @param {Lane | null} lane @param {number} token
 */
export function tokenAt(lane, token) {
  const steps = lane?.steps ?? [];
  const step = steps.findIndex((one) => !one.open && one.tokens >= token);
  const before = steps[step - 1];
  return step < 0 || token < 1 ? null : { step, place: token - 1 - (before && !before.open ? before.tokens : 0) };
}
