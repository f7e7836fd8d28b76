// What a chart is made from, and what it hands to Plotly.

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
  symbol?: "circle" | "circle-open" | "square";
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

/** Plotly's axis: https://plotly.com/javascript/reference/layout/xaxis */
export interface Axis {
  title: string;
  range: [number, number];
  [option: string]: unknown;
}

/** One of Plotly's series: https://plotly.com/javascript/reference/scatter */
export type Series = Record<string, unknown>;

/** What a plot draws. */
export interface Drawing {
  traces: Series[];
  x: Axis;
  y: Axis;
  /** stands below y */
  y2?: Axis;
  shapes?: object[];
  annotations?: object[];
  /** what is read out instead */
  label?: string;
}

export type Draw = (colours: Palette) => Drawing | null;

/** A chart of a run, as one of `figures/` makes it. */
export interface Figure extends Drawing {
  label: string;
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

export interface PlotlyEvent {
  points?: { customdata?: number | null }[];
}

/** The element that Plotly draws in. */
export interface PlotlyElement extends HTMLDivElement {
  on(type: string, call: (event: PlotlyEvent) => void): void;
}

declare global {
  /** large, and there some time after the page */
  var Plotly: undefined | {
    react(element: HTMLElement, traces: Series[], layout: object, config: object): void;
    toImage(picture: object, size: object): Promise<string>;
    downloadImage(picture: object, size: object): Promise<string>;
  };
}
