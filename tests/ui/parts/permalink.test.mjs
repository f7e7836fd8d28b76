// Addresses: what is written is read back, what is not ours or not readable is left out, and whoever applies is followed.
import assert from "node:assert/strict";
import { applyState, onApply, readState, remember, remembered, writeState } from "../../../assets/view/core/permalink.js";

const state = {
  prompt: "Is 1 + 1 = 2 & why? ü\n<b>", method: "tree", lookahead: 12, threshold: 0.35, nodes: 20, tokens: 64, temperature: 0,
  top_k: 40, top_p: 0.9, penalty: 1.1, seed: 7, memory: false, baseline: true, recorded: "04-tree", tab: "race", lesson: "3",
  hide: ["controls", "charts"], theme: "dark", presenter: true, lang: "de", run: true,
};
assert.deepEqual(readState(`?${writeState(state)}`), state);

assert.deepEqual(readState("?lookahead=many&seed=&memory=yes&foo=1&nodes=NaN&top_p=Infinity"), {});
assert.deepEqual(readState(""), {});
assert.equal(writeState({ lookahead: 8, nodes: 12, prompt: "", seed: null, hide: [], run: false }, { lookahead: 8, nodes: 3, run: false }), "nodes=12");

remember("lesson", () => 4);
assert.deepEqual(remembered(), { lesson: 4 });

const followed = [];
applyState({ method: "tree" }); // before there is anyone to follow it
onApply((query) => followed.push(query));
applyState({ lookahead: 3, run: true });
assert.deepEqual(followed, ["method=tree", "lookahead=3&run=1"]);
