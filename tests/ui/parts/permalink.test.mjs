// Addresses: what is written is read back, what is not ours or not readable is left out, and whoever applies is followed.
import assert from "node:assert/strict";
import { applyState, onApply, readState, remember, remembered, writeState } from "../../../assets/view/core/permalink.js";
import { fold, laneText } from "../../../assets/view/core/reducer.js";
import { LONGEST, readRun, writeRun } from "../../../assets/view/core/runlink.js";
import { recordedRuns } from "./fixtures.mjs";

const state = {
  prompt: "Is 1 + 1 = 2 & why? ü\n<b>", method: "tree", lookahead: 12, threshold: 0.35, nodes: 20, tokens: 64, temperature: 0,
  top_k: 40, top_p: 0.9, penalty: 1.1, seed: 7, memory: false, baseline: true, recorded: "04-tree", tab: "race", lesson: "3",
  hide: ["controls", "charts"], theme: "dark", presenter: true, lang: "de", run: true,
};
assert.deepEqual(readState(`?${writeState(state)}`), state);

assert.deepEqual(readState("?lookahead=many&seed=&memory=yes&foo=1&nodes=NaN&top_p=Infinity"), {});
assert.deepEqual(readState(""), {});
assert.equal(writeState({ lookahead: 8, nodes: 12, prompt: "", seed: null, hide: [], run: false }, { lookahead: 8, nodes: 3, run: false }), "nodes=12");

// A run fits into an address and comes back as it was, its alternatives and digits beyond the fourth left out.
const recorded = Object.fromEntries(recordedRuns().map(({ name, items }) => [name, items]));
const events = recorded["01-guess-and-check"];
const link = await writeRun(events);
assert.ok(link.length < LONGEST && /^#trace=[\w-]+$/.test(link));
const { items, problem } = await readRun(link);
assert.equal(problem, "");
const [sent, own] = [items, events].map((all) => fold(all).lanes.speculative);
assert.equal(laneText(sent), laneText(own));
assert.ok(Math.abs(sent.elapsed / own.elapsed - 1) < 1e-3);
assert.equal(await writeRun(recorded["06-too-far"].flatMap((event) => [event, event])), ""); // too long
assert.equal(await readRun("#play/01"), null);
// Anyone may have written it: a damaged one, and one that unpacks to more than a browser should hold, are refused.
assert.deepEqual((await readRun(`${link.slice(0, -40)}AAAA`)).items, []);
const bomb = new Blob(["a".repeat(9_000_000)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
const packed = Buffer.from(await new Response(bomb).arrayBuffer()).toString("base64url");
assert.deepEqual((await readRun(`#trace=${packed}`)).items, []);

remember("lesson", () => 4);
assert.deepEqual(remembered(), { lesson: 4 });

const followed = [];
applyState({ method: "tree" }); // before there is anyone to follow it
onApply((query) => followed.push(query));
applyState({ lookahead: 3, run: true });
assert.deepEqual(followed, ["method=tree", "lookahead=3&run=1"]);
