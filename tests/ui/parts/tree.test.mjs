// The view's computed parts, on steps written by hand.
import assert from "node:assert/strict";
import { verdicts } from "../../../assets/view/methods/audit.js";
import { acceptRate, acceptanceHistory, oracle, overlapBound, plainRate, predictedCurve, preparedRate, speedup } from "../../../assets/view/core/metrics.js";
import { fold, pieces } from "../../../assets/view/core/reducer.js";
import { depthOf, depths, isTree, layout } from "../../../assets/view/core/tree.js";
import { near, randomFrom } from "./fixtures.mjs";

const node = (parent, status = "drafted", text = "x") => ({ token_id: 1, text, parent, status });
const own = (status) => ({ token_id: 2, text: "own", parent: -1, status });
const judged = (nodes, path, next) => ({ nodes, path, next, open: false });

// What the comment of `layout` draws: of "dog" and "cat", "cat" is kept; its "sat" is refused and the target says "ran".
const tree = judged([node(-1, "rejected", "dog"), node(-1, "accepted", "cat"), node(1, "rejected", "sat")], [1], own("correction"));
assert.deepEqual(depths(tree.nodes), [1, 1, 2]);
assert.equal(depthOf(tree.nodes), 2);
assert.ok(isTree(tree.nodes));
const { places, columns, rows } = layout(tree);
assert.deepEqual([columns, rows], [2, 3]);
assert.deepEqual(places.map(({ index, from, column, row, lit }) => [index, from?.index ?? null, column, row, lit]), [
  [1, null, 0, 0, true],
  [-1, 1, 1, 0, true],
  [2, 1, 1, 1, false],
  [0, null, 0, 2, false],
]);

// A chain kept to its end is one row; what was refused hangs below the target's own token.
const chain = [node(-1, "accepted"), node(0, "accepted"), node(1, "accepted")];
assert.ok(!isTree(chain) && !isTree([]));
const whole = layout(judged(chain, [0, 1, 2], own("bonus")));
assert.deepEqual([whole.columns, whole.rows], [4, 1]);
const cut = layout(judged(chain, [], own("correction")));
assert.deepEqual([cut.columns, cut.rows], [3, 2]);
assert.deepEqual(layout(judged([], [], own("plain"))).places.map((place) => place.column), [0]);
assert.deepEqual(layout(judged([], [], null)), { places: [], columns: 0, rows: 0 });

// No two tokens in one place, each to the right of its parent, what was committed in the top row; a foreign trace
// makes no loop.
for (let seed = 1; seed < 200; seed += 1) {
  const random = randomFrom(seed);
  const next = (below) => Math.floor(below * random());
  const nodes = Array.from({ length: 1 + next(40) }, (_, i) => node(next(i + 1) - 1));
  if (seed % 7 === 0) nodes[0].parent = 5;
  const path = [];
  nodes.forEach((value, i) => (value.parent === (path.at(-1) ?? -1) && next(2) ? path.push(i) : 0));
  const drawn = layout(judged(nodes, path, own("correction")));
  assert.equal(drawn.places.length, nodes.length + 1);
  assert.equal(new Set(drawn.places.map((place) => `${place.column} ${place.row}`)).size, nodes.length + 1);
  assert.deepEqual(drawn.places.filter((place) => place.lit).map((place) => place.row), [...path, -1].map(() => 0));
  for (const place of drawn.places) {
    assert.equal(place.column, place.from ? place.from.column + 1 : 0);
    assert.ok(place.row >= (place.from?.row ?? 0) && place.row < drawn.rows && place.column < drawn.columns);
  }
}

// In the text: kept, refused, the rest counted, the target's own. A chain keeps every token.
const wide = judged([
  node(-1, "rejected", "dog"), node(-1, "accepted", "cat"), node(0, "unreached", "ran"), node(1, "rejected", "sat"), node(3, "unreached", "up"),
], [1], own("correction"));
const read = (step) => pieces(step).map(({ value, status }) => `${status} ${value.text}`);
assert.deepEqual(read(wide), ["accepted cat", "rejected dog", "rejected sat", "unreached  +2", "correction own"]);
const open = { nodes: [node(-1, "drafted", "dog"), node(-1, "drafted", "cat"), node(0, "drafted", "ran")], path: [], next: null, open: true };
assert.deepEqual(read(open), ["drafted dog", "drafted ran", "drafted  +1"]);
// Half judged: what is kept so far goes on in its own first branch, what was refused is told at once.
const half = fold([
  { type: "judging", lane: "speculative", step: 0, count: 2, nodes: wide.nodes, path: [1] },
]).lanes.speculative.steps[0];
assert.deepEqual(read(half), ["accepted cat", "drafted sat", "drafted up", "rejected dog", "drafted  +1"]);
const refused = [node(-1, "accepted", "a"), node(0, "rejected", "b"), node(1, "unreached", "c")];
assert.deepEqual(read(judged(refused, [0], own("correction"))), ["accepted a", "rejected b", "unreached c", "correction own"]);

// The oracle: exact after a refusal, at least that much after a draft kept whole or cut by the end, silent without one.
assert.deepEqual(oracle(tree), { depth: 1, exact: true });
assert.deepEqual(oracle(judged(chain, [0, 1, 2], own("bonus"))), { depth: 3, exact: false });
assert.deepEqual(oracle(judged(chain, [0], null)), { depth: 1, exact: false });
assert.equal(oracle(judged([], [], own("plain"))), null);

// A run of two steps: plain 10 tokens a second, the first step foreseen and prepared, the second neither.
const line = (lane, fields) => ({ lane, ...fields });
const header = (lane, costs) => line(lane, { type: "started", method: "parallel", prompt: "", settings: {}, verify_costs: costs });
const steps = [
  line("speculative", { type: "drafted", step: 0, lookahead: 3, reason: "", nodes: chain, draft_seconds: 0.01,
    expected_tokens: 3, expected_seconds: 0.15, hit: true, saved_seconds: 0.04 }),
  line("speculative", { type: "verified", step: 0, nodes: chain, path: [0, 1, 2], next: own("bonus"),
    draft_seconds: 0.01, verify_seconds: 0.1, overhead_seconds: 0, elapsed_seconds: 0.11 }),
  line("speculative", { type: "drafted", step: 1, lookahead: 3, reason: "", nodes: refused, draft_seconds: 0.05, hit: false }),
  line("speculative", { type: "verified", step: 1, nodes: refused, path: [0], next: own("correction"),
    draft_seconds: 0.05, verify_seconds: 0.1, overhead_seconds: 0.01, elapsed_seconds: 0.27 }),
];
const plain = [header("plain"), line("plain", { type: "verified", step: 0, nodes: [], path: [], next: own("plain"),
  draft_seconds: 0, verify_seconds: 0.1, overhead_seconds: 0, elapsed_seconds: 0.1 })];
const both = fold([...plain, header("speculative", [[1, 0.2], [4, 0.3]]), ...steps]).lanes;
near(plainRate(both.plain, both.speculative), 10);
const predicted = predictedCurve(both.plain, both.speculative);
near(predicted[0].speedup, 3 / 0.15 / 10);
near(predicted[1].speedup, (3 + 2) / (0.15 + 0.16) / 10);
assert.deepEqual(predicted.map((point) => point.seconds), [0.11, 0.27]);
const bound = overlapBound(both.plain, both.speculative);
near(bound[0].speedup, 4 / Math.max(0.05, 0.1) / 10);
near(bound[1].speedup, 6 / Math.max(0.1, 0.2) / 10);
near(preparedRate(both.speculative), 0.5);
near(both.speculative.savedSeconds, 0.04);
near(acceptRate(both.speculative), 4 / 6);

// Without a plain run its rate is that of a pass of one row; without either, or without a forecast, there is no line.
const alone = fold([header("speculative", [[1, 0.2], [4, 0.3]]), ...steps]).lanes;
near(plainRate(undefined, alone.speculative), 5);
near(predictedCurve(undefined, alone.speculative)[0].speedup, 3 / 0.15 / 5);
assert.deepEqual(predictedCurve(undefined, fold([header("speculative"), ...steps]).lanes.speculative), []);
const older = fold([...plain, header("speculative"), ...steps.map(({ expected_tokens, hit, ...rest }) => rest)]).lanes;
assert.deepEqual(predictedCurve(older.plain, older.speculative), []);
assert.deepEqual(overlapBound(older.plain, older.speculative), []);
assert.equal(preparedRate(older.speculative), null);

// Acceptance run by run: earlier runs, then this one as far as it has come; nothing without earlier runs.
const learned = [{ ...header("speculative"), history: [0.25, 0.5] }, ...steps];
const history = acceptanceHistory(fold(learned).lanes.speculative);
assert.deepEqual(history.map(({ run, current }) => [run, current]), [[1, false], [2, false], [3, true]]);
assert.deepEqual(history.slice(0, 2).map((point) => point.share), [0.25, 0.5]);
near(history[2].share, 4 / 6);
assert.equal(acceptanceHistory(fold(learned.slice(0, 1)).lanes.speculative).length, 2);
assert.deepEqual(acceptanceHistory(both.speculative), []);
assert.deepEqual(acceptanceHistory(undefined), []);

// Nothing is compared without a plain run.
assert.equal(speedup(undefined, fold([header("speculative"), ...steps]).lanes.speculative), null);

// The audit: what must hold and does not is a failure, what need not hold is told without a verdict.
const words = { greedy: "{equal}/{outputs}", same: "{share}", margin: "{margin}", sampling: "{condition} {ps}", missing: "missing" };
const greedy = { outputs: 6, equal: 2, same_share: 0.5, median_margin: 0.02, required: false };
const test = { condition: "hot", p_uniform: 0.4, p_independent: 0.5, p_draft: null, held: true };
assert.deepEqual(verdicts({ greedy, sampling: [test] }, words), [
  [{ held: null, text: "2/6; 50; 0.020" }], [{ held: true, text: "hot 0.40, 0.50" }],
]);
assert.equal(verdicts({ greedy: { ...greedy, required: true } }, words)[0][0].held, false);
assert.equal(verdicts({ greedy: { ...greedy, equal: 6 } }, words)[0][0].held, true);
assert.deepEqual(verdicts({ available: false, why_not: "no" }, words), [[{ held: null, text: "no" }], []]);
assert.equal(verdicts({ available: false, why_not: "no" }, words, () => "nein")[0][0].text, "nein");
assert.deepEqual(verdicts({}, words), [[], []]);
