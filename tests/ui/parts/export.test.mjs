// What leaves the page: whole traces, tables without formulas, and a player with the run in it.
import assert from "node:assert/strict";
import { COLUMNS, csvTable, traceText, withRun } from "../../../assets/view/play/export.js";
import { readTrace } from "../../../assets/view/core/lines.js";
import { recordedRuns } from "./fixtures.mjs";

for (const { name, items } of recordedRuns()) {
  assert.deepEqual(readTrace(traceText(items)).items, items, name);
}

const event = {
  type: "verified", lane: "plain", step: 3, path: [0], draft_seconds: 0.1, verify_seconds: 0.2, overhead_seconds: 0, elapsed_seconds: 1,
  nodes: [{ token_id: 1, text: '=1+"a",\nb', status: "accepted", target_prob: 0.5, confidence: 0.25, origin: "chosen" }, { token_id: 2, text: " -", parent: 0, status: "rejected" }],
  next: { token_id: 3, text: "@", status: "correction" },
};
const lines = csvTable([{ type: "started" }, event]).split("\r\n");
assert.equal(lines[0], COLUMNS.join(","));
assert.equal(lines[1], 'plain,3,0,-1,1,"\'=1+""a"",\nb",accepted,0.5,,,,,0.25,chosen,,0.1,0.2,0,1');
assert.equal(lines[2], "plain,3,1,0,2, -,rejected,,,,,,,,,0.1,0.2,0,1");
assert.equal(lines[3], "plain,3,,,3,'@,correction,,,,,,,,,0.1,0.2,0,1");
assert.equal(lines[4], "");

const empty = '<script type="application/json" id="sd-run">null</script>';
const run = { title: "$& $1 </script>", trace: "</script><!--<script>\u2028 \u{1f600} \ud800" };
const page = withRun(`<main></main>${empty}<b>`, run);
assert.match(page, /^<main><\/main><script type="application\/json" id="sd-run">[^<\u2028]*<\/script><b>$/);
assert.deepEqual(JSON.parse(page.slice(page.indexOf("{"), page.lastIndexOf("}") + 1)), run);
assert.throws(() => withRun("<main></main>", run));
