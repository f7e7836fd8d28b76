// What leaves the page: whole traces, and a player with the run in it.
import assert from "node:assert/strict";
import { traceText, withRun } from "../../../assets/view/play/export.js";
import { readTrace } from "../../../assets/view/core/lines.js";
import { recordedRuns } from "./fixtures.mjs";

for (const { name, items } of recordedRuns()) {
  assert.deepEqual(readTrace(traceText(items)).items, items, name);
}

const empty = '<script type="application/json" id="sd-run">null</script>';
const run = { title: "$& $1 </script>", trace: "</script><!--<script>\u2028 \u{1f600} \ud800" };
const page = withRun(`<main></main>${empty}<b>`, run);
assert.match(page, /^<main><\/main><script type="application\/json" id="sd-run">[^<\u2028]*<\/script><b>$/);
assert.deepEqual(JSON.parse(page.slice(page.indexOf("{"), page.lastIndexOf("}") + 1)), run);
assert.throws(() => withRun("<main></main>", run));
