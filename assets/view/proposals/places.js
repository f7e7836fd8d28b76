// The same place in several recorded runs of one text: who drafted there, and what. Pure.

import { fold, tokensOf } from "../core/reducer.js";

/**
 * runs: the events of each. returns: { tokens, header, places }: the text of the first run's plain lane, and by place
 * (how many tokens stand before it) the steps that began there: { method, step }. A run counts as long as it said the same.
 */
export function sharedPlaces(runs) {
  const lanes = runs.map((items) => fold(items).lanes);
  const plain = lanes.find((lane) => lane.plain)?.plain;
  const tokens = plain ? tokensOf(plain) : [];
  const all = new Map();
  for (const { speculative } of lanes) {
    for (const [place, step] of speculative ? stepsOn(tokens, speculative) : []) {
      if (!all.has(place)) all.set(place, []);
      all.get(place).push({ method: speculative.header.method, step });
    }
  }
  const shared = [...all].filter(([, steps]) => steps.length > 1).sort(([one], [other]) => one - other);
  return { tokens, header: plain?.header ?? null, places: new Map(shared) };
}

// [place, step] of each step that drafted, up to the first token that is not the text's.
function stepsOn(tokens, lane) {
  const out = [];
  let place = 0;
  for (const step of lane.steps) {
    if (step.open) break;
    if (step.nodes.length) out.push([place, step]);
    const own = tokensOf({ steps: [step] });
    if (own.some((token, i) => token.token_id !== tokens[place + i]?.token_id)) break;
    place += own.length;
  }
  return out;
}

/** Where one looks first: the place at which most drafted, the earliest of those behind the start; -1 for none. */
export function bestPlace(places) {
  let best = -1;
  for (const [place, steps] of places) {
    const most = best < 0 ? 0 : places.get(best).length;
    if (steps.length > most || (best === 0 && steps.length === most)) best = place;
  }
  return best;
}
