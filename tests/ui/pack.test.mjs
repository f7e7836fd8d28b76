// The class pack as far as it needs no browser: questions, packages, worksheets without charts. Prints its files as JSON.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { quizTable, readQuizzes, recordedState, sheets } from "../../assets/view/lessons/pack.js";
import { qti21, zipped } from "../../assets/view/lessons/qti.js";
import { translator } from "../../assets/view/page/language.js";
import { recordedLanes, recordedRuns } from "./parts/fixtures.mjs";

const { table, lessons } = JSON.parse(readFileSync(0, "utf8"));
const words = translator(table).words(lessons);
const runs = new Map(recordedRuns().map(({ name, items }) => [name, items]));
const lanes = recordedLanes();
const quizzes = await readQuizzes(words, async (name) => lanes.get(name));
assert.equal(quizzes.length, 8);
const svg = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><title>a chart</title></svg>';
const shown = Object.fromEntries(quizzes.map(({ id, lesson }) => [id, {
  state: recordedState(runs.get(lesson.runs[0]), words.lessons[id].runs[lesson.runs[0]].title),
  chart: lesson.figure && { chart: lesson.figure, title: "A chart", svg, png: null },
}]));
const [language] = process.argv.slice(2);
const files = {
  "worksheets.html": sheets(quizzes, words, shown, { answers: false, language }),
  "answers.html": sheets(quizzes, words, shown, { answers: true, language }),
  "questions.csv": quizTable(quizzes),
};
const packages = { "qti-2.1": qti21(quizzes, "Title & <more>", language) };
const archive = Buffer.from(zipped([...packages["qti-2.1"], ["ü.bin", Uint8Array.from([0, 255, 10])]])).toString("base64");
console.log(JSON.stringify({ quizzes, files, packages, archive }));
