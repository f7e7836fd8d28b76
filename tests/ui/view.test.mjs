// The view's pure parts, fed with recorded runs: prints the numbers of each. Run by tests/ui/test_view.py: node view.test.mjs TRACE ...
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { sum } from "../../assets/view/play/batch.js";
import { readLines, readTrace } from "../../assets/view/core/lines.js";
import { acceptRate, disturbed, maySplit, positions, repeatsItself, speedup, speedupCurve, tokensPerSecond, tokensPerStep, two } from "../../assets/view/core/metrics.js";
import { fold, laneText } from "../../assets/view/core/reducer.js";
import { quote, split } from "../../assets/view/core/sentence.js";
import { sentence } from "../../assets/view/parts/picture.js";
import { isEnd } from "../../assets/view/parts/text.js";

let [shown, grown] = ["", () => {}];
const source = { read: () => shown, watch: (call) => (grown = call) };

/** Check a recorded run. Returns its numbers, which Python compares with its own. */
const checked = (text) => {
  const { items, problem } = readTrace(text);
  assert.equal(problem, "");

  // However the text is cut on its way, the lines arrive whole, each once.
  let begun = 0;
  shown = "";
  const arrived = [];
  readLines(source, (more, restarted) => {
    begun += restarted;
    arrived.push(...more);
  });
  for (let end = 0; end < text.length + 97; end += 97) {
    shown = text.slice(0, end);
    grown();
  }
  assert.deepEqual(arrived, items);
  assert.equal(begun, 1);
  // Another stream begins with another line.
  shown = `{"type":"open","source":"live","key":"b"}\n{"type":"wai`;
  grown();
  assert.deepEqual([begun, arrived.length, arrived.at(-1).key], [2, items.length + 1, "b"]);

  // A cut trace shows what is whole.
  const cut = readTrace(text.slice(0, text.length - 30));
  assert.equal(cut.items.length, items.length - 1);
  assert.ok(cut.problem);

  const { plain, speculative } = fold(items).lanes;
  assert.deepEqual([plain.runs, speculative.runs], [1, 1]); // a recorded run was alone
  return {
    speedup: speedup(plain, speculative),
    disturbed: disturbed(plain, speculative),
    repeats: repeatsItself(speculative),
    may_split: maySplit(speculative),
    curve: speedupCurve(plain, speculative).length,
    positions: positions(speculative).map(({ tested, kept }) => [tested, kept]),
    text: laneText(speculative),
    tokens_per_second: tokensPerSecond(speculative),
    drafted_accept_rate: acceptRate(speculative),
    tokens_per_step: tokensPerStep(speculative),
  };
};
console.log(JSON.stringify(process.argv.slice(2).map((path) => checked(readFileSync(path, "utf8")))));

// A late value of a live stream that was replaced changes nothing; the present one goes on, and a recording may come again.
for (const late of [false, true]) {
  const [live, next] = ["a", "b"].map((key) => `{"type": "open", "source": "live", "key": "${key}"}\n`);
  const taken = [];
  readLines(source, (more) => taken.push(...more.map(({ key, type }) => key ?? type)));
  taken.length = 0;
  for (shown of [live, next, ...(late ? [live + `{"type": "waiting"}\n`] : []), next + `{"type": "notice"}\n`]) grown();
  assert.deepEqual(taken, ["a", "b", "notice"]);
  const recorded = live.replace("live", "recorded");
  for (shown of [recorded, next.replace("b", "c"), recorded]) grown();
  assert.deepEqual(taken.slice(3), ["a", "c", "a"]);
}

assert.deepEqual(split("a\u202eb\n").map((part) => part.name || part.text), ["a", "RLO", "b\n"]);
assert.deepEqual([1.234, 148.6, 0.0456, null, 0].map(two), ["1.2", "150", "0.046", "–", "0"]);

// Most runs that shared a pass with a lane; one that does not say was alone.
const verified = (runs, step) => ({ type: "verified", lane: "plain", step, nodes: [], path: [], next: { token_id: 1 }, runs });
const crowd = [null, 3, undefined, 2].map(verified);
assert.deepEqual(crowd.map((_, i) => fold(crowd.slice(0, i + 1)).lanes.plain.runs), [1, 3, 3, 3]);

// A refused token that the server's log names is known; one without an id and a text is not.
const refused = (node) => fold([{ type: "verified", lane: "speculative", step: 0, nodes: [{ status: "rejected", parent: -1, ...node }], path: [], next: null }]);
assert.deepEqual([{ text: "" }, { text: "", token_id: 5 }, { text: "a" }].map((node) => refused(node).lanes.speculative.unnamed), [true, false, false]);
// Without known rounds a step without a draft may have had one.
const lane = (knowledge) => ({ header: { knowledge } });
assert.deepEqual([undefined, "exact", "totals"].map((known) => sentence(lane(known), { nodes: [], next: {} })), ["plain", "plain", "unknown"]);
const own = [["rejected", {}], ["accepted", {}], ["accepted", null]];
assert.equal(sentence(lane("arrival"), { nodes: [{ status: "accepted" }], next: {} }), "kept");
assert.deepEqual(own.map(([status, next]) => sentence(lane(), { nodes: [{ status }], next })), ["wrong", "right", "end"]);
// A token of the answer without a text is its end or a part of a character.
assert.deepEqual(["accepted", "plain", "rejected"].map((status) => quote({ text: "", status })), ["", "", "?"]);

// Another program's server may report the positions of drafts whose rounds are not known.
const totals = { type: "finished", lane: "speculative", reason: "stop", new_tokens: 7, drafted: 6, accepted: 3, positions: [[3, 3, 2], [3, 2, 1]] };
const served = fold([{ type: "started", lane: "speculative", knowledge: "totals" }, totals]).lanes.speculative;
assert.deepEqual(positions(served), [{ drafted: 3, tested: 3, kept: 2 }, { drafted: 3, tested: 2, kept: 1 }]);
assert.deepEqual([acceptRate(served), tokensPerStep(served)], [0.5, null]);

// Outside the compiled pass a drafted greedy text may leave plain decoding's at a near tie.
const splits = (kernel, precision, more = {}) => maySplit({ header: { method: "ngram", target: { kernel, precision }, ...more } });
assert.deepEqual([splits("lean pass", "nf4"), splits("compiled pass on matrix tiles", "nf4"), splits("lean pass", "fp32"), splits("", "nf4")], [true, false, false, false]);
assert.deepEqual([{ settings: { exact: true } }, { method: "nothing" }, { knowledge: "exact" }].map((more) => splits("lean pass", "nf4", more)), [false, false, false]);

// What several prompts came to, in the words of the page; nothing while they go on.
const words = { total: "{prompts} prompts, {tokens} tokens, {rate} tokens/s" };
assert.equal(sum({ prompts: 4, tokens: 512, rate: 123.4 }, words), "4 prompts, 512 tokens, 120 tokens/s");
assert.equal(sum({ prompts: 0, tokens: 0, rate: null }, words), "0 prompts, 0 tokens, – tokens/s");
assert.equal(sum(null, words), "");

// A model's own mark of the end is drawn as a sign; a text that only holds one is a text.
assert.deepEqual(["<|im_end|>", "</s>", "a <|im_end|>", "<b>", "<|im_end|>\n"].map(isEnd), [true, true, false, false, false]);
