// The cost model against numbers worked out by hand and published ones, and what recorded runs say of its terms.
import assert from "node:assert/strict";
import { readLab, writeLab } from "../../../assets/view/lab/lab.js";
import { best, bestTrees, breakEven, chainTokens, chains, step, trees, verifyCost } from "../../../assets/view/lab/model.js";
import { costFigure, rungs } from "../../../assets/view/lab/charts.js";
import { foresee, measure } from "../../../assets/view/lab/runcard.js";
import { fold } from "../../../assets/view/core/reducer.js";
import { acceptRate, speedup, tokensPerStep } from "../../../assets/view/core/metrics.js";
import { near, recordedRuns } from "./fixtures.mjs";

const flat = { kind: "flat" };

// Expected tokens: the sum and the closed form, and both ends.
near(chainTokens(0.8, 4), 1 + 0.8 + 0.64 + 0.512 + 0.4096);
assert.equal(chainTokens(1, 7), 8);
assert.equal(chainTokens(0, 7), 1);

// Leviathan's best lookaheads where further rows are free (docs: (.8, .1) -> 6 at 2.47x, and so on).
for (const [a, c, k, times] of [[0.8, 0.1, 6, 2.47], [0.7, 0.1, 4, 1.98], [0.5, 0.2, 1, 1.25]]) {
  const found = best(chains({ a, c, curve: flat }, 16));
  assert.equal(found.drafted, k);
  near(found.speedup, times, 0.005);
}
// Drafting pays only where a > c, and a pass that costs as much for each row never lets it.
assert.equal(best(chains({ a: 0.3, c: 0.4, curve: flat }, 16)).drafted, 0);
assert.equal(best(chains({ a: 0.99, c: 0, curve: { kind: "linear", slope: 1 } }, 16)).drafted, 0);
near(breakEven({ c: 0.3, curve: flat }, 1), 0.3, 1e-6);
assert.equal(breakEven({ c: 0, curve: { kind: "linear", slope: 1.1 } }, 3), null);

// The verify curve: between the points, past the last one and in units of the first.
const measured = { kind: "measured", points: [[1, 2], [5, 4], [9, 5]] };
assert.deepEqual([1, 3, 5, 7, 13].map((rows) => verifyCost(measured, rows)), [1, 1.5, 2, 2.25, 3]);
assert.equal(verifyCost({ kind: "measured", points: [[1, 2]] }, 9), 1);
assert.equal(verifyCost({ kind: "linear", slope: 0.25 }, 5), 2);

// Overlapped, a step takes the longer of the two.
const slow = { c: 0.5, curve: flat };
assert.equal(step(slow, { drafted: 4, draftSteps: 4, tokens: 3 }).cost, 3);
assert.equal(step({ ...slow, overlapped: true }, { drafted: 4, draftSteps: 4, tokens: 3 }).cost, 2);

// Trees: without gain a chain; with it, the likeliest path each time. a .6, gain .5: .6, then .36, then .216 above .2.
near(bestTrees(0.6, 0, 5)[5].tokens, chainTokens(0.6, 5));
const grown = bestTrees(0.6, 0.5, 4);
assert.deepEqual(grown.map((tree) => tree.depth), [0, 1, 2, 3, 3]);
near(grown[4].tokens, 1 + 0.6 + 0.36 + 0.216 + 0.2);
// A second guess is never likelier than the first, and a whole layer never gives more than one token.
near(bestTrees(0.2, 1, 2)[2].tokens, 1.4);
const wide = bestTrees(0.5, 0.9, 32);
for (let n = 1; n <= 32; n += 1) assert.ok(wide[n].tokens > wide[n - 1].tokens && wide[n].tokens <= wide[n].depth + 1 && wide[n].tokens >= chainTokens(0.5, n) - 1e-12);
// A tree costs one draft step a level.
near(trees({ a: 0.6, gain: 0.5, c: 0.1, curve: flat }, 4)[4].cost, 1.3);

// Recorded runs: what is measured agrees with the page's metrics, and the model is fed from it.
let withTrees = 0;
for (const { name, items } of recordedRuns()) {
  const state = fold(items);
  const { plain, speculative } = state.lanes;
  const run = measure(state);
  if (!speculative?.drafted) {
    assert.equal(run, null, name);
    continue;
  }
  near(run.speedup, speedup(plain, speculative));
  near(run.tokens, tokensPerStep(speculative));
  assert.ok(run.a >= acceptRate(speculative) - 1e-9 || run.trees, `${name}: tokens never reached are not refused`);
  assert.ok(run.a <= 1 && run.c >= 0 && run.judged > 0);
  assert.equal(run.lookaheads.reduce((total, one) => total + one.steps, 0), run.steps);
  const tokens = run.lookaheads.reduce((total, one) => total + one.steps * one.tokens, 0);
  near(tokens, speculative.tokens);
  withTrees += run.trees;
  const foreseen = foresee({ a: run.a, c: run.c, gain: run.gain ?? 0, curve: { kind: "measured", points: run.points } }, run);
  for (const value of Object.values(foreseen)) assert.ok(value >= 0 && value < 50, name);
}
assert.ok(withTrees > 0);

// Judged guesses by hand: a chain of three of which one is kept and the next refused; then a tree whose second sibling is kept.
const node = (parent, status) => ({ token_id: 1, parent, status });
const verified = (index, nodes, path, seconds) => ({ type: "verified", lane: "speculative", step: index, nodes, path, next: { token_id: 2, status: "correction" }, draft_seconds: 0.5, verify_seconds: seconds - 0.5, overhead_seconds: 0, elapsed_seconds: 0 });
const header = (lane) => ({ type: "started", lane, method: "tree", verify_costs: [[1, 2], [4, 3]], schema: 1 });
const small = measure(fold([
  header("speculative"),
  verified(0, [node(-1, "accepted"), node(0, "rejected"), node(1, "unreached")], [0], 2.5),
  verified(1, [node(-1, "rejected"), node(-1, "accepted"), node(1, "rejected")], [1], 3.5),
]));
assert.deepEqual([small.a, small.judged, small.gain, small.trees], [1 / 4, 4, 1, true]);
near(small.c, (0.5 * 1) / 5); // one second of drafting in five levels, a plain token is half a second a token: 1 / 2
assert.equal(small.plainMeasured, false);
assert.equal(measure(fold([header("plain")])), null);
assert.equal(measure(fold([])), null);

// An address holds the sliders; what it cannot ask for is left out.
const set = { a: 0.8, c: 0.05, kind: "linear", slope: 0.1, points: null, k: 4, tree: true, budget: 12, gain: 0.3, overlapped: false };
const { points: _, ...asked } = set;
assert.deepEqual(readLab(writeLab(set)), asked);
assert.deepEqual(readLab(writeLab({ ...set, c: 5e-7 })), { ...asked, c: 5e-7 });
assert.match(writeLab(set), /^[\w.-]+$/);
assert.deepEqual(readLab("a-2_c-x_k-3.4_kind-measured_slope-_hack-1"), { k: 3, tree: false, overlapped: false });

// The ladder in passes of one row.
assert.deepEqual(rungs([[1, 0.5], [8, 1]]), [{ rows: 1, cost: 1, milliseconds: 500 }, { rows: 8, cost: 2, milliseconds: 1000 }]);

// The chart: a line each, the chosen step and the best one marked and named; while one guesses, neither lines nor marks.
const chart = { label: "speedup", x_axis: "k", y_axis: "times", even: "plain", best_label: "best: {k}, {speedup}", never: "never", names: {} };
const colours = { accepted: "green", correction: "blue", card: "white", ink: "black" };
const priced = chains({ a: 0.8, c: 0.1, curve: flat }, 16);
const points = [{ name: "whole", x: 5, y: 1.3, size: 5, text: "<all>" }];
const shown = { most: 16, top: 3, edge: 16, lines: [{ name: "chain", steps: priced }], points, chosen: priced[4], best: best(priced) };
const figure = costFigure(shown, chart, colours);
assert.deepEqual(figure.traces.map(({ x }) => x.length), [17, 1, 1, 1]);
assert.deepEqual(figure.traces.slice(1).map(({ x: [drafted] }) => drafted), [6, 5, 4]);
assert.deepEqual(figure.traces[2].text, ["&lt;all&gt;"]);
assert.deepEqual(figure.annotations.map(({ text }) => text), ["plain", "<b>best: 6, 2.5</b>"]);
const guessing = costFigure({ ...shown, lines: [], points: [], best: null }, chart, colours);
assert.deepEqual([guessing.traces.length, guessing.annotations.length, guessing.shapes[1].y1], [0, 1, 3]);
