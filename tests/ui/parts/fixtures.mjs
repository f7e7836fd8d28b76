// What tests of the script share: the recorded runs and the words of the page, named by the environment.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { readTrace } from "../../../assets/view/core/lines.js";

/** The page's words as the script gets them. */
export const words = JSON.parse(process.env.SPECDEMO_WORDS);

/** Every recorded run: { name, items }. */
export const recordedRuns = () =>
  readdirSync(process.env.SPECDEMO_RUNS)
    .filter((name) => name.endsWith(".jsonl"))
    .sort()
    .map((name) => ({ name, items: readTrace(readFileSync(join(process.env.SPECDEMO_RUNS, name), "utf8")).items }));
