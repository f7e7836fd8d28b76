// The rejection rule, exactly, for a few words: what is kept, what replaces a refused word, and what comes out.

/** @typedef {ReturnType<typeof outcome>} Outcome */

/** The exercise as it opens: probabilities of the target and the draft, and the word that the draft drew. */
export const EXAMPLE = { target: [0.5, 0.3, 0.2], draft: [0.2, 0.6, 0.2], drafted: 1 };

/** Weights as probabilities; nothing at all is taken for indifference. @param {number[]} weights */
export function normal(weights) {
  const sum = weights.reduce((all, weight) => all + weight, 0);
  return weights.map((weight) => (sum ? weight / sum : 1 / weights.length));
}

/**
 * The rule of Leviathan (2211.17192) and Chen (2302.01318) in full.
 *
 * accept: min(1, target / draft), null for a word that is never drafted; kept: drafted and kept;
 * refused: the chance of a refusal; residual: what a replacement is drawn from; result: what comes out
 * wrong: the replacement is drawn from the target itself, a mistake to look at
 * @param {number[]} target @param {number[]} draft @param {{ wrong?: boolean }} [how]
 */
export function outcome(target, draft, { wrong = false } = {}) {
  const accept = target.map((prob, i) => (draft[i] ? Math.min(1, prob / draft[i]) : null));
  const kept = target.map((prob, i) => Math.min(prob, draft[i]));
  const refused = 1 - kept.reduce((all, share) => all + share, 0);
  const left = target.map((prob, i) => Math.max(0, prob - draft[i]));
  const nothing = left.every((share) => share < 1e-12);
  const residual = wrong || nothing ? target : normal(left);
  const result = kept.map((share, i) => share + (nothing ? 0 : refused) * residual[i]);
  return { accept, kept, refused: nothing ? 0 : refused, residual, result };
}

/**
 * One token by the rule. random(): uniform in [0, 1). returns: what was drafted, the draw, whether it was kept, what comes out
 * @param {number[]} draft @param {Pick<Outcome, "accept" | "residual">} how @param {() => number} random
 */
export function draw(draft, { accept, residual }, random) {
  const drafted = pick(draft, random());
  const uniform = random();
  const kept = uniform < (accept[drafted] ?? 0);
  return { drafted, uniform, kept, result: kept ? drafted : pick(residual, random()) };
}

/** @param {number[]} probs @param {number} uniform */
export function pick(probs, uniform) {
  let left = uniform;
  const last = probs.findLastIndex((prob) => prob > 0);
  const found = probs.findIndex((prob) => (left -= prob) < 0);
  return found < 0 ? last : found;
}

/**
 * The gap between shares and probabilities: total variation, 0 when equal, 1 when nothing is shared.
 * @param {number[]} shares @param {number[]} probs
 */
export const gap = (shares, probs) => shares.reduce((all, share, i) => all + Math.abs(share - probs[i]), 0) / 2;
