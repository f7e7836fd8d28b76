// What the lab's parts hand to each other: the cost model's terms, what is set and what is drawn.

/** What a pass of several rows costs over one of one row; points: [rows, seconds] each. */
export interface Curve {
  kind: "flat" | "linear" | "measured";
  slope: number;
  points: [number, number][] | null;
}

/** The terms of the cost model, see model.js. */
export interface Model {
  a: number;
  c: number;
  gain: number;
  overlapped: boolean;
  curve: Curve;
}

/** A step as the model prices it, costs in passes of one row. */
export type Priced = ReturnType<typeof import("./model.js").step>;

/** Everything that can be set. */
export interface Setting extends Omit<Model, "curve">, Curve {
  k: number;
  tree: boolean;
  budget: number;
}

/** A modelled line; `mark`: the step that is chosen on it. */
export interface Line {
  name: string;
  steps: Priced[];
  mark?: Priced;
}

export interface Shown {
  /** where the axes end */
  most: number;
  top: number;
  lines: Line[];
  /** measured; `name` of its look and its words, `text` what the pointer reads */
  points: { name: string; x: number; y: number; size: number; text: string }[];
  /** the chosen step, and the best of its line, null while it is to be guessed */
  chosen: Priced;
  best: Priced | null;
  /** the most that can be chosen */
  edge: number;
}

/** This machine's costs, as the server says them. */
export interface Machine {
  name: string;
  verify: [number, number][];
  draft: number | null;
}

export interface Server {
  machine(unused: string): Promise<Machine | null>;
}
