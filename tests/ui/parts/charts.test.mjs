// What the charts show: pure functions of a run, fed with steps written by hand and with the recorded runs.
import assert from "node:assert/strict";
import { roundUp } from "../../../assets/view/charts/charts.js";
import { FIGURES, ceiling, keyOfFigure, readRun, wrap } from "../../../assets/view/charts/figures.js";
import { forecastSteps, plainRates, positions, rateCurve } from "../../../assets/view/core/metrics.js";
import { picture } from "../../../assets/view/charts/plot.js";
import { fold } from "../../../assets/view/core/reducer.js";
import { Timeline } from "../../../assets/view/core/timeline.js";
import { near, recordedRuns, words as all } from "./fixtures.mjs";

const words = all.charts;
const names = Object.keys(FIGURES);
const colours = Object.fromEntries(["ink", "soft", "line", "grid", "card", "accepted", "rejected", "correction", "bonus", "drafted"].map((name) => [name, name]));
const reach = { steps: 24, seconds: 2 };
const draw = (name, state, axis = "steps") => FIGURES[name](readRun(state, axis, reach), words, colours, all.methods);

// Three steps of 10 ms drafting, 80 verifying, 10 more: two of three kept, none drafted, a draft of one kept whole.
const node = (parent, status) => ({ token_id: 1, text: "x", parent, status });
const own = (status) => ({ token_id: 2, text: "y", status });
const chain = [node(-1, "accepted"), node(0, "accepted"), node(1, "rejected")];
const judged = (step, nodes, path, next, more) => [
  { type: "drafted", lane: "speculative", step, lookahead: 4, nodes, draft_seconds: 0.01, ...more },
  { type: "verified", lane: "speculative", step, nodes, path, next, draft_seconds: 0.01, verify_seconds: 0.08, overhead_seconds: 0.01, elapsed_seconds: 0.1 * (step + 1) },
];
const started = (lane) => ({ type: "started", lane, method: "tree", prompt: "", settings: {} });
const plain = [started("plain"), ...[0, 1, 2, 3].map((step) => (
  { type: "verified", lane: "plain", step, nodes: [], path: [], next: own("plain"), draft_seconds: 0, verify_seconds: 0.1, overhead_seconds: 0, elapsed_seconds: 0.1 * (step + 1) }))];
const fast = [
  started("speculative"),
  ...judged(0, chain, [0, 1], own("correction"), { reason: "<b>cheap</b> %{x} because", source: "ngram", expected_tokens: 2.5, expected_seconds: 0.09 }),
  ...judged(1, [], [], own("plain"), {}),
  ...judged(2, [node(-1, "accepted")], [0], own("bonus"), { expected_tokens: 1.5, expected_seconds: 0.1 }),
];
const state = fold([...plain, ...fast]);
const { speculative } = state.lanes;

// By position: drafts with a token there, tested, kept. In a tree its depth counts, once a draft.
assert.deepEqual(positions(speculative), [{ drafted: 2, tested: 2, kept: 2 }, { drafted: 1, tested: 1, kept: 1 }, { drafted: 1, tested: 1, kept: 0 }]);
const branches = [node(-1, "rejected"), node(-1, "accepted"), node(0, "unreached"), node(1, "rejected"), node(3, "unreached")];
const tree = fold([started("speculative"), ...judged(0, branches, [1], own("correction"), {})]).lanes.speculative;
assert.deepEqual(positions(tree), [{ drafted: 1, tested: 1, kept: 1 }, { drafted: 1, tested: 1, kept: 0 }, { drafted: 1, tested: 0, kept: 0 }]);
assert.deepEqual(positions(undefined), []);

// Tokens a second: 3, 4 and 6 tokens after 0.1, 0.2 and 0.3 s; the last step alone gave 2 in 0.1 s. Plain wrote only 4.
const rates = rateCurve(speculative, 1);
[30, 20, 20].forEach((rate, i) => near(rates[i].soFar, rate));
[30, 10, 20].forEach((rate, i) => near(rates[i].recent, rate));
assert.deepEqual(plainRates(state.lanes.plain, speculative).map((rate) => rate && Math.round(rate)), [10, 10, null]);

// Expected and measured; a step without a forecast has none, and is not counted in what is said.
assert.deepEqual(forecastSteps(speculative).map((step) => [step.tokens, step.expectedTokens]), [[3, 2.5], [1, null], [2, 1.5]]);
assert.ok(draw("forecast", state).label.includes("2.0 tokens predicted and 2.5 committed"));

// What the pointer reads of a step: counts, the policy's reason, where the draft came from, the oracle. All of it text.
const texts = draw("lookahead", state).traces.at(-1).text;
for (const said of ["2 of 3 kept, limit 4", "&lt;b&gt;cheap&lt;/b&gt; %{x} because", "from: n-gram", "in hindsight: 2"]) assert.ok(texts[0].includes(said), texts[0]);
assert.ok(texts[2].includes("at least 1"));
assert.deepEqual(wrap("one two"), ["one two"]);
assert.deepEqual(wrap(`${"a".repeat(50)} ${"b".repeat(20)} c`), ["a".repeat(50), `${"b".repeat(20)} c`]);

// The parts of a step's time stand on each other and their sum is the step's.
const time = draw("time", state);
assert.deepEqual(time.traces.slice(0, 3).map((trace) => Math.round(Math.max(...trace.y))), [10, 90, 100]);
assert.deepEqual(time.table().rows.at(-1), [words.table_sum, "30", "240", "30", "300"]);
assert.ok(keyOfFigure(time).some(([, text]) => text === "draft 10 %"));

// On either axis a step lies where its cursor lies.
assert.deepEqual(draw("time", state).place(1), [1.5, 2.5]);
draw("speedup", state, "seconds").place(1).forEach((x, i) => near(x, [0.1, 0.2][i]));
assert.equal(draw("speedup", state).place(7), null);
assert.deepEqual(draw("position", state).place(0), [0.5, 2.5]);
assert.equal(draw("position", state).place(1), null);

// Every chart at every place of every run: as many points as there are steps, no two series alike but in colour, text
// for those who do not see it, and going back shows what stood there before.
for (const { name: run, items } of recordedRuns()) {
  const timeline = new Timeline();
  timeline.push(items, { follow: false });
  const places = [0, 1, Math.floor(timeline.last / 2), timeline.last];
  const seen = places.map((at) => {
    timeline.seek(at);
    return names.map((name) => JSON.stringify(draw(name, timeline.state, "seconds").traces));
  });
  [...places].reverse().forEach((at, i) => {
    timeline.seek(at);
    assert.deepEqual(names.map((name) => JSON.stringify(draw(name, timeline.state, "seconds").traces)), seen[places.length - 1 - i], run);
  });
  timeline.seek(timeline.last);
  for (const name of names) {
    const figure = draw(name, timeline.state);
    assert.equal(typeof figure.empty, "string");
    assert.ok(figure.label.length > 20 && !/undefined|NaN|\{/.test(figure.label), `${run} ${name}: ${figure.label}`);
    const { heads, rows } = figure.table();
    assert.ok(rows.every((row) => row.length === heads.length && row.every((cell) => cell !== undefined && cell !== "NaN")), `${run} ${name}`);
    const looks = keyOfFigure(figure).filter(([look]) => look).map(([{ colour, ...look }]) => JSON.stringify(look));
    assert.equal(new Set(looks).size, looks.length, `${name}: ${looks}`);
    const said = figure.traces.at(-1);
    assert.equal(said.text.length, said.x.length);
    assert.ok(said.text.every((text) => !/undefined|NaN|\{/.test(text)), said.text[0]);
    const { data, layout: drawn } = picture(colours, figure, "t");
    assert.ok(drawn.showlegend && drawn.title.text === "t" && data.length === figure.traces.length);
    assert.deepEqual([drawn.xaxis, drawn.yaxis].map((axis) => axis.title.text), [figure.x.title, figure.y.title]);
  }
  const steps = timeline.state.lanes.speculative?.steps ?? []; // a recorded run may be plain decoding alone
  assert.equal(draw("lookahead", timeline.state).traces.at(-1).customdata.length, steps.length);
}

// Before a run, and of a plain run alone, there is a sentence or an empty frame, and no failure.
for (const value of [fold([]), fold(plain), fold(fast)]) {
  for (const name of names) for (const axis of ["steps", "seconds"]) assert.ok(draw(name, value, axis).traces.length, name);
}
assert.equal(draw("speedup", fold(plain)).empty, words.at_end);
const rested = fold([{ type: "open", source: "recorded", key: "", title: "" }, ...plain]);
assert.equal(draw("speedup", rested).empty, words.no_steps); // nothing is measured there
assert.equal(draw("rate", fold(plain)).empty, "");
assert.equal(draw("history", state).empty, words.no_history);

// A rare long step does not press the others down; an axis grows by thirds and is never too short.
assert.equal(ceiling([...Array(99).fill(10), 1000], 1), 16);
assert.equal(ceiling([10, 12, null], 1), 12);
assert.equal(ceiling([], 1), 1);
for (let value = 1; value < 600; value += 7) assert.ok(roundUp(value, 12) >= value && roundUp(value, 12) <= Math.max(12, value * 4 / 3 + 1e-9));
