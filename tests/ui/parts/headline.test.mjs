// The sentence above the text is true, and there is none where there is nothing to compare.
import assert from "node:assert/strict";
import { clocksOf, headlineOf, isSame } from "../../../assets/view/core/headline.js";
import { isFromEarlier } from "../../../assets/view/core/metrics.js";
import { fold } from "../../../assets/view/core/reducer.js";

// A run of two variants, a token a step: milliseconds of a step of each, and their words. A pass takes 10 ms.
function run({ plain = 10, drafted = 5, tokens = 30, words = (i) => ` w${i}`, other = words, ends = true }) {
  const lane = (name, method, milliseconds, text) => [
    { type: "started", lane: name, method, prompt: "p", settings: {} },
    ...Array.from({ length: tokens }, (_, step) => ({
      type: "verified", lane: name, step, nodes: [], path: [], next: { token_id: step, text: text(step), status: "plain" },
      draft_seconds: (milliseconds - 10) / 1000, verify_seconds: 0.01, overhead_seconds: 0, elapsed_seconds: (milliseconds * (step + 1)) / 1000,
    })),
    ...(ends ? [{ type: "finished", lane: name, reason: "length" }] : []),
  ];
  return fold([...lane("plain", "nothing", plain, words), ...(drafted ? lane("speculative", "ngram", drafted, other) : [])]);
}
const said = (how) => headlineOf(run(how));

assert.deepEqual(said({}), { name: "disturbed", values: {} }); // twice as fast with one token a step: it cannot be
assert.equal(said({ drafted: 0 }).name, "plain");
assert.deepEqual(said({ drafted: 13 }), { name: "same_later", values: { times: "1.3" } });
assert.equal(said({ drafted: 10.2 }).name, "same_even");
assert.equal(said({ drafted: 13, other: (i) => ` v${i}` }).name, "other_later");
assert.equal(said({ drafted: 13, ends: false }).name, "so_far_later");
assert.equal(said({ drafted: 13, tokens: 19, ends: false }).name, "begin"); // no speedup before 20 tokens
assert.equal(said({ drafted: 13, tokens: 19 }).name, "short");
assert.equal(said({ drafted: 13, words: (i) => ` w${i % 5}` }).name, "repeats");
assert.equal(headlineOf(fold([])).name, "");

// Kept tokens whose reason is a match in an earlier text are copied from an earlier run.
const copied = run({ drafted: 13 });
for (const step of copied.lanes.speculative.steps.slice(0, 4)) Object.assign(step, { nodes: [{ text: ` n${step.index}` }], path: [0], reasons: [{ code: "ngram_earlier" }, { code: "cost" }] });
assert.ok(isFromEarlier(copied.lanes.speculative));
assert.equal(headlineOf(copied).name, "earlier");
copied.lanes.speculative.steps[0].reasons = [];
assert.ok(!isFromEarlier(copied.lanes.speculative)); // a tenth of the tokens

const both = run({ drafted: 13 });
assert.ok(isSame(both.lanes.plain, both.lanes.speculative));
const { steps } = both.lanes.speculative;
assert.equal(clocksOf(both, steps[3]).drafted.toFixed(6), "0.013000");
assert.equal(clocksOf(both, steps[3]).plain, 0.01);
