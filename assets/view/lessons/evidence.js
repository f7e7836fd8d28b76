// How answers are read off recorded runs, and the runs of the lessons.

import { acceptRate, costAt, speedup, two } from "../core/metrics.js";
import { fetchFile } from "../core/recorded.js";
import { fold, tokensOf } from "../core/reducer.js";
import { fill } from "../core/sentence.js";

/** @import { Header, Lane, Step } from "../core/state" */
/** @import { Words } from "../parts/page" */
/** @import { Status } from "../types" */
/** @import { Lanes, LessonRun } from "./lesson" */

// ---- How answers are read off a run

export const PERCENT = { min: 0, max: 100, step: 1 };
export const SAME = 0.03; // speedups and shares that are nearer than this are called the same

/** Seconds of a target pass of so many rows, as measured when the pair was loaded; NaN beyond that. @param {Pick<Header, "verify_costs">} header @param {number} rows */
export const passSeconds = ({ verify_costs: costs = [] }, rows) => (rows > (costs.at(-1)?.[0] ?? 0) ? NaN : costAt(costs, rows));

/** @template T @param {T[]} items @param {(item: T) => boolean} wanted */
export const count = (items, wanted) => items.filter(wanted).length;
/** @param {Step} step @param {Status} status */
export const has = (step, status) => step.nodes.some((node) => node.status === status);

export const tokenIds = (/** @type {Lane} */ lane) => tokensOf(lane).map((token) => token.token_id);

/** Percent of the drafted tokens that were kept. @param {Lane} lane */
export const acceptPercent = (lane) => 100 * (acceptRate(lane) ?? 0);

/** @param {number | null} ratio */
export const compared = (ratio) => (Number(ratio) > 1 + SAME ? "faster" : Number(ratio) < 1 - SAME ? "slower" : "same");

/** Whether a kept token had a refused sibling that was tested before it. @param {Step} step */
export const sidestepped = ({ nodes, path }) =>
  path.some((kept) => nodes.some((node, i) => i < kept && node.parent === nodes[kept].parent && node.status === "rejected"));

/** @param {string[]} names @param {Lanes[]} runs @param {number[]} each @param {number} marked */
export const compareRuns = (names, runs, each, marked) =>
  runs.map(({ plain, fast }, i) => ({
    option: names[i],
    values: { milliseconds: two(each[i]), accepted: two(acceptPercent(fast)), speedup: two(speedup(plain, fast)) },
    share: each[i] / Math.max(...each),
    marked: i === marked,
  }));

const LONGEST = 90; // letters of a prompt in a sentence

/** A sentence that names the prompt of a run; a long one by its beginning. @param {string} sentence @param {LessonRun | undefined} run */
export function withPrompt(sentence, run) {
  const prompt = run?.prompt ?? "";
  return fill(sentence, { prompt: prompt.length > LONGEST ? `${prompt.slice(0, LONGEST - 1).trimEnd()}…` : prompt });
}

// ---- The recorded runs of the lessons

export class Runs {
  #words;
  #known;

  /** known: by the names of the runs that there are. @param {Words} words @param {object} known */
  constructor(words, known) {
    this.#words = words;
    this.#known = known;
  }

  /** The events of a run; rejected with an Error whose message is a sentence. @param {string} name */
  async items(name) {
    const items = name in this.#known ? await fetchFile(name) : null;
    if (!items) throw new Error(fill(this.#words.missing, { name }));
    return items;
  }

  /** Its two lanes. @param {string} name @returns {Promise<Lanes>} */
  async lanes(name) {
    const { plain, speculative } = fold(await this.items(name)).lanes;
    return /** @type {Lanes} */ ({ plain, fast: speculative });
  }
}
