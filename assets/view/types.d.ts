// Generated from specdemo/trace/events.py by `python -m specdemo.cli.docs`; do not edit.

/** Why a run ended. */
export type FinishReason = "stop" | "length" | "cancelled";

/** What became of a token. One enumeration for colours, tables and tests. */
export type Status = "drafted" | "accepted" | "rejected" | "unreached" | "correction" | "bonus" | "plain";

/** How a drafter came to a token. */
export type Origin = "drawn" | "chosen";

/** First event of a lane. `prompt_tokens` counts the whole context, `cached_tokens` what was reused. */
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
  stand_in?: StandIn;
  schema?: number;
}

/** A proposal, before it was judged. `lookahead` is what the policy allowed, `reason` why. */
export interface Drafted {
  type: "drafted";
  lane: string;
  step: number;
  lookahead: number;
  reason: string;
  nodes: Node[];
  draft_seconds: number;
  source?: string;
  expected_tokens?: number;
  expected_seconds?: number;
  hit?: boolean;
  saved_seconds?: number;
}

/** A judged proposal: `path` are the kept nodes, root first; `next` is the target's own token. */
export interface Verified {
  type: "verified";
  lane: string;
  step: number;
  nodes: Node[];
  path: number[];
  next?: Node;
  draft_seconds: number;
  verify_seconds: number;
  overhead_seconds: number;
  elapsed_seconds: number;
  runs?: number;
  places?: Place[];
}

/** Last event of a lane that ended by itself or by the user's wish. */
export interface RunFinished {
  type: "finished";
  lane: string;
  reason: FinishReason;
  new_tokens: number;
  elapsed_seconds: number;
}

/** Last event of a lane that broke: one sentence each on what happened, what is unharmed, what to do. */
export interface RunFailed {
  type: "failed";
  lane: string;
  message: string;
  unharmed?: string;
  advice?: string;
}

/** Which weights ran, and how. */
export interface ModelInfo {
  name: string;
  revision?: string;
  precision?: string;
  kernel?: string;
  parameters?: number;
}

/** A plain run of another prompt, in place of one that was not run beside this lane because others waited. */
export interface StandIn {
  tokens_per_second: number;
  new_tokens: number;
  prompt_tokens: number;
  age_seconds: number;
}

/** One drafted token, or the target's own token at the end of a step. */
export interface Node {
  token_id: number;
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
}

/** What was thought of the token that follows a node of a step, likeliest first; a few of the whole distribution. */
export interface Place {
  after: number;
  target: Choice[];
  draft?: Choice[];
  residual?: Choice[];
}

/** A token that could have stood at a place, and its probability there. */
export interface Choice {
  token_id: number;
  prob: number;
  text?: string;
}

export type Event = RunStarted | Drafted | Verified | RunFinished | RunFailed;
