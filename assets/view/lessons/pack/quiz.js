// The lessons' questions with the answers that the recorded runs give: what worksheets, tests of an LMS and tables are made of.

import { two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { LESSONS, runsOf } from "../curriculum.js";
import { CLOSE } from "../question.js";

/**
 * @import { Words } from "../../parts/page"
 * @import { Lanes, Lesson } from "../curriculum/lesson"
 * @typedef {{ id: string, text: string }} Option
 * @typedef {{ min: number, max: number, low: number, high: number, value: number }} Range a number, and the answers that count as right
 * @typedef {{ id: string, ask: string, options: Option[], range: Range | null, answer: string, told: string, evidence: string, bars: string[] }} Asked
 * @typedef {{ id: string, place: number, lesson: Lesson, title: string, aim: string, text: string[], takeaway: string, questions: Asked[] }} Quiz
 */

/**
 * All lessons. words: of all lessons; lanes: the two lanes of a recorded run; rejected where one cannot be read
 * @param {Words} words @param {(run: string) => Promise<Lanes>} lanes @returns {Promise<Quiz[]>}
 */
export function readQuizzes(words, lanes) {
  return Promise.all(LESSONS.map(async (lesson, place) => {
    const own = words.lessons[lesson.id];
    const questions = await Promise.all(lesson.questions.map(async (question) => {
      const runs = await Promise.all(runsOf(lesson, question).map(lanes));
      const said = own.questions[question.id];
      const { answer, values, bars = [] } = question.reveal(runs);
      const { scale, options = [] } = question;
      const number = scale ? Number(two(Number(answer))) : 0;
      const room = scale ? CLOSE * (scale.max - scale.min) : 0;
      return {
        id: `${lesson.id}-${question.id}`,
        ask: String(said.ask),
        options: options.map((id) => ({ id, text: String(said.options[id]) })),
        range: scale ? { min: scale.min, max: scale.max, low: rounded(Math.max(scale.min, number - room)), high: rounded(Math.min(scale.max, number + room)), value: number } : null,
        answer: scale ? String(number) : String(answer),
        told: scale ? fill(said.value, { value: two(Number(answer)) }) : String(said.options[String(answer)]),
        evidence: fill(said.evidence, values),
        bars: bars.map(({ values: each, option }) => fill(said.bar, { ...each, option: said.options?.[option ?? ""] })),
      };
    }));
    return { id: lesson.id, place: place + 1, lesson, title: String(own.title), aim: String(own.aim), text: [...own.text].map(String), takeaway: String(own.takeaway), questions };
  }));
}

/** @param {number} value */
const rounded = (value) => Number(value.toFixed(3));

/** A table for a spreadsheet (RFC 4180), a line a question. @param {Quiz[]} quizzes */
export function quizTable(quizzes) {
  const heads = ["lesson", "title", "id", "question", "options", "answer", "from", "to", "evidence"];
  const rows = quizzes.flatMap(({ place, title, questions }) => questions.map(({ id, ask, options, range, told, evidence }) =>
    [place, title, id, ask, options.map(({ text }) => text).join(" | "), told, range?.low ?? "", range?.high ?? "", evidence]));
  return [heads, ...rows].map((row) => `${row.map((cell) => `"${String(cell).replaceAll('"', '""')}"`).join(",")}\r\n`).join("");
}
