// A lesson: the recorded runs that it shows, questions whose answers are read off them, and moments.

import type { Lane } from "../core/state";
import type { Words } from "../parts/page";

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

/** Where the numbers of a moment come from: a name among the words of origins. */
export type Origin = "recorded" | "measured" | "modelled" | "drawn";

/** What a moment is shown with. */
export interface Stage {
  /** the moment's own */
  words: Words;
  methods: Words;
  /** the visitor's last run on this page; null where there is none */
  last: Partial<Lanes> | null;
  /** the recorded runs that there are, by name, and how one is read */
  known: Record<string, LessonRun>;
  lanes(name: string): Promise<Lanes>;
  /** name the origin of what is shown */
  from(origin: Origin): void;
  /** to a screen reader, politely */
  announce(sentence: string): void;
}

/** The part of a lesson in which a visitor counts, judges or compares for himself. */
export interface Moment {
  /** the recorded runs that it is handed, by name */
  runs: string[];
  show(runs: Lanes[], stage: Stage): Node[];
}
