// What a teacher takes home, made in the browser from what the page shows: worksheets, questions for an LMS, pictures for slides.

import { fill } from "../../core/sentence.js";
import { Runs } from "../runs.js";
import { pictures, recordedState } from "./figures.js";
import { qti21 } from "./qti21.js";
import { quizTable, readQuizzes } from "./quiz.js";
import { sheets } from "./sheets.js";
import { zipped } from "./zip.js";

/**
 * @import { Words } from "../../parts/page"
 * @import { Entry } from "./zip"
 * @typedef {{ runs: Record<string, unknown>, language: string, png?: boolean }} Given
 */

/**
 * All files of the pack that the lessons give. words: of all lessons; runs: those that are there, by name
 * Rejected with an Error whose message is a sentence where a recorded run cannot be read.
 * @param {Words} words @param {Given} given @returns {Promise<Entry[]>}
 */
export async function packFiles(words, { runs: known, language, png = true }) {
  const runs = new Runs(words, known);
  const quizzes = await readQuizzes(words, (name) => runs.lanes(name));
  /** @type {Record<string, import("./sheets.js").Shown>} */
  const shown = {};
  /** @type {Entry[]} */
  const drawn = [];
  for (const { id, place, lesson } of quizzes) {
    const [name] = lesson.runs;
    const state = recordedState(await runs.items(name), String(words.lessons[id].runs[name].title));
    const all = await pictures(`${place}-${id}`, state, words.view, { png });
    for (const { name: file, chart, svg, png: pixels } of all) {
      drawn.push([`figures/${file}-${chart}.svg`, svg]);
      if (pixels) drawn.push([`figures/${file}-${chart}.png`, pixels]);
    }
    shown[id] = { state, picture: all.find(({ chart }) => chart === lesson.figure) };
  }
  const title = fill(words.pack.title, {});
  return [
    ["worksheets.html", sheets(quizzes, words, shown, { answers: false, language })],
    ["answers.html", sheets(quizzes, words, shown, { answers: true, language })],
    ["questions.csv", `\ufeff${quizTable(quizzes)}`],
    ["questions-qti-2.1.zip", zipped(qti21(quizzes, title, language))],
    ...drawn,
  ];
}

// What the page's server adds; a static site has no such server.
const SERVED = ["lessons-scorm-1.2.zip", "speculative_decoding.ipynb"];
const ROOT = /\/files\/\w+\/view\//.test(import.meta.url) ? new URL("../../../../../", import.meta.url) : null;

/** Save the pack as one file. @param {Words} words @param {Given} given @returns {Promise<number>} how many files */
export async function savePack(words, given) {
  const own = await packFiles(words, given);
  const added = await Promise.all((ROOT ? SERVED : []).map(async (name) => {
    const answer = await fetch(new URL(`class/${given.language}/${name}`, ROOT ?? undefined)).catch(() => null);
    return answer?.ok ? [/** @type {Entry} */ ([name, new Uint8Array(await answer.arrayBuffer())])] : [];
  }));
  const files = [...own, ...added.flat()];
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([zipped(files)], { type: "application/zip" }));
  link.download = "specdemo-class-pack.zip";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return files.length;
}
