// The adviser: which method is recommended, and the command lines that begin it.
import assert from "node:assert/strict";
import { advice, commands, ranked } from "../../../assets/view/methods/adviser.js";

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
