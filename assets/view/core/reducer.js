// The one reducer: lines of a stream, folded into the state that every part of the view draws; state.d.ts describes it.

import { isUnknown } from "./sentence.js";
import { isTree } from "./tree.js";

/**
 * @import { Header, Judging, Lane, Line, Node, Piece, Proposal, State, Step } from "./state"
 * @import { Drafted } from "../types"
 * @typedef {Line | Judging} Foldable
 */

/** @returns {State} */
export const emptyState = () => ({
  source: { kind: "live", key: "", title: "", waiting: "" },
  earlier: [],
  lanes: {},
  lane: null,
  problems: [],
});

/** @param {Header} header @returns {Lane} */
const emptyLane = (header) => ({
  header,
  steps: [],
  tokens: 0,
  drafted: 0,
  accepted: 0,
  positions: [],
  draftSeconds: 0,
  verifySeconds: 0,
  overheadSeconds: 0,
  elapsed: 0,
  trees: false,
  unnamed: false,
  known: 0,
  hits: 0,
  savedSeconds: 0,
  dropped: "",
  runs: 1,
  end: null,
});

/** The state after one more line. It owns the state it is given and changes nothing else. @param {State} state @param {Foldable} item */
export function reduce(state, item) {
  const change = /** @type {((state: State, item: Foldable) => void) | undefined} */ (CHANGES[item.type]);
  change?.(state, item);
  return state;
}

/** The state after all lines, from nothing. @param {Foldable[]} items @returns {State} */
export const fold = (items) => items.reduce(reduce, emptyState());

/** @type {{ [T in Foldable["type"]]?: (state: State, item: Extract<Foldable, { type: T }>) => void }} */
const CHANGES = {
  open(state, item) {
    state.source = {
      kind: item.source,
      key: item.key ?? "",
      title: item.title ?? "",
      waiting: item.waiting ?? "",
    };
  },
  earlier(state, item) {
    state.earlier.push({ prompt: item.prompt, answer: item.answer });
  },
  waiting(state, item) {
    state.source.waiting = item.text;
  },
  notice(state, item) {
    state.problems.push(problem(item));
    state.source.waiting = "";
  },
  started: begin,
  drafted(state, item) {
    const lane = laneOf(state, item);
    lane.trees ||= isTree(item.nodes);
    if (item.reasons?.[0]?.code === "dropped") lane.dropped ||= item.reason;
    lane.steps.push({ ...proposal(item), index: item.step, open: true, nodes: item.nodes, path: [], next: null });
  },
  // A verified event, of which the target has judged the first `count` tokens: never sent, made by the timeline.
  judging(state, item) {
    const lane = laneOf(state, item);
    const known = new Set(tested(item).slice(0, item.count));
    const nodes = item.nodes.map((node, i) => (known.has(i) ? node : unjudged(node)));
    lane.steps.push({ ...takeOpen(lane, item), index: item.step, open: true, nodes, judged: item.count, path: item.path.filter((i) => known.has(i)), next: null });
  },
  verified(state, item) {
    const lane = laneOf(state, item);
    const drafted = takeOpen(lane, item);
    lane.tokens += tokenCount(item);
    if (roundsKnown(lane)) {
      lane.drafted += item.nodes.length;
      lane.accepted += item.path.length;
    }
    lane.draftSeconds += item.draft_seconds ?? 0;
    lane.verifySeconds += item.verify_seconds;
    lane.overheadSeconds += item.overhead_seconds;
    lane.elapsed = item.elapsed_seconds;
    lane.trees ||= isTree(item.nodes);
    lane.unnamed ||= item.nodes.some(isUnknown);
    lane.known += drafted.hit === null ? 0 : 1;
    lane.hits += drafted.hit ? 1 : 0;
    lane.savedSeconds += drafted.savedSeconds ?? 0;
    lane.runs = Math.max(lane.runs, item.runs ?? 1);
    lane.steps.push({
      ...drafted,
      index: item.step,
      open: false,
      nodes: item.nodes,
      path: item.path,
      next: item.next ?? null,
      draftSeconds: item.draft_seconds ?? 0,
      verifySeconds: item.verify_seconds,
      overheadSeconds: item.overhead_seconds,
      elapsed: item.elapsed_seconds,
      tokens: lane.tokens,
      places: item.places ?? [],
    });
  },
  finished(state, item) {
    const lane = laneOf(state, item);
    lane.end = item.reason;
    if (roundsKnown(lane)) return;
    Object.assign(lane, { tokens: item.new_tokens, drafted: item.drafted ?? 0, accepted: item.accepted ?? 0, positions: item.positions ?? [] });
  },
  failed(state, item) {
    const lane = state.lanes[item.lane];
    if (lane) lane.end = "failed";
    state.problems.push(problem(item));
    state.source.waiting = "";
  },
};

/** Whether the drafts of each round are known; other programs' servers may report less. @param {{ header: Header }} lane */
export const roundsKnown = ({ header }) => !header.knowledge || header.knowledge === "exact";

/** The proposal that a verdict is about, taken out of the lane's steps. @param {Lane} lane @param {{ step: number }} item */
function takeOpen(lane, item) {
  const last = lane.steps.at(-1);
  if (!last?.open || last.index !== item.step) return proposal({});
  lane.steps.pop();
  return last;
}

/** @param {Node} node @returns {Node} */
function unjudged({ accept_prob: _, draw: __, target_prob: ___, block_prob: ____, ticket: _____, ...node }) {
  return { ...node, status: "drafted" };
}

/**
 * Nodes that the target judged, in the order in which it did: at each kept one the next are its children.
 * @param {{ path: number[], nodes: Node[] }} step
 */
export function tested(step) {
  const kept = new Set(step.path);
  /** @type {number[]} */
  const out = [];
  /** @type {number | null} */
  let at = -1;
  while (at !== null) {
    /** @type {number | null} */
    let next = null;
    for (let i = 0; i < step.nodes.length; i += 1) {
      const node = step.nodes[i];
      if ((node.parent ?? -1) !== at || (!kept.has(i) && node.status !== "rejected")) continue;
      out.push(i);
      if (kept.has(i)) {
        next = i;
        break;
      }
    }
    at = next !== null && next > at ? next : null;
  }
  return out;
}

/** A trace that lost its header still shows what is whole. @param {State} state @param {{ lane: string }} item */
const laneOf = (state, item) => state.lanes[item.lane] ?? begin(state, { lane: item.lane, method: "", prompt: "", settings: {} });

/** @param {State} state @param {Header} header */
function begin(state, header) {
  const lane = emptyLane(header);
  state.lanes[header.lane] = lane;
  state.lane = state.lanes.speculative ? "speculative" : header.lane;
  state.source.waiting = "";
  return lane;
}

/** @param {{ message: string, unharmed?: string, advice?: string, aside?: boolean }} item */
const problem = ({ message, unharmed = "", advice = "", aside = false }) => ({ message, unharmed, advice, aside });

/** Whether a run cannot go on: a problem that is its own. @param {State} state */
export const isBroken = ({ problems }) => problems.some(({ aside }) => !aside);

// What a step's proposal says beside its nodes; a trace that lost it, or an older one, says nothing.
/** @param {Partial<Drafted>} item @returns {Proposal} */
const proposal = (item) => ({
  lookahead: item.lookahead ?? 0,
  reason: item.reason ?? "",
  reasons: item.reasons ?? [],
  source: item.source ?? "",
  expectedTokens: item.expected_tokens ?? null,
  expectedSeconds: item.expected_seconds ?? null,
  hit: item.hit ?? null,
  savedSeconds: item.saved_seconds ?? null,
});

/**
 * Tokens of a step in reading order: kept, then what was discarded, then the target's own.
 * Of a tree, refused siblings are shown and the rest is one piece with `count`; while it waits for its
 * verdict, what is kept so far and the first branch from there on stand for it.
 * @param {Step} step
 */
export function pieces(step) {
  const tree = isTree(step.nodes);
  const kept = new Set(tree && step.open ? firstBranch(step) : step.path);
  const out = [...kept].map((node) => piece(step.nodes[node], node, false));
  let count = 0;
  step.nodes.forEach((value, node) => {
    if (kept.has(node)) return;
    if (tree && value.status !== "rejected") count += 1;
    else out.push(piece(value, node, !step.open));
  });
  if (count) out.push({ value: { text: ` +${count}` }, node: -1, discarded: true, status: step.open ? "drafted" : "unreached", count });
  if (step.next) out.push(piece(step.next, -1, false));
  return out;
}

/** @param {Node} value @param {number} node @param {boolean} discarded @returns {Piece} */
const piece = (value, node, discarded) => ({ value, node, discarded, status: value.status ?? "drafted" });

/** What is kept, and from there down each time the sibling that is tested first of those not refused. @param {Step} step */
function firstBranch({ nodes, path }) {
  const out = [...path];
  nodes.forEach((node, i) => {
    if (node.status !== "rejected" && (node.parent ?? -1) === (out.at(-1) ?? -1)) out.push(i);
  });
  return out;
}

/** What a drawn step shows, as a text that is equal when nothing must be drawn anew. @param {string} lane @param {Step} step */
export const keyOf = (lane, step) => `${lane} ${step.index} ${step.open ? (step.judged ?? 0) : "done"}`;

/** How many tokens a step commits. @param {{ path: number[], next?: unknown }} step */
export const tokenCount = ({ path, next }) => path.length + (next ? 1 : 0);

/** The tokens of a lane: { token_id, text } each, the target's own at the end of each step. @param {{ steps: Step[] }} lane @returns {Node[]} */
export const tokensOf = (lane) =>
  lane.steps.flatMap((step) => [...step.path.map((node) => step.nodes[node]), ...(step.next ? [step.next] : [])]);

/** Kept text of a lane. @param {{ steps: Step[] }} lane */
export const laneText = (lane) => tokensOf(lane).map(({ text = "" }) => text).join("");
