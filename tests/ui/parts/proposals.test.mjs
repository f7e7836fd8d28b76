// The same place in several runs: only as long as they say the same text.
import assert from "node:assert/strict";
import { agreement, bet } from "../../../assets/view/proposals/drafts.js";
import { bestPosition, sharedPositions } from "../../../assets/view/proposals/proposals.js";
import { recordedRuns } from "./fixtures.mjs";

const step = (lane, index, drafted, kept, next) => ({
  type: "verified", lane, step: index, path: drafted.slice(0, kept).map((_, i) => i), next: { token_id: next, text: `t${next}`, status: "bonus" },
  nodes: drafted.map((id, i) => ({ token_id: id, text: `t${id}`, parent: i - 1, status: i < kept ? "accepted" : "rejected" })),
  draft_seconds: 0.001, verify_seconds: 0.01, overhead_seconds: 0, elapsed_seconds: 0.01 * (index + 1),
});
const begun = (lane, method) => ({ type: "started", lane, method, prompt: "p", settings: {} });
const plain = [begun("plain", "nothing"), ...[1, 2, 3, 4, 5, 6].map((id, i) => step("plain", i, [], 0, id))];
const one = [...plain, begun("speculative", "tree"), step("speculative", 0, [1], 1, 2), step("speculative", 1, [3, 4], 2, 5), step("speculative", 2, [], 0, 6)];
const two = [begun("speculative", "ngram"), step("speculative", 0, [9], 0, 1), step("speculative", 1, [], 0, 2), step("speculative", 2, [3], 1, 7), step("speculative", 3, [8], 1, 4)];
const { tokens, positions } = sharedPositions([one, two]);
assert.deepEqual(tokens.map((token) => token.token_id), [1, 2, 3, 4, 5, 6]);
// Both drafted at 0 and at 2; the second said something else from token 3 on, so nothing later counts.
assert.deepEqual([...positions.keys()], [0, 2]);
assert.deepEqual(positions.get(2).map(({ method }) => method), ["tree", "ngram"]);
assert.equal(bestPosition(positions), 2);
assert.equal(bestPosition(new Map()), -1);
assert.equal(sharedPositions([one]).positions.size, 0);
assert.deepEqual(sharedPositions([]).tokens, []);

// Of recorded runs on one prompt at least the start is shared.
const shared = recordedRuns().filter(({ items }) => items[0]?.prompt?.includes("reading books") && items[0].target.precision === "nf4");
assert.ok(shared.length > 1);
assert.ok(sharedPositions(shared.map(({ items }) => items)).positions.has(0));

// Methods that guess the same stand together: by their first token, and within that by the whole draft.
const drafted = (...nodes) => ({ nodes: nodes.map(([token_id, parent, confidence]) => ({ token_id, parent, confidence })) });
const chain = [[1, -1, 0.9], [2, 0, 0.8]];
const groups = agreement([drafted([7, -1, 0.9]), drafted(...chain), drafted([7, -1, 0.2], [1, -1, 0.7], [2, 1, 0.5]), null, drafted(), drafted(...chain)]);
assert.deepEqual(groups.map(({ token, count, drafts }) => [token.token_id, count, drafts]), [[1, 3, [[1, 5], [2]]], [7, 1, [[0]]]]);
assert.equal(bet(drafted()), null);
assert.deepEqual(agreement([]), []);
// Two of these recorded methods ask the same draft model, and guess the same.
const { positions: real } = sharedPositions(shared.map(({ items }) => items));
const once = real.get(0).map((draft) => draft.method);
assert.equal(new Set(once).size, once.length); // two runs of one method are one row
const alike = agreement(real.get(0).map((draft) => draft.step));
assert.ok(alike[0].drafts[0].length > 1);
