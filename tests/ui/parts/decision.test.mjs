// Why a token was kept or refused: sentence, formula and rows, on steps written by hand and on the recorded runs.
import assert from "node:assert/strict";
import { apart, decide } from "../../../assets/view/core/decision.js";
import { fold } from "../../../assets/view/core/reducer.js";
import { recordedRuns, words } from "./fixtures.mjs";

const node = (token_id, text, parent, status, more = {}) => ({ token_id, text, parent, status, ...more });
const choice = (token_id, prob, text) => ({ token_id, prob, text });
const drawn = (target_prob, draft_prob, more = {}) => ({ target_prob, draft_prob, confidence: draft_prob, origin: "drawn", ...more });
const chosen = (target_prob, confidence, more = {}) => ({ target_prob, confidence, origin: "chosen", ...more });
const header = (temperature, more = {}) => ({ method: "draft_model", settings: { sampling: { temperature } }, ...more });
const step = (nodes, path, next, places = []) => ({ index: 4, open: false, source: "", nodes, path, next, places });
const own = (token_id, text, status, target_prob) => node(token_id, text, -1, status, { target_prob });

// Sampling, a chain: " cat" is kept, " ran" refused, " sat" drawn from what is left; with detail.
const sampled = step(
  [
    node(1, " cat", -1, "accepted", drawn(0.12, 0.31, { accept_prob: 0.12 / 0.31, draw: 0.22 })),
    node(2, " ran", 0, "rejected", drawn(0.2, 0.5, { accept_prob: 0.4, draw: 0.401 })),
    node(3, " away", 1, "unreached", drawn(0.01, 0.9)),
  ],
  [0],
  own(4, " sat", "correction", 0.6),
  [
    { after: -1, target: [choice(9, 0.5, " dog"), choice(1, 0.12, " cat")], draft: [choice(1, 0.31, " cat")] },
    { after: 0, target: [choice(4, 0.6, " sat"), choice(2, 0.2, " ran")], draft: [choice(2, 0.5, " ran"), choice(4, 0.1, " sat")], residual: [choice(4, 0.8, " sat")] },
  ],
);
const told = (which, given = sampled, head = header(1)) => decide(words, { header: head, step: given, node: which });
assert.equal(told(0).token, "cat");
assert.match(told(0).why, /draw 0\.22 lies below the accept probability 0\.39: kept/);
assert.equal(told(0).formula, "accept = min(1, target / draft) = min(1, 0.12 / 0.31) = 0.39\ndraw 0.22 < 0.39: kept");
assert.deepEqual(told(0).rows.map((row) => [row.text, row.target, row.draft, row.status, row.self]), [
  ["dog", 0.5, null, "", false], ["cat", 0.12, 0.31, "accepted", true],
]);
assert.equal(told(0).residual, false);
// A draw just above the accept probability is told with as many digits as it takes to see that.
assert.match(told(1).formula, /draw 0\.401 ≥ 0\.400: rejected/);
assert.deepEqual(apart(0.12, 0.39), ["0.12", "0.39"]);
assert.equal(told(1).residual, true);
assert.deepEqual(told(1).rows.map((row) => [row.token_id, row.residual, row.status]), [[4, 0.8, "correction"], [2, null, "rejected"]]);
assert.match(told(2).why, /“ran” before it was rejected/);
assert.deepEqual(told(2).notes, [words.notes.not_there]);
assert.match(told(-1).why, /“ran” was rejected.* it has 0\.80/);
// (0.6 - 0.1) / rest = 0.8
assert.equal(told(-1).formula, "residual = max(target - draft, 0) / rest = (0.60 - 0.10) / 0.63 = 0.80");
assert.deepEqual(told(-1).notes, []);
assert.deepEqual(told(0).branch, []);

// Target and drafter draw with the same tickets: " cat" wins in both, " ran" in the draft only. log 0.2 + 0.5 = -1.1
const coupled = step(
  [
    node(1, " cat", -1, "accepted", { target_prob: 0.12, draft_prob: 0.31, ticket: 2 }),
    node(2, " ran", 0, "rejected", { target_prob: 0.2, draft_prob: 0.5, ticket: 0.5 }),
  ],
  [0],
  { ...own(4, " sat", "correction", 0.6), ticket: 1 },
);
assert.match(told(0, coupled).why, /“cat” wins in the target's distribution as well/);
assert.match(told(1, coupled).why, /“sat” wins in the target's distribution, and not “ran”/);
assert.match(told(1, coupled).formula, /^target: log 0\.20 \+ ticket 0\.50 = -1\.1\ndraft: log 0\.50 .*\n.*“sat”: log 0\.60 \+ ticket 1\.0 = 0\.49$/);
assert.match(told(-1, coupled).why, /“ran” was drafted, so it was rejected/);
assert.ok(told(1, coupled).notes.includes(words.notes.coupled));

// A server of another program reports no probabilities of the target: the reason contains no dash in their place.
const foreign = step([node(1, " cat", -1, "accepted"), node(null, "", 0, "rejected")], [0], node(4, " sat", -1, "correction"));
for (const which of [0, 1, -1]) {
  const { status } = which < 0 ? foreign.next : foreign.nodes[which];
  assert.equal(told(which, foreign, header(0, { method: "attached" })).why, words.explain[status]);
}

// A drafter that copies gives all its weight to one token; its number is an estimate and never the divisor.
const copied = { ...sampled, nodes: [node(1, " cat", -1, "rejected", chosen(0.3, 0.6, { accept_prob: 0.3, draw: 0.7 }))], path: [], places: [
  { after: -1, target: [choice(4, 0.6, " sat"), choice(1, 0.3, " cat")], residual: [choice(4, 0.6 / 0.7, " sat")] },
] };
const ngram = header(1, { method: "ngram" });
assert.equal(told(0, copied, ngram).formula, "accept = target / 1 = 0.30\ndraw 0.70 ≥ 0.30: rejected");
assert.ok(told(0, copied, ngram).notes.includes(words.notes.no_draft));
const expected = { ...copied, nodes: copied.nodes.map((value) => ({ ...value, survival: 0.42 })) };
assert.match(told(0, expected, ngram).notes[0], /0\.42 to be kept with all before it/);
assert.equal(told(-1, copied, ngram).formula, "residual = target / (1 - rejected) = 0.60 / (1 - 0.30) = 0.86");
// The same of a drafter that could have a distribution: the event tells that it chose, whatever the method's name is.
assert.equal(told(0, copied).formula, told(0, copied, ngram).formula);
assert.deepEqual(told(0, copied).notes, told(0, copied, ngram).notes);
// Equal numbers do not make a drawn token a chosen one: p / q is p where q is 1.
const certain = { ...copied, nodes: [node(1, " cat", -1, "rejected", drawn(0.3, 1, { accept_prob: 0.3, draw: 0.7 }))] };
assert.match(told(0, certain, ngram).formula, /^accept = min\(1, target \/ draft\) = min\(1, 0\.30 \/ 1\.0\) = 0\.30\n/);
// If a recording does not contain the origin, only the test is shown.
const unknown = { ...copied, nodes: copied.nodes.map(({ origin: _, ...value }) => value) };
assert.equal(told(0, unknown).formula, "draw 0.70 ≥ 0.30: rejected");
assert.equal(told(-1, unknown).formula, "");

// Greedy: the target's likeliest token decides, and the step itself says which it is.
const greedy = step(
  [node(1, " the", -1, "accepted", chosen(0.78, 0.5, { accept_prob: 1 })), node(2, " past", 0, "rejected", chosen(0.0003, 0.08, { accept_prob: 0 }))],
  [0],
  own(3, " world", "correction", 0.43),
);
const plainly = (which, head = header(0)) => told(which, greedy, head);
assert.match(plainly(0).why, /most likely one here, with 0\.78: kept/);
assert.match(plainly(1).why, /“world” the highest probability, 0\.43\. “past” has 0\.00030 and was rejected/);
assert.equal(plainly(1).formula, "target's most likely = “world” (0.43) ≠ “past”: rejected");
assert.match(plainly(-1).why, /with 0\.43, in place of the rejected “past”/);
assert.deepEqual(plainly(1).notes, [words.notes.no_detail]);
// A method that keeps more than the target would say claims nothing of the kind.
assert.equal(plainly(0, header(0, { lossy: true })).why, words.explain_lossy.accepted);
assert.equal(plainly(1, header(0, { lossy: true })).formula, "");

// Siblings of a tree: the second is tested against what the refusal of the first has left; the branch is named.
const tree = step(
  [
    node(1, " dog", -1, "rejected", drawn(0.1, 0.5, { accept_prob: 0.2, draw: 0.9 })),
    node(2, " cat", -1, "accepted", drawn(0.3, 0.6, { accept_prob: 0.45, draw: 0.1 })),
    node(3, " cow", -1, "unreached", { target_prob: 0.1 }),
    node(4, " sat", 1, "accepted", drawn(0.9, 0.6, { accept_prob: 1, draw: 0.3 })),
    node(5, " moo", 2, "unreached", { target_prob: 0.1 }),
  ],
  [1, 3],
  own(6, " on", "bonus", 0.7),
);
assert.equal(told(1, tree).formula, "accept = min(1, left / draft) = min(1, 0.27 / 0.60) = 0.45\ndraw 0.10 < 0.45: kept");
assert.match(told(1, tree).notes[0], /after 1 rejected/);
assert.deepEqual(told(3, tree).branch, ["cat", "sat"]);
assert.deepEqual(told(-1, tree).branch, ["cat", "sat", "on"]);
assert.match(told(2, tree).why, /“cat” was kept instead/);
assert.match(told(4, tree).why, /“cat” was kept instead/);
assert.match(told(-1, tree).why, /whole draft was kept \(2\)/);

// A draft that was judged as a block: the first token, with half the draft's probability, gains from what follows it.
const block = step(
  [
    node(1, " cat", -1, "accepted", drawn(0.3, 0.6, { accept_prob: 0.55, draw: 0.5, block_prob: 0.55 })),
    node(2, " sat", 0, "accepted", drawn(0.6, 0.4, { accept_prob: 0.5 / 0.55, draw: 0.2, block_prob: 0.5 })),
    node(3, " on", 1, "rejected", drawn(0.2, 0.4, { accept_prob: 0.75, draw: 0.8, block_prob: 0.375 })),
  ],
  [0, 1],
  own(4, " there", "correction", 0.6),
  [{ after: 1, target: [choice(4, 0.6, " there"), choice(3, 0.2, " on")], draft: [choice(3, 0.4, " on"), choice(4, 0.1, " there")], residual: [choice(4, 0.875, " there")] }],
);
assert.match(told(0, block).why, /^The 3 drafted tokens were judged as a block\. The draw 0\.50 lies below .* 0\.55, .*: kept\.$/);
assert.deepEqual(told(0, block).formula.split("\n"), [
  "prefix = min(1, target / draft) = min(1, 0.30 / 0.60) = 0.50",
  "keep = end + (1 - end) × keep of the next = 0.10 + (1 - 0.10) × 0.50 = 0.55",
  "draw 0.50 < 0.55: kept",
]);
assert.deepEqual(told(1, block).formula.split("\n"), [
  "prefix = min(1, prefix before × target / draft) = min(1, 0.50 × 0.60 / 0.40) = 0.75",
  "keep = end + (1 - end) × keep of the next = 0.20 + (1 - 0.20) × 0.38 = 0.50",
  "accept = keep / keep before = 0.50 / 0.55 = 0.91",
  "draw 0.20 < 0.91: kept",
]);
assert.deepEqual(told(2, block).formula.split("\n"), [
  "prefix = min(1, prefix before × target / draft) = min(1, 0.75 × 0.20 / 0.40) = 0.38",
  "keep = prefix = 0.38",
  "accept = keep / keep before = 0.38 / 0.50 = 0.75",
  "draw 0.80 ≥ 0.75: rejected",
]);
assert.equal(told(-1, block).formula, "residual = max(prefix × target - draft, 0) / rest = (0.75 × 0.60 - 0.10) / 0.40 = 0.88");
assert.ok(told(0, block).notes.includes(words.notes.block));
// A token that was copied behind drawn ones counts as drawn with 1, also in a block.
const alike = { ...node(3, " on", 1, "rejected", { accept_prob: 0.3, draw: 0.8, block_prob: 0.15, target_prob: 0.2 }), origin: "chosen" };
const behind = { ...block, nodes: [...block.nodes.slice(0, 2), alike] };
assert.match(told(2, behind).formula, /^prefix = .* = min\(1, 0\.75 × 0\.20 \/ 1\.0\) = 0\.15$/m);
const early = { ...block, path: [0], nodes: block.nodes.map((value, i) => (i === 0 ? value : { ...value, status: i === 1 ? "rejected" : "unreached" })) };
assert.match(told(2, early).why, /judged as a block, of which the part before “sat” was kept/);

// What was not judged yet, what is folded, and a target's own token in a step without a draft.
const open = { ...greedy, open: true, path: [], next: null, nodes: [node(1, " the", -1, "drafted", { confidence: 0.3, origin: "chosen" })] };
assert.equal(told(0, open, header(0)).why, words.explain.drafted);
assert.deepEqual(told(0, open, header(0)).notes, []);
assert.match(decide(words, { header: header(0), step: tree, node: -1, count: 3 }).why, /3 more tokens of the tree/);
assert.match(told(-1, step([], [], own(1, "\n", "plain", 0.5))).why, /gives 0\.50/);
assert.equal(told(-1, step([], [], own(1, "\u202e", "plain", 0.5))).token, "[RLO]");

// Every token of every recorded run can be told, and no sentence has a hole in it.
for (const { name, items } of recordedRuns()) {
  for (const lane of Object.values(fold(items).lanes)) {
    for (const judged of lane.steps) {
      for (let which = judged.next ? -1 : 0; which < judged.nodes.length; which += 1) {
        const { why, formula, rows, notes } = decide(words, { header: lane.header, step: judged, node: which });
        const judgedByDraw = judged.nodes[which]?.draw !== undefined && !lane.header.lossy;
        if (judgedByDraw) assert.match(formula, /^accept = .*\n/, `${name}: the origin of every tested token is known`);
        assert.ok(why && !/[{}]|undefined|NaN|“”/.test(why + formula), `${name}: ${why} ${formula}`);
        assert.ok(rows.some((row) => row.self), name);
        assert.ok(notes.length <= 3);
      }
    }
  }
}
