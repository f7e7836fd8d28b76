// The lessons' questions on the recorded runs, and the rejection rule by hand. Prints what it found as JSON.
import assert from "node:assert/strict";
import { LESSONS, liveState, runsOf } from "../../../assets/view/lessons/curriculum.js";
import { passSeconds } from "../../../assets/view/lessons/evidence.js";
import { two } from "../../../assets/view/core/metrics.js";
import { EXAMPLE, draw, gap, normal, outcome } from "../../../assets/view/lessons/threewords.js";
import { randomFrom, recordedLanes } from "./fixtures.mjs";

const runs = recordedLanes();

// Every answer lies on its scale or among its options, and every step that is shown is one of the run.
const found = LESSONS.map((lesson) => ({
  id: lesson.id,
  runs: lesson.runs,
  questions: lesson.questions.map((question) => {
    const { id, options = [], scale = null } = question;
    const names = runsOf(lesson, question);
    const out = { id, options, scale, runs: names };
    if (!names.every((name) => runs.has(name))) return out;
    const lanes = names.map((name) => runs.get(name));
    const drawn = question.reveal(lanes);
    const where = `${lesson.id}, ${id}`;
    if (scale) assert.ok(drawn.answer >= scale.min && drawn.answer <= scale.max, `${where}: ${drawn.answer} is off the scale`);
    else assert.ok(options.includes(drawn.answer), `${where}: ${drawn.answer}`);
    for (const value of Object.values(drawn.values)) assert.ok(!["–", "undefined", "NaN", "Infinity"].includes(String(value)), where);
    for (const { share } of drawn.bars ?? []) assert.ok(share >= 0 && share <= 1, where);
    if (drawn.step !== undefined) assert.ok(lanes[0].fast.steps.some((step) => step.index === drawn.step), where);
    return { ...out, answer: scale ? two(drawn.answer) : drawn.answer, values: drawn.values, bars: drawn.bars ?? [] };
  }),
}));
assert.equal(found.length, 8);

// A lesson names no run but its own, and where two are said to answer the same prompt, they do.
const promptOf = (name) => (runs.get(name).fast ?? runs.get(name).plain).header.prompt;
for (const { id, runs: own, questions, moments } of LESSONS) {
  const named = [...Object.values(moments).flatMap((moment) => moment.runs), ...questions.flatMap((question) => question.runs ?? [])];
  assert.deepEqual(named.filter((name) => !own.includes(name)), [], id);
}
for (const names of [["04-tree", "01-guess-and-check"], ["13-jetspec", "12-dspark"]]) assert.equal(...names.map(promptOf));

// Costs between two measured counts of rows lie on their line; beyond them nothing is known.
const header = { verify_costs: [[1, 0.02], [5, 0.04]] };
assert.ok(Math.abs(passSeconds(header, 3) - 0.03) < 1e-12);
assert.equal(passSeconds(header, 5), 0.04);
assert.ok(Number.isNaN(passSeconds(header, 6)) && Number.isNaN(passSeconds({}, 1)));

// The Play tab is set to what was recorded, and to the lesson's change.
const settings = { method: "ngram", max_new_tokens: 96, sampling: { temperature: 1, seed: 3 } };
assert.deepEqual(liveState({ prompt: "x", settings }, { fallback: true }), {
  prompt: "x", method: "ngram", tokens: 96, temperature: 1, seed: 3, fallback: true, memory: false, top_k: 0, top_p: 1, penalty: 1,
});

// The rule gives the target back for any draft, and its parts are what docs/algorithm.md works out.
const equal = (left, right) => left.forEach((value, i) => assert.ok(Math.abs(value - right[i]) < 1e-12, `${left} ${right}`));
const example = outcome(EXAMPLE.target, EXAMPLE.draft);
equal(example.accept, [1, 0.5, 1]);
equal(example.residual, [1, 0, 0]);
for (const weights of [[[5, 3, 2], [2, 6, 2]], [[1, 0, 0], [0, 5, 5]], [[2, 2, 2], [2, 2, 2]], [[0, 0, 0], [1, 9, 0]], [[3, 3, 4], [0, 0, 7]]]) {
  const [target, draft] = weights.map(normal);
  equal(outcome(target, draft).result, target);
}
// Drawing the replacement from the target itself does not.
equal(outcome(EXAMPLE.target, EXAMPLE.draft, { wrong: true }).result, [0.35, 0.39, 0.26]);

// The sampler follows the rule and comes to the same, for the right rule and for the wrong one.
const random = randomFrom(1);
for (const wrong of [false, true]) {
  const rule = outcome(EXAMPLE.target, EXAMPLE.draft, { wrong });
  const counts = [0, 0, 0];
  for (let i = 0; i < 40_000; i += 1) {
    const drawn = draw(EXAMPLE.draft, rule, random);
    assert.equal(drawn.kept, drawn.uniform < rule.accept[drawn.drafted]);
    counts[drawn.result] += 1;
  }
  assert.ok(gap(counts.map((count) => count / 40_000), rule.result) < 0.01);
}
assert.equal(draw([0, 1, 0], outcome([0, 0, 1], [0, 1, 0]), () => 0.999999).result, 2);

console.log(JSON.stringify(found));
