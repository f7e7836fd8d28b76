// The lines of a stream beside the trace's own events, and the state that they are folded into.

import type { Event, FinishReason, Node, Place, Reason, RunStarted, Verified } from "../types";

export type { Node, Place, Verified };

/** Whether a run comes from a model just now or from a file. */
export type Origin = "live" | "recorded";

/** The page begins a stream; `run` names a recorded run that is fetched. */
export interface Open {
  type: "open";
  source: Origin;
  key?: string;
  title?: string;
  waiting?: string;
  run?: string;
}

/** Something that went wrong: what happened, what is unharmed, what to do. */
export interface Notice {
  type: "notice";
  message: string;
  unharmed?: string;
  advice?: string;
  /** not of the run on show, which goes on */
  aside?: boolean;
}

/** A verified event, of which the target has judged the first `count` tokens: never sent, made by the timeline. */
export interface Judging extends Omit<Verified, "type"> {
  type: "judging";
  count: number;
}

/** A race names its lanes before they run, and each again when its turn comes; recorded ones name the run that holds them. */
export interface LaneTurn {
  type: "lane";
  index: number;
  title: string;
  run?: string;
  lane?: string;
}

export type PageLine =
  | Open
  | Notice
  | LaneTurn
  /** What a run waits for, as a sentence. */
  | { type: "waiting"; text: string }
  /** A turn of the conversation before this one. */
  | { type: "earlier"; prompt: string; answer: string }
  /** All lanes of a race have run. */
  | { type: "raced" };
export type Line = Event | PageLine;

/** What began a lane; a trace that lost it still names lane, method, prompt and settings. */
export type Header = Pick<RunStarted, "lane" | "method" | "prompt" | "settings"> & Partial<RunStarted>;

/** What a proposal says beside its tokens. */
export interface Proposal {
  lookahead: number;
  reason: string;
  reasons: Reason[];
  source: string;
  expectedTokens: number | null;
  expectedSeconds: number | null;
  hit: boolean | null;
  savedSeconds: number | null;
}

interface StepStart extends Proposal {
  index: number;
  nodes: Node[];
  path: number[];
}

/** A step that waits for its verdict, or is shown as far as the target has judged it. */
export interface OpenStep extends StepStart {
  open: true;
  next: null;
  judged?: number;
  places?: undefined;
}

/** A judged step; seconds of its parts, `elapsed` and `tokens` of the lane at its end. */
export interface JudgedStep extends StepStart {
  open: false;
  next: Node | null;
  draftSeconds: number;
  verifySeconds: number;
  overheadSeconds: number;
  elapsed: number;
  tokens: number;
  places: Place[];
}

export type Step = OpenStep | JudgedStep;

export interface Lane {
  header: Header;
  steps: Step[];
  tokens: number;
  drafted: number;
  accepted: number;
  /** drafted, tested and accepted at each, as another program's server reports if its rounds are not known */
  positions: [number, number, number][];
  draftSeconds: number;
  verifySeconds: number;
  overheadSeconds: number;
  elapsed: number;
  /** whether some step branches */
  trees: boolean;
  /** whether some token has neither an id nor a text */
  unnamed: boolean;
  /** steps of which it is known whether their draft had been prepared */
  known: number;
  /** those of them whose draft had been */
  hits: number;
  savedSeconds: number;
  /** most runs that shared a pass with it, itself included */
  runs: number;
  /** error of the drafter, if it failed and was dropped */
  dropped: string;
  /** how it ended; null while it goes on */
  end: FinishReason | "failed" | null;
}

export type Problem = Required<Omit<Notice, "type">>;

export interface State {
  source: { kind: Origin; key: string; title: string; waiting: string };
  earlier: { prompt: string; answer: string }[];
  /** by name, in order of appearance: "plain", then "speculative" */
  lanes: Record<string, Lane | undefined>;
  /** the lane that is shown now */
  lane: string | null;
  problems: Problem[];
}

/** A token as it is drawn. `node` is -1 for the target's own; `count` stands for so many that are not drawn. */
export interface Piece {
  value: Pick<Node, "text"> & Partial<Node>;
  node: number;
  discarded: boolean;
  status: string;
  count?: number;
}

/** A place where a run can be looked at; `count` events lie before it, `judged` tokens of the next one are known. */
export interface Stop {
  kind: "begun" | "drafted" | "judged" | "verified";
  count: number;
  judged: number;
  step: number;
  /** milliseconds */
  time: number;
  rejection: boolean;
}
