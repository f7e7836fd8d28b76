// A moment: the part of a lesson in which a visitor counts, judges or compares for himself.

import type { Words } from "../parts/page";
import type { Lanes, LessonRun } from "./lesson";

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

export interface Moment {
  /** the recorded runs that it is handed, by name */
  runs: string[];
  show(runs: Lanes[], stage: Stage): Node[];
}
