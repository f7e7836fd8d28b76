// What the page makes of traces that it did not write: [line, problem, events] of each text of a file, and none may break
// what draws them. Called by test_foreign.py.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { decide } from "../../assets/view/core/decision.js";
import { csvTable } from "../../assets/view/play/export.js";
import { readTrace } from "../../assets/view/core/lines.js";
import { forecastSteps, overlapBound, positions, predictedCurve, speedupCurve } from "../../assets/view/core/metrics.js";
import { fold, laneText, pieces } from "../../assets/view/core/reducer.js";
import { layout } from "../../assets/view/core/tree.js";

// Every sentence is there, and empty.
const sentences = new Proxy({}, { get: () => "" });
const words = new Proxy({}, { get: (_, name) => (["explain", "explain_lossy", "formula", "notes"].includes(name) ? sentences : "") });

const texts = JSON.parse(readFileSync(process.argv[2], "utf8"));
const found = texts.map((text) => {
  const { items, line, problem } = readTrace(text);
  const { lanes } = fold(items);
  assert.ok(csvTable(items));
  for (const lane of Object.values(lanes)) {
    const { header } = lane;
    for (const draw of [positions, laneText, forecastSteps]) assert.notEqual(draw(lane), undefined);
    for (const draw of [predictedCurve, overlapBound, speedupCurve]) assert.ok(draw(lanes.plain, lane));
    for (const step of lane.steps) {
      assert.ok(pieces(step) && layout(step).places.length >= step.nodes.length);
      const nodes = [...step.nodes.keys()].slice(0, 20);
      for (const node of step.next ? [-1, ...nodes] : nodes) assert.ok(decide(words, { header, step, node }));
    }
  }
  return [line, problem, items.length];
});
process.stdout.write(JSON.stringify(found));
