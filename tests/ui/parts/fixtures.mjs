// What tests of the script share: the recorded runs and the words of the page, named by the environment, and numbers.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { readTrace } from "../../../assets/view/core/lines.js";
import { fold } from "../../../assets/view/core/reducer.js";

/** The page's words as the script gets them. */
export const words = JSON.parse(process.env.SPECDEMO_WORDS);

/** Every recorded run: { name, items }. */
export const recordedRuns = () =>
  readdirSync(process.env.SPECDEMO_RUNS)
    .filter((name) => name.endsWith(".jsonl"))
    .sort()
    .map((name) => ({ name: name.replace(".jsonl", ""), items: readTrace(readFileSync(join(process.env.SPECDEMO_RUNS, name), "utf8")).items }));

/** The lanes of every recorded run by its name, as lessons take them: { plain, fast }. */
export const recordedLanes = () => new Map(recordedRuns().map(({ name, items }) => {
  const { plain, speculative: fast } = fold(items).lanes;
  return [name, { plain, fast }];
}));

export const near = (one, other, within = 1e-9) => assert.ok(Math.abs(one - other) <= within, `${one} is not ${other}`);

/** Numbers from 0 to 1 that look random and are the same each time. */
export const randomFrom = (state) => () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 4294967296;
