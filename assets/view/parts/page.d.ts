// What the page hands to its scripts, and what its parts hand to each other.

import type { Header, Piece, Step } from "../core/state";

/** A text of the page, or a list or a table of them: which, its use says. */
export type Words = string & Words[] & { [name: string]: Words };

/**
 * What a script is mounted with: `read()` gives its present value as JSON, or a stream of lines; `watch(call)` calls after
 * each change; its words; and what says a sentence of Python in the page's language.
 */
export interface Given {
  read(): string;
  watch(call: () => void): void;
  words: Words;
  say?(text: string): string;
}

type Handlers = { [Name in keyof HTMLElementEventMap as `on${Name}`]?: (event: HTMLElementEventMap[Name]) => void };

/** Attributes of an element; false, null and undefined leave one out, and a name with "on" is a listener. */
export type Attributes = Handlers & { [name: string]: string | number | boolean | null | undefined | ((event: never) => void) };

/** A token that can be inspected: `at` is the step's index in its lane, `node` -1 for the target's own token. */
export interface Subject {
  lane: string | null;
  at: number;
  header: Header;
  step: Step;
  node: number;
  count: number;
  /** its element, where one was pointed at */
  token?: Element;
}

/** What an element of the text or of the tree stands for. */
export interface Found {
  token: Element;
  step: Step;
  piece: Piece;
  at: number;
}
