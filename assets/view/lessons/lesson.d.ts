// A lesson: the recorded runs that it shows, and questions whose answers are read off them.

import type { Lane } from "../core/state";
import type { Moment } from "./moment";

/** The two lanes of a recorded run; `fast` is missing in a run of plain decoding alone. */
export interface Lanes {
  plain: Lane;
  fast: Lane;
}

/** What a run says to a question. */
export interface Answer {
  /** an option, or a number on the scale */
  answer?: string | number | null;
  /** what the evidence's sentence is filled with */
  values: Record<string, unknown>;
  bars?: { values: Record<string, unknown>; share: number; marked: boolean; option?: string }[];
  /** a step of the first run that shows it */
  step?: number;
}

/** A recorded run as the server names it. */
export interface LessonRun {
  prompt: string;
  settings: Record<string, any>;
}

export interface Question {
  id: string;
  /** instead of the lesson's first */
  runs?: string[];
  options?: string[];
  scale?: { min: number; max: number; step: number };
  reveal(this: Question, runs: Lanes[]): Answer;
}

export interface Lesson {
  id: string;
  runs: string[];
  /** the chart of its first run that a printed page shows, by name */
  figure?: string;
  /** what is changed in the settings of its first run, which one tries on the page */
  changes?: Record<string, unknown>;
  /** whether the rejection rule is tried by hand */
  exercise?: boolean;
  /** what only this page can show, beside its questions */
  moments: Record<string, Moment>;
  questions: Question[];
}
