// A race of recorded runs on one clock, and how it came out. Fed with the recorded runs and with lanes written by hand.
import assert from "node:assert/strict";
import { Course, Timeline } from "../../../assets/view/core/timeline.js";
import { compared, margin, markdown, parting, standings, tableOf } from "../../../assets/view/race/result.js";
import { tokenAt } from "../../../assets/view/race/lane.js";
import { tokensOf, laneText, fold } from "../../../assets/view/core/reducer.js";
import { recordedRuns } from "./fixtures.mjs";

const [{ items }] = recordedRuns();
const timelineOf = (name) => {
  const timeline = new Timeline();
  timeline.push(items.filter((item) => item.lane === name), { follow: false });
  return timeline;
};

// On one clock each lane stands where it was at that time, forth and back, and at the end it is whole.
const timelines = ["plain", "speculative"].map(timelineOf);
const course = new Course(timelines);
assert.equal(course.at, 0);
for (const to of [40, 7, course.last >> 1, 3, course.last]) {
  course.seek(to);
  const now = course.timeAt(to);
  timelines.forEach((timeline) => {
    assert.equal(timeline.at, timeline.stopAt(now));
    const lane = timeline.state.lanes[timeline.state.lane];
    assert.ok(lane.elapsed * 1000 <= now + 1e-9);
  });
}
assert.ok(course.atEnd);
const folded = fold(items).lanes;
timelines.forEach((timeline, i) => {
  const name = ["plain", "speculative"][i];
  assert.equal(laneText(timeline.state.lanes[name]), laneText(folded[name]));
  assert.ok(timeline.state.lanes[name].end);
});
for (let at = 1; at <= course.last; at += 1) assert.ok(course.timeAt(at) > course.timeAt(at - 1));
assert.equal(course.stopAt(course.timeAt(course.last) + 1), course.last);
assert.ok(new Course([]).atEnd);

// Lanes by hand: plain, one twice as fast that says the same, one that parts, one that was stopped, one that never ran.
const laneOf = (method, ids, seconds, more = {}) => fold([
  { type: "started", lane: "speculative", method, prompt: "", settings: more.settings ?? {}, target: { precision: more.precision ?? "fp32" }, lossy: more.lossy },
  ...ids.map((id, step) => ({
    type: "verified", lane: "speculative", step, nodes: [{ token_id: id, text: `t${id}`, parent: -1, status: "accepted" }], path: [0], next: null,
    draft_seconds: 0, verify_seconds: seconds, overhead_seconds: 0, elapsed_seconds: seconds * (step + 1),
  })),
  { type: "finished", lane: "speculative", reason: more.reason ?? "length", new_tokens: ids.length, elapsed_seconds: seconds * ids.length },
]).lanes.speculative;
const plain = laneOf("nothing", [1, 2, 3, 4], 0.2);
const twice = laneOf("tree", [1, 2, 3, 4], 0.1);
const other = laneOf("look_back", [1, 2, 9, 4, 5, 6], 0.05, { lossy: true });
const stopped = laneOf("draft_model", [1, 2], 0.01, { reason: "cancelled" });
const result = standings([plain, twice, other, stopped, null]);
assert.equal(result.goal, 4); // the last token that all have which ran to their end
assert.equal(result.most, 6);
assert.deepEqual(result.rows.map((row) => row.rank), [3, 2, 1, null, null]);
assert.deepEqual(result.rows.slice(0, 2).map((row) => row.speedup), [1, 2]);
assert.ok(Math.abs(result.rows[2].finish - 0.2) < 1e-9); // its fourth token, not its sixth
assert.equal(result.rows[4].rate, null);
assert.equal(standings([twice, other]).plain, false);
assert.equal(standings([null, stopped]).goal, null);

// The finish says by how much: before plain decoding where that ran, else before the next.
const won = { margin: "{first} {seconds} {other}" };
assert.equal(margin(["P", "T", "O"], standings([plain, twice, other]), won), "O 0.60 P");
assert.equal(margin(["T", "O"], standings([twice, other]), won), "O 0.20 T");
assert.equal(margin(["P", "S"], standings([plain, stopped]), won), "");
assert.equal(margin(["P", "Q"], standings([plain, plain]), won), "");

// A token's number is the same position in every lane, whatever the steps that they reached it in.
for (const lane of Object.values(folded)) {
  tokensOf(lane).forEach(({ token_id: id }, i) => {
    const { step, place } = tokenAt(lane, i + 1);
    assert.equal(tokensOf({ steps: [lane.steps[step]] })[place].token_id, id);
  });
  assert.equal(tokenAt(lane, lane.tokens + 1), null);
}
assert.equal(tokenAt(null, 1), null);
assert.equal(tokenAt(plain, 0), null);

assert.equal(parting(tokensOf(other), tokensOf(plain)), 2);
assert.equal(parting(tokensOf(stopped), tokensOf(plain)), null);

const words = {
  all: "all {tokens}", parts: "{lane} {reference} {place} {own} {other}", longer: "{lane} {tokens}",
  greedy: "greedy", sampled: "sampled", lossy: "{lane} lossy", precisions: "precisions",
};
const entry = (title, lane) => ({ title, lane });
assert.deepEqual(compared([entry("P", plain), entry("T", twice)], words), ["all 4"]);
assert.deepEqual(compared([entry("O", other), entry("P", plain), entry("S", stopped)], words), ["O P 3 t9 t3", "S 2", "O lossy"]);
const coarse = laneOf("tree", [1, 7], 0.1, { precision: "nf4" });
const half = laneOf("nothing", [1, 2], 0.1, { precision: "nf4" });
assert.equal(compared([entry("P", half), entry("C", coarse)], words).at(-1), "greedy");
assert.equal(compared([entry("P", plain), entry("C", coarse)], words).at(-1), "precisions");
const drawn = laneOf("nothing", [1, 2], 0.1, { settings: { sampling: { temperature: 1 } } });
assert.equal(compared([entry("P", drawn), entry("T", laneOf("tree", [3], 0.1))], words).at(-1), "sampled");
assert.deepEqual(compared([entry("P", plain)], words), []);

// The table, the fastest first, and as Markdown; a bar in a title does not break it.
const table = { rank: "rank", lane: "lane", rate: "tokens/s, {origin}", speedup: "against plain", per_pass: "a pass", kept: "kept", seconds: "seconds", tokens: "tokens" };
const cells = tableOf(["a|b", "c", "d"], standings([plain, twice, other]), "measured", { table, times: "{speedup}×", disturbed: "busy", percent: "{percent} %", rank: { 1: "1st", 2: "2nd", 3: "3rd" } });
assert.deepEqual(cells.body.map((row) => row.slice(0, 2)), [["1st", "d"], ["2nd", "c"], ["3rd", "a|b"]]);
assert.equal(cells.head[2], "tokens/s, measured");
assert.deepEqual(cells.body.map((row) => row[3]), ["busy", "busy", "1.0×"]); // one token a step cannot be twice as fast
const lines = markdown(cells).split("\n");
assert.equal(lines.length, 5);
assert.ok(lines[4].includes("a\\|b"));
assert.ok(lines.every((line) => line.replaceAll("\\|", "").split("|").length === 10));
