// What a chart is made from, and what is drawn.

import type { JudgedStep, Lane, State } from "../core/state";
import type { Words } from "../parts/page";

/** The theme's colours by name, and its font. */
export type Palette = Record<string, string>;

/** How a series looks; no two of a chart differ by colour alone. */
export interface Look {
  shape: "bar" | "hatch" | "dots" | "line" | "caps" | "point";
  colour: string;
  width?: number;
  dash?: string;
  symbol?: "circle" | "circle-open" | "square" | "diamond" | "triangle-up" | "triangle-down";
}

/** Where things lie on the horizontal axis. */
export interface Spans {
  starts: number[];
  ends: number[];
}

/** A state as the charts read it: the judged steps of the lane with drafts, and where each lies on the horizontal axis. */
export interface Run extends Spans {
  state: State;
  plain: Lane | undefined;
  lane: Lane | undefined;
  axis: Choice["axis"];
  steps: JudgedStep[];
  x(point: { step: number; seconds: number }): number;
  /** of the horizontal axis */
  range: [number, number];
}

export interface Axis {
  title: string;
  /** its ends; powers of ten on a logarithmic one */
  range: [number, number];
  type?: "log";
  /** from one mark to the next, or the marks themselves, or how many there may be */
  dtick?: number;
  tickvals?: number[];
  ticktext?: string[];
  nticks?: number;
  ticksuffix?: string;
}

/** A line, areas, or points that only the pointer finds; a null interrupts it. */
export interface Series {
  kind: "line" | "area" | "hover";
  name?: string;
  x: (number | null)[];
  y: (number | null)[];
  colour: string;
  width?: number;
  dash?: string;
  /** keeps each value until the next */
  level?: boolean;
  /** the points of a line: pixels of their width, and of their edge */
  marks?: { symbol?: string; size: number | number[]; fill?: string; edge?: number; opacity?: number };
  pattern?: "hatch" | "dots";
  /** on the lower vertical axis */
  low?: boolean;
  /** may leave the plotting area */
  free?: boolean;
  /** what the pointer reads at a point, and what those who listen are given */
  text?: string[];
  ids?: (number | null)[];
}

/** A straight line at a height, or up from the axis. */
export interface Rule {
  at?: number;
  up?: { x: number; y: number };
  colour: string;
  width: number;
  dash?: string;
}

/** A text at a height or at the upper edge; side: of the text that lies there. */
export interface Note {
  text: string;
  x?: number;
  y?: number;
  side: "top" | "bottom";
  anchor?: string;
  colour: string;
  bold?: boolean;
}

/** What a plot draws. */
export interface Drawing {
  traces: Series[];
  x: Axis;
  y: Axis;
  /** stands below y */
  y2?: Axis;
  rules?: Rule[];
  notes?: Note[];
  /** what is read out instead */
  label?: string;
}

export type Draw = (colours: Palette) => Drawing | null;

/** A chart of a run, as one of `figures/` makes it. */
export interface Figure extends Drawing {
  label: string;
  looks: Record<string, Look>;
  /** the key: look -> text */
  names: Record<string, string>;
  /** what stands after the key */
  note?: string;
  /** whether its horizontal axis is the one that the charts share */
  shared?: boolean;
  /** a sentence where there is nothing to draw, else "" */
  empty: string;
  table(): { heads: string[]; rows: (string | number)[][] };
  /** the stretch of the horizontal axis that step i takes */
  place(i: number): [number, number] | null;
}

/** Which charts are looked at, and on which axis. */
export interface Choice {
  slots: string[];
  axis: "steps" | "seconds";
}

/** How far the horizontal axis reaches. */
export interface Reach {
  steps: number;
  seconds: number;
}

/** What a slot asks of the charts around it. */
export interface Asks {
  figure(name: string, colours: Palette): Figure | null;
  choose(name: string): void;
  turn(axis: Choice["axis"]): void;
  save(name: string, format: "png" | "svg"): void;
  select(index: number, chosen: boolean): void;
  lit(): number;
}

/** methods: their titles by name */
export type FigureOf = (run: Run, words: Words, colours: Palette, methods: Words) => Figure;
