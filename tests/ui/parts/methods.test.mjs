// How a method guesses: a recorded step of its own, and what is seen of it at each time.
import assert from "node:assert/strict";
import { advice, commands, ranked } from "../../../assets/view/methods/adviser.js";
import { Moments, bestScene, kindOf, sceneAt, SECONDS } from "../../../assets/view/methods/guessing.js";
import { recordedRuns } from "./fixtures.mjs";

const END = 1000 * SECONDS;
const scenes = new Map();
for (const { name, items } of recordedRuns()) {
  const scene = bestScene(items);
  assert.ok(scene, `${name} shows how its method guesses`);
  scenes.set(scene.header.method, scene);
  const { step, words, stops, own } = scene;
  // It begins with the text alone; each token comes before its verdict, and the target's own comes last.
  const start = sceneAt(scene, 0);
  assert.deepEqual([start.beat, start.own, new Set(start.states)], ["text", false, new Set(step.nodes.length ? ["hidden"] : [])]);
  assert.ok(words.every(({ at, judged }) => 0 < at && at < judged && judged < own && own < END), name);
  const end = sceneAt(scene, END);
  assert.deepEqual([end.beat, end.own, end.states], ["own", true, step.nodes.map((node) => node.status)]);
  assert.deepEqual([stops[0], stops.at(-1)], [0, END]);
  // Whatever changes is a stop, so that a player that rests shows what there is by then.
  const times = [...Array(END / 50).keys()].map((i) => 50 * i);
  const player = new Moments(stops);
  for (const time of times) {
    player.seek(player.stopAt(time));
    assert.deepEqual(sceneAt(scene, player.timeAt(player.at)), sceneAt(scene, time), `${name} at ${time}`);
  }
}

const comesAt = (name) => scenes.get(name).words.map(({ at }) => at);
const rises = (times) => times.every((time, i) => !i || time > times[i - 1]);
// One after another; level by level; all at once, into places that are masked before.
assert.ok(rises(comesAt("draft_model")) && comesAt("draft_model").length > 2);
const tree = scenes.get("tree");
const levels = new Set(comesAt("tree"));
assert.ok(levels.size > 1 && levels.size < tree.step.nodes.length);
tree.step.nodes.forEach((node, i) => node.parent < 0 || assert.ok(tree.words[i].at > tree.words[node.parent].at));
for (const name of ["medusa", "block", "jet"]) assert.equal(new Set(comesAt(name)).size, 1);
assert.equal(sceneAt(scenes.get("block"), 2000).states[0], "masked");
assert.equal(sceneAt(scenes.get("medusa"), 2000).states[0], "hidden");

// What is copied stood in the text before: the matched words, then the drafted ones.
const { earlier, matched, before, header, step } = scenes.get("ngram");
assert.ok(matched > 0);
assert.equal(earlier.match, before.slice(-matched).join(""));
assert.equal(earlier.copied, step.nodes.map((node) => node.text).join(""));
assert.ok(header.prompt.includes(earlier.match + earlier.copied));
assert.ok(scenes.get("retrieval").matched > 0 && scenes.get("retrieval").places > 0);
assert.equal(scenes.get("parallel").step.hit, true);
assert.equal(scenes.get("nothing").kind, "plain");

// A method that chooses is shown as what it chose; one that is not known by the shape of its draft.
assert.equal(kindOf("auto", { source: "ngram", nodes: [] }), "copy");
assert.equal(kindOf("new", { source: "", nodes: [{ parent: -1 }, { parent: -1 }] }), "tree");
assert.equal(bestScene([]), null);

// The best method of a choice comes first; it is recommended only if most of its answers gained.
const result = (method, speedup, quartiles, memory = null) => ({ target: "t", sampling: "greedy", task: "all", method, speedup, quartiles, answers: 4, repeats: 0, tokens_per_step: 1, memory });
const results = [result("nothing", 1, [1, 1]), result("ngram", 1.2, [1.1, 1.3]), result("tree", 1.1, [0.9, 1.4], 9), { ...result("tree", 3, [2, 4]), task: "code" }];
assert.deepEqual(ranked(results, { task: "all" }).map(({ method }) => method), ["ngram", "tree", "nothing"]);
assert.equal(ranked(results, { task: "all" }, "memory").at(-1).method, "tree");
const said = (all) => advice(all).name;
assert.equal(said(results.slice(0, 2)), "pays");
assert.equal(said([results[0], results[2]]), "perhaps");
assert.equal(said([results[0], result("tree", 0.9, [0.8, 1.1])]), "none");
assert.equal(said([result("tree", 1.4, null)]), "single");
assert.equal(said([results[0]]), "unknown");
// The command lines of a method: this program's with the sampling, other programs' where they have the method.
const lines = (method, sampling) => Object.fromEntries(commands({ target: "t", sampling, method }));
assert.deepEqual(lines("ngram", "0.7/0.9/1.1"), {
  specdemo: 'python -m specdemo run --target t --method ngram --temperature 0.7 --top-p 0.9 --repetition-penalty 1.1 "…"',
  "llama.cpp": "llama-server -m TARGET.gguf --spec-type ngram-simple",
  vLLM: `vllm serve TARGET --speculative-config '{"method":"ngram","prompt_lookup_max":4,"num_speculative_tokens":4}'`,
});
assert.deepEqual(lines("nothing", "greedy"), { specdemo: 'python -m specdemo run --target t --method nothing --temperature 0 "…"', "llama.cpp": "llama-server -m TARGET.gguf", vLLM: "vllm serve TARGET" });
assert.deepEqual(Object.keys(lines("auto", "greedy")), ["specdemo"]);
