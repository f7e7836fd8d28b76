// The lessons in their order, each in a file of its own: its recorded runs, and how each question's answer is read off a run.
//
// `reveal(runs)` gets { plain, fast } of each run that the question names and returns { answer, values, bars, step }:
// the answer (an option, or a number on the scale), what the evidence's sentence is filled with, bars to compare
// ({ values, share, marked }), and a step of the first run that shows it. No number is typed in from a run.

import { ahead } from "./curriculum/ahead.js";
import { check } from "./curriculum/check.js";
import { exact } from "./curriculum/exact.js";
import { latest } from "./curriculum/latest.js";
import { other } from "./curriculum/other.js";
import { slow } from "./curriculum/slow.js";
import { slower } from "./curriculum/slower.js";
import { trees } from "./curriculum/trees.js";

/** @import { Lesson, LessonRun, Question } from "./curriculum/lesson" */

export const LESSONS = [slow, check, exact, ahead, slower, other, trees, latest];

/** The runs that a question's answer is read off; the lesson's first where it names none. @param {Lesson} lesson @param {Question} question */
export const runsOf = (lesson, question) => question.runs ?? lesson.runs.slice(0, 1);

/**
 * What the Play tab is set to for a lesson: the settings of a recorded run by the names of an address, and the lesson's changes.
 * @param {LessonRun} how @param {Record<string, unknown>} [changes]
 */
export function liveState({ prompt, settings }, changes = {}) {
  const { sampling = {}, max_new_tokens: tokens, ...rest } = settings;
  const { repetition_penalty: penalty = 1, ...drawn } = sampling;
  const usual = { temperature: 0, top_k: 0, top_p: 1, penalty, seed: 0, memory: false, fallback: false };
  return { prompt, tokens, ...usual, ...drawn, ...rest, ...changes };
}
