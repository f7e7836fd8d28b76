// The one reducer: lines of a stream, folded into the state that every part of the view draws.
//
// state.source    { kind: "live" | "recorded", key, title, waiting }
// state.earlier   turns before this one: { prompt, answer }
// state.lanes     by name, in order of appearance: "plain", then "speculative"
// state.lane      the lane that is shown now
// state.problems  { message, unharmed, advice }
// A lane holds its header, its steps and its running totals; a step is "open" until it is verified.

export const emptyState = () => ({
  source: { kind: "live", key: "", title: "", waiting: "" },
  earlier: [],
  lanes: {},
  lane: null,
  problems: [],
});

const emptyLane = (header) => ({
  header,
  steps: [],
  tokens: 0,
  drafted: 0,
  accepted: 0,
  draftSeconds: 0,
  verifySeconds: 0,
  overheadSeconds: 0,
  elapsed: 0,
  end: null, // "stop", "length", "cancelled" or "failed"
});

/** The state after one more line. It owns the state it is given and changes nothing else. */
export function reduce(state, item) {
  const change = CHANGES[item.type];
  if (change) change(state, item);
  return state;
}

/** The state after all lines, from nothing. */
export const fold = (items) => items.reduce(reduce, emptyState());

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
  notice(state, item) {
    state.problems.push(problem(item));
    state.source.waiting = "";
  },
  started(state, item) {
    state.lanes[item.lane] = emptyLane(item);
    state.lane = item.lane;
    state.source.waiting = "";
  },
  drafted(state, item) {
    const lane = laneOf(state, item);
    const { lookahead, reason } = item;
    lane.steps.push({ index: item.step, open: true, lookahead, reason, nodes: item.nodes, path: [], next: null });
  },
  verified(state, item) {
    const lane = laneOf(state, item);
    const last = lane.steps.at(-1);
    const open = last?.open && last.index === item.step ? lane.steps.pop() : {};
    lane.tokens += item.path.length + (item.next ? 1 : 0);
    lane.drafted += item.nodes.length;
    lane.accepted += item.path.length;
    lane.draftSeconds += item.draft_seconds;
    lane.verifySeconds += item.verify_seconds;
    lane.overheadSeconds += item.overhead_seconds;
    lane.elapsed = item.elapsed_seconds;
    lane.steps.push({
      index: item.step,
      open: false,
      lookahead: open.lookahead ?? 0,
      reason: open.reason ?? "",
      nodes: item.nodes,
      path: item.path,
      next: item.next ?? null,
      draftSeconds: item.draft_seconds,
      verifySeconds: item.verify_seconds,
      overheadSeconds: item.overhead_seconds,
      elapsed: item.elapsed_seconds,
      tokens: lane.tokens,
    });
  },
  finished(state, item) {
    laneOf(state, item).end = item.reason;
  },
  failed(state, item) {
    if (item.lane in state.lanes) state.lanes[item.lane].end = "failed";
    state.problems.push(problem(item));
    state.source.waiting = "";
  },
};

// A trace that lost its header still shows what is whole.
const laneOf = (state, item) => {
  if (!(item.lane in state.lanes)) CHANGES.started(state, { lane: item.lane, method: "", prompt: "", settings: {} });
  return state.lanes[item.lane];
};

const problem = ({ message, unharmed = "", advice = "" }) => ({ message, unharmed, advice });

/** Tokens of a step in reading order: kept, then what was discarded, then the target's own. */
export function pieces(step) {
  const kept = new Set(step.path);
  const out = step.path.map((node) => piece(step.nodes[node], node, false));
  step.nodes.forEach((value, node) => {
    if (!kept.has(node)) out.push(piece(value, node, !step.open));
  });
  if (step.next) out.push(piece(step.next, -1, false));
  return out;
}

const piece = (value, node, discarded) => ({ value, node, discarded, status: value.status ?? "drafted" });

/** Kept text of a lane. */
export const laneText = (lane) =>
  lane.steps
    .flatMap((step) => [...step.path.map((node) => step.nodes[node].text ?? ""), step.next?.text ?? ""])
    .join("");
