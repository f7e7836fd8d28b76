// Generated from specdemo/trace/events.py by `python -m tools.docs`; do not edit.

/** Why a run ended. */
export type FinishReason = "stop" | "length" | "cancelled";

/** Fate of a token. One enumeration for colours, tables and tests. */
export type Status = "drafted" | "accepted" | "rejected" | "unreached" | "correction" | "bonus" | "plain";

/** Method by which a drafter selected a token. */
export type Origin = "drawn" | "chosen";

/** How much is known of a run's rounds, if another program's server made it. */
export type Knowledge = "exact" | "arrival" | "totals" | "none";

/** A token that is possible at a position, and its probability there. ticket: see `Node` */
export interface Choice {
  token_id: number;
  prob: number;
  text?: string;
  ticket?: number;
}

/** A proposal before its verification. */
export interface Drafted {
  type: "drafted";
  lane: string;
  step: number;
  lookahead: number;
  reason: string;
  nodes: Node[];
  draft_seconds?: number;
  source?: string;
  expected_tokens?: number;
  expected_seconds?: number;
  hit?: boolean;
  saved_seconds?: number;
  reasons?: Reason[];
}

/** Weights of a run and how they were computed. */
export interface ModelInfo {
  name: string;
  revision?: string;
  precision?: string;
  kernel?: string;
  parameters?: number;
}

/** One drafted token, or the target's own token at the end of a step. */
export interface Node {
  token_id?: number;
  text?: string;
  parent?: number;
  status?: Status;
  target_prob?: number;
  draft_prob?: number;
  accept_prob?: number;
  draw?: number;
  survival?: number;
  confidence?: number;
  origin?: Origin;
  block_prob?: number;
  ticket?: number;
}

/** The most likely tokens after a node of a step, in descending order; a few of the whole distribution. */
export interface Place {
  after: number;
  target: Choice[];
  draft?: Choice[];
  residual?: Choice[];
}

/** One reason for a step's draft: a key of the strings in `reasons`, and the numbers that it contains. */
export interface Reason {
  code: string;
  values?: Record<string, number>;
}

/** Last event of a run that failed. */
export interface RunFailed {
  type: "failed";
  lane: string;
  message: string;
  unharmed?: string;
  advice?: string;
}

/** Last event of a run that ended normally or was cancelled. */
export interface RunFinished {
  type: "finished";
  lane: string;
  reason: FinishReason;
  new_tokens: number;
  elapsed_seconds: number;
  drafted?: number;
  accepted?: number;
  positions?: [number, number, number][];
}

/** First event of a run. */
export interface RunStarted {
  type: "started";
  lane: string;
  method: string;
  prompt: string;
  settings: Record<string, any>;
  target: ModelInfo;
  draft?: ModelInfo;
  prompt_tokens?: number;
  cached_tokens?: number;
  prefill_seconds?: number;
  machine?: string;
  started_at?: string;
  lossy?: boolean;
  verify_costs?: [number, number][];
  draft_cost?: number;
  history?: number[];
  knowledge?: Knowledge;
  server?: string;
  schema?: number;
}

/** The same proposal after its verification. */
export interface Verified {
  type: "verified";
  lane: string;
  step: number;
  nodes: Node[];
  path: number[];
  next?: Node;
  draft_seconds?: number;
  verify_seconds: number;
  overhead_seconds: number;
  elapsed_seconds: number;
  runs?: number;
  places?: Place[];
}

export type Event = RunStarted | Drafted | Verified | RunFinished | RunFailed;
