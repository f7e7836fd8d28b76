// What taking tokens back does to the distribution of the first word, exactly. Pure.

/**
 * The exact distribution of the first word when drafting stops after an unlikely word, and when that word is then
 * taken back. A word is unlikely when the chance that it survives the target's test is below the threshold.
 * @param {number[]} target @param {number[]} draft @param {number} threshold @param {{ looksBack: boolean }} how
 */
export function firstWord(target, draft, threshold, { looksBack }) {
  const survival = target.map((p, word) => (draft[word] ? Math.min(1, p / draft[word]) : 1));
  const left = target.map((p, word) => Math.max(0, p - draft[word]));
  const rest = left.reduce((total, share) => total + share, 0);
  const shares = target.map(() => 0);
  draft.forEach((chance, word) => {
    const dropped = looksBack && survival[word] < threshold;
    const refused = chance * (1 - survival[word]);
    if (!dropped) shares[word] += chance * survival[word];
    shares.forEach((_, other) => {
      shares[other] += dropped ? chance * target[other] : refused && (refused * left[other]) / rest;
    });
  });
  return shares;
}
