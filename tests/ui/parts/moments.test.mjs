// The lessons' moments: what they count on the recorded runs, and by hand.
import assert from "node:assert/strict";
import { LESSONS } from "../../../assets/view/lessons/curriculum.js";
import { laneText } from "../../../assets/view/core/reducer.js";
import { gap } from "../../../assets/view/lessons/threewords.js";
import { agreement, between, rejections, tickets, winner } from "../../../assets/view/lessons/tickets.js";
import { chance, choices, kept as keptWords, spread, wordsOf } from "../../../assets/view/core/guess.js";
import { challenge, gain, offers, stretch } from "../../../assets/view/lessons/game.js";
import { comparable, cuts, likeness, passTimes, perToken, shares, trend } from "../../../assets/view/lessons/moments.js";
import { near, randomFrom, recordedLanes } from "./fixtures.mjs";

const runs = recordedLanes();

// Each lesson has a moment of its own, made from runs that are there.
const moments = LESSONS.flatMap(({ moments: own }) => Object.values(own));
assert.equal(new Set(moments).size, 8);
for (const moment of moments) for (const name of moment.runs) assert.ok(runs.has(name), name);

// At every position that is offered, both models' probabilities are whole.
const random = randomFrom(7);
const places = rejections(runs.get("03-story-sampled").fast);
assert.ok(places.length >= 5);
for (const { words, target, draft } of places) {
  assert.ok(words.length >= 3 && target.length === words.length + 1 && draft.length === target.length);
  for (const probs of [target, draft]) near(probs.reduce((sum, prob) => sum + prob, 0), 1, 1e-6);
}
const [{ target, draft }] = places;

// Both models draw the same token as often as the formula says; the more alike they are, the more often.
for (const share of [0, 0.5, 1]) {
  const guess = between(target, draft, share);
  const { dice, tickets: same, most } = agreement(target, guess);
  let agreed = 0;
  const winners = Array(target.length).fill(0);
  for (let i = 0; i < 20_000; i += 1) {
    const drawn = tickets(target.length, random);
    agreed += winner(target, drawn) === winner(guess, drawn);
    winners[winner(target, drawn)] += 1;
  }
  near(agreed / 20_000, same, 0.015);
  assert.ok(gap(winners.map((one) => one / 20_000), target) < 0.02);
  assert.ok(dice < same && same <= most + 1e-9 && same >= most / (2 - most) - 1e-9);
}

// Every method that was recorded without sampling wrote plain decoding's text, and one that does not is found out.
const known = Object.fromEntries([...runs].map(([name, { plain, fast }]) => [name, { prompt: "", settings: (fast ?? plain).header.settings }]));
const names = comparable(known);
assert.ok(names.length >= 13 && !names.includes("03-story-sampled") && !names.includes("05-plain"));
const found = names.map((name) => likeness(runs.get(name)));
assert.equal(new Set(found.map(({ method }) => method)).size, names.length);
for (const { method, tokens, same, steps } of found) assert.ok(same === tokens && steps < tokens, method);
const sampled = likeness(runs.get("03-story-sampled"));
assert.ok(sampled.same < sampled.tokens);

// Drafts cut short: at full length what was recorded, in tokens; longer drafts never keep less.
for (const name of ["06-too-far", "04-tree"]) {
  const { fast } = runs.get(name);
  const all = cuts(fast);
  const drafted = fast.steps.filter(({ nodes }) => nodes.length);
  assert.equal(all.at(-1).kept, drafted.reduce((sum, { path }) => sum + path.length, 0));
  assert.equal(all.at(-1).drafted, fast.drafted);
  all.forEach((one, i) => i && assert.ok(one.kept >= all[i - 1].kept && one.cost > all[i - 1].cost));
}
// By hand: two steps of three nodes, one node kept and none; a level takes a second, a pass 2 s for a row and 3 s for four.
const step = (path) => ({ open: false, nodes: [-1, 0, 1].map((parent) => ({ parent })), path, draftSeconds: 3 });
const [one, , three] = cuts({ header: { verify_costs: [[1, 2], [2, 2], [3, 3], [4, 3]] }, steps: [step([0]), step([])] });
assert.deepEqual([one.tokens, one.cost, one.drafted], [1.5, 1.5, 2]);
assert.deepEqual([three.tokens, three.cost, three.speedup], [1.5, 3, 0.5]);

// Passes, milliseconds and shares.
assert.deepEqual(passTimes({ verify_costs: [[1, 0.5], [4, 1]] }, 4), { apart: 2000, together: 1000 });
const each = perToken({ tokens: 10, elapsed: 1, draftSeconds: 0.25, verifySeconds: 0.5 });
assert.deepEqual(each, { whole: 100, draft: 25, verify: 50, other: 25 });
const { fast: online } = runs.get("15-online");
const parts = shares(online, 5);
assert.equal(parts.reduce((sum, { kept }) => sum + kept, 0), online.accepted);
assert.equal(parts.reduce((sum, { drafted }) => sum + drafted, 0), online.drafted);
assert.equal(parts[0].from, 0);
// A run shows that its draft learns only by more than two standard errors; this one does not.
assert.equal(trend(parts[0], parts[4]).name, "unclear");
const tenth = { kept: 10, drafted: 100, error: 0.03 };
const trends = [18, 19, 1].map((kept) => trend(tenth, { ...tenth, kept }).name);
assert.deepEqual(trends, ["unclear", "rises", "falls"]);

// The visitor's words are compared by their letters; the first other one ends the draft. A link names text and score.
assert.deepEqual(wordsOf(" The cat,  sat.\n"), ["The ", "cat,  ", "sat.\n"]);
assert.equal(keptWords(["the", "Cat", "sat"], ["The ", "cat,  ", "sat.\n"]), 3);
assert.equal(keptWords(["the", "dog", "sat"], ["The ", "cat,  ", "sat.\n"]), 1);
assert.equal(keptWords(["the", "cat"], ["The "]), 1);
assert.deepEqual(challenge("#draft=20-larger-model.50.9.16"), { place: 3, kept: 9, count: 16 });
for (const wrong of ["", "#trace=abc", "#draft=unknown.10.9.16", "#draft=20-larger-model.11.9.16", "#draft=20-larger-model.10.<b>.16"]) assert.equal(challenge(wrong), null);
const { plain: weather, fast: drafted } = runs.get("20-larger-model");
const first = choices(weather, []);
assert.equal(first.own.prob, 0.9281777);
assert.deepEqual(chance(first, "weather"), { prob: 0.9281777, listed: true });
assert.deepEqual(chance(first, "climate"), { prob: 0.01510619, listed: true });
assert.deepEqual(chance(first, "penguin"), { prob: 0.001892741, listed: false });

// To choose from: the target's own word is always there, beside others; the drafter's score on a whole text is the run's own.
const weatherWords = wordsOf(laneText(weather));
assert.ok(chance(choices(weather, weatherWords.slice(0, 9)), "temperatures").prob < 0.1); // not that of "temperature", 0.85
for (let at = 10; at < 100; at += 10) {
  offers(weather, weatherWords, at).forEach((words, i) => assert.ok(words.length > 1 && new Set(words).size === words.length && words.some((word) => keptWords([word], [weatherWords[at + i]]) === 1)));
}
assert.deepEqual(stretch(drafted, 0, Infinity), { kept: drafted.accepted, count: drafted.drafted, rounds: drafted.steps.length });
const halves = [[0, 300], [300, Infinity]].map(([from, to]) => stretch(drafted, from, to).kept);
assert.ok(halves.every((kept) => kept > 0) && halves[0] + halves[1] === drafted.accepted);

// A class beside the target: its own word and listed ones by name, what one phone alone guessed among the others; all are counted.
const { rows, total, overlap } = spread(first, weatherWords[0], [["weather", 3], ["Weather.", 1], ["climate", 2], ["penguin", 2], ["<b>", 1], ["rude", 1]]);
assert.equal(total, 10);
assert.deepEqual(rows[0], { word: "Weather", prob: 0.9281777, count: 4, kept: true });
assert.deepEqual(rows.map((row) => row.count).filter(Boolean), [4, 2, 2, 2]);
assert.deepEqual([rows.find(({ word }) => word === "penguin").prob, rows.at(-1).word], [null, ""]);
near(overlap, 0.4 + 0.01510619);
assert.equal(spread(first, weatherWords[0], []).overlap, 0);
assert.ok(gain(weather.header, { kept: 12, rounds: 4 }) > gain(weather.header, { kept: 4, rounds: 4 }));
assert.ok(gain(weather.header, { kept: 0, rounds: 4 }) < 1);
