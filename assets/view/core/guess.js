// Words that people guess: how they are compared with a text, and what its target thought where a word begins.

/** @import { Lane } from "./state" */
/** @import { Choice } from "../types" */
/** @typedef {{ own: Choice, listed: Choice[] }} Choices the target's likeliest tokens, and its own among them */

/** The words of a text, each with the blanks after it. @param {string} text @returns {string[]} */
export const wordsOf = (text) => text.match(/\S+\s*/g) ?? [];

/** A word as it is compared: letters and digits alone, if it has any. @param {string} word */
export const bare = (word) => word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "") || word.trim();

/** How many words of a draft are kept: the first ones that the target writes too. @param {string[]} draft @param {string[]} own */
export function kept(draft, own) {
  const wrong = draft.findIndex((word, i) => bare(word) !== bare(own[i] ?? ""));
  return wrong < 0 ? draft.length : wrong;
}

/** The recorded choices of the target where its next word begins; null where there are none. @param {Lane} lane @param {string[]} before words before it @returns {Choices | null} */
export function choices(lane, before) {
  const start = before.join("").length;
  let length = 0;
  for (const { next, places } of lane.steps) {
    const text = next?.text ?? "";
    length += text.length;
    if (length <= start || !text.trim()) continue;
    const listed = places?.[0]?.target ?? [];
    const own = listed.find(({ token_id: id }) => id === next?.token_id);
    return own ? { own, listed } : null;
  }
  return null;
}

/** The listed token that is a guess, else one that it begins with. @param {Choices} choices @param {string} guess */
const begun = ({ listed }, guess) => [...listed].sort((one, other) => bare(other.text ?? "").length - bare(one.text ?? "").length)
  .find(({ text }) => text?.trim() && bare(guess).startsWith(bare(text)));

/** The probability of a guess: at most the least one of the list, if it is not listed. @param {Choices} known @param {string} guess */
export function chance(known, guess) {
  const found = begun(known, guess);
  return { prob: (found ?? /** @type {Choice} */ (known.listed.at(-1))).prob, listed: Boolean(found) };
}

/**
 * The guesses of a class beside the target's choices, the likeliest first. What is not listed and only one phone guessed
 * counts among the others, which have no word.
 * @typedef {{ word: string, prob: number | null, count: number, kept: boolean }} Row
 * @param {Choices} known @param {string} own the target's word @param {[string, number][]} guesses words, and how many phones guessed each
 */
export function spread(known, own, guesses) {
  /** @type {Map<unknown, Row>} */
  const rows = new Map([[known.own, { word: own.trim(), prob: known.own.prob, count: 0, kept: true }]]);
  const others = { word: "", prob: null, count: 0, kept: false };
  for (const choice of known.listed) if (!rows.has(choice) && /\p{L}|\p{N}/u.test(choice.text ?? "")) rows.set(choice, { word: (choice.text ?? "").trim(), prob: choice.prob, count: 0, kept: false });
  for (const [word, count] of guesses) {
    const listed = begun(known, word);
    const key = bare(word) === bare(own) ? known.own : listed && listed !== known.own ? listed : bare(word);
    const row = rows.get(key) ?? { word, prob: null, count: 0, kept: false };
    rows.set(key, row);
    if (row.count === 0 && row.prob !== null && !row.kept) row.word = word;
    row.count += count;
  }
  const all = [...rows.values()];
  const shown = all.filter((row) => row.prob !== null || row.count > 1);
  for (const row of all) if (!shown.includes(row)) others.count += row.count;
  shown.sort((one, other) => (other.prob ?? 0) - (one.prob ?? 0) || other.count - one.count);
  const total = all.reduce((sum, { count }) => sum + count, 0);
  return {
    rows: others.count ? [...shown, others] : shown,
    total,
    /** that the target keeps a draft drawn from the class: the smaller of both probabilities, summed (lesson 3) */
    overlap: shown.reduce((sum, { prob, count }) => sum + Math.min(prob ?? 0, total ? count / total : 0), 0),
  };
}
