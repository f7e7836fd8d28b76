// A place in a run: wherever one scrubs, what shows is the fold up to there. Fed with the recorded runs.
import assert from "node:assert/strict";
import { Player } from "../../../assets/view/core/player.js";
import { fold, tested } from "../../../assets/view/core/reducer.js";
import { Timeline } from "../../../assets/view/core/timeline.js";
import { randomFrom, recordedRuns } from "./fixtures.mjs";

const random = randomFrom(7);

for (const { name, items } of recordedRuns()) {
  const whole = new Timeline();
  whole.push(items, { follow: false });
  const shown = items.some((item) => item.lane === "speculative") ? "speculative" : "plain";
  assert.equal(whole.at, 0, name);
  assert.equal(whole.state.lane, shown);
  assert.equal(whole.state.lanes[shown].steps.length, 0);

  // Playing from the start to a stop, and what stands there: kept where it is compared below.
  const places = Array.from({ length: 24 }, () => Math.floor(whole.stops.length * random()));
  const wanted = new Set([3, ...places]);
  const played = [structuredClone(whole.state)];
  for (let at = 1; at <= whole.last; at += 1) {
    whole.seek(at);
    if (wanted.has(at)) played[at] = structuredClone(whole.state);
  }
  assert.deepEqual(whole.state, fold(items), name);

  // Scrubbing anywhere, forth and back, shows the same.
  for (const at of places) {
    whole.seek(at);
    assert.deepEqual(whole.state, played[at], `${name}, stop ${at}`);
  }

  // A run that arrives piece by piece, followed to its end, is the same run with the same stops.
  const live = new Timeline();
  for (let i = 0; i < items.length; i += 3) live.push(items.slice(i, i + 3), { follow: true });
  assert.deepEqual(live.stops, whole.stops, name);
  assert.deepEqual(live.state, fold(items), name);

  // Who looks back while it arrives stays where he is.
  const looking = new Timeline();
  const half = items.findIndex((item) => item.lane === shown) + 20;
  looking.push(items.slice(0, half), { follow: true });
  looking.seek(3);
  looking.push(items.slice(half), { follow: true });
  assert.equal(looking.at, 3);
  assert.deepEqual(looking.state, played[3]);

  // Stops by time are in order, and a neighbour is where one expects it.
  whole.seek(0);
  for (let at = 1; at <= whole.last; at += 1) assert.ok(whole.timeAt(at) >= whole.timeAt(at - 1));
  const rejection = whole.neighbour("rejection", 1);
  assert.ok(whole.stops[rejection].rejection || rejection === 0);
  const round = whole.neighbour("round", 1);
  assert.equal(whole.stops[round].kind, "verified");
  assert.equal(whole.neighbour("token", -1), 0);
  assert.equal(whole.stopAt(whole.timeAt(whole.last) + 1), whole.last);
  const step = whole.stops[whole.last].step;
  assert.equal(whole.stops[whole.stopOf(step)].step, step);
}

// In a tree the target judges siblings in their order, then the children of the kept one.
const node = (parent, status) => ({ token_id: 1, parent, status });
assert.deepEqual(
  tested({ nodes: [node(-1, "rejected"), node(-1, "accepted"), node(0, "unreached"), node(1, "rejected"), node(1, "accepted")], path: [1, 4] }),
  [0, 1, 3, 4],
);

// Nothing, and a trace that lost its header, do no harm.
const empty = new Timeline();
empty.push([], { follow: true });
empty.seek(5);
assert.equal(empty.state.lane, null);
assert.equal(empty.neighbour("token", 1), -1);
const headless = new Timeline();
headless.push([{ type: "verified", lane: "plain", step: 0, nodes: [], path: [], next: { token_id: 1, status: "plain" }, elapsed_seconds: 1, draft_seconds: 0, verify_seconds: 1, overhead_seconds: 0 }], { follow: true });
assert.equal(headless.state.lanes.plain.tokens, 1);

// A player on a clock of its own moves at its speed and rests at the end.
let now = 0;
let due = [];
globalThis.performance = { now: () => now };
globalThis.requestAnimationFrame = (call) => due.push(call);
globalThis.cancelAnimationFrame = () => (due = []);
const frames = (count, by) => {
  for (let i = 0; i < count; i += 1) {
    now += by;
    for (const call of due.splice(0)) call();
  }
};
const timeline = new Timeline();
timeline.push(recordedRuns()[0].items, { follow: false });
const player = new Player(timeline, () => {});
player.setSpeed(2);
player.play();
frames(10, 16);
assert.equal(timeline.at, timeline.stopAt(320));
player.pause();
frames(10, 16);
assert.equal(timeline.at, timeline.stopAt(320));
player.step("round", 1);
assert.equal(timeline.stops[timeline.at].kind, "verified");
player.play();
frames(2000, 16);
assert.ok(timeline.atEnd && !player.playing);
player.play();
assert.equal(timeline.at, 0);

// What the page adds to a stream is no part of the run: it is shown, and neither saved nor a stop.
const [{ items: run }] = recordedRuns();
const waits = new Timeline();
waits.push([{ type: "open", source: "live", waiting: "soon" }, { type: "waiting", text: "third in line" }], { follow: true });
assert.equal(waits.state.source.waiting, "third in line");
assert.deepEqual(waits.events, []);
waits.push(run, { follow: true });
assert.deepEqual(waits.events, run);
assert.equal(waits.state.source.waiting, "");
