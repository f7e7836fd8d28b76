// The training card's pure parts, and the whole card on a document that knows textContent only.
import assert from "node:assert/strict";
import { words as all } from "./fixtures.mjs";

class Fake {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, children: [], textContent: "" });
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }
  append(...children) {
    this.children.push(...children.map((child) => (child instanceof Fake ? child : Object.assign(new Fake("#text"), { textContent: child }))));
  }
  replaceChildren(...children) {
    this.children = children;
  }
  all(tag) {
    return [...(this.tag === tag ? [this] : []), ...this.children.flatMap((child) => child.all(tag))];
  }
  get text() {
    return [this.textContent, ...this.children.map((child) => child.text)].join(" ");
  }
}
globalThis.document = { body: null, createElement: (tag) => new Fake(tag), createElementNS: (_, tag) => new Fake(tag) };
globalThis.ResizeObserver = globalThis.MutationObserver = class {
  observe() {}
};

const { curve, facts, mountCard, results } = await import("../../../assets/view/methods/card.js");
const words = all.card;

// Results by position are a table of their own; what has no word keeps its name.
const { plain, placed } = results({ loss: 0.5, greedy_agreement: 0.75, greedy_agreement_1: 0.8, greedy_agreement_2: 0.5, overlap_2: 0.25, tokens: 4321, new_thing: 2.5 }, words);
assert.deepEqual(plain.map(([, value]) => value), ["0.500", "75.0 %", "4,321", "2.500"]);
assert.equal(plain[3][0], "new thing");
assert.deepEqual(placed.heads, ["token 1", "token 2"]);
assert.deepEqual(placed.rows, [[words.names.greedy_agreement, "80.0 %", "50.0 %"], [words.names.overlap, "–", "25.0 %"]]);

// A fact that the card lacks is left out; seed 0 is a fact.
assert.deepEqual(facts({ seed: 0, layers: [], machine: "", tokens_seen: 12345 }, words), [[words.facts.tokens_seen, "12,345"], [words.facts.seed, "0"]]);

// Both series lie inside the axes, which end at round numbers; nothing at all is drawn at the axis' end.
const drawn = curve({ losses: [[10, 4], [20, 2], [40, 1.2]], checks: [[40, 0]] }, words, {});
assert.deepEqual(drawn.traces.map((trace) => trace.x), [[10, 20, 40], [40]]);
assert.equal(drawn.y.type, "log");
for (const { x, y } of drawn.traces) {
  assert.ok(x.every((step) => step >= drawn.x.range[0] && step <= drawn.x.range[1]));
  assert.ok(y.every((nats) => Math.log10(nats) >= drawn.y.range[0] - 1e-9 && Math.log10(nats) <= drawn.y.range[1] + 1e-9));
}
assert.equal(drawn.traces[1].y[0], drawn.y.tickvals[0]);
assert.ok(drawn.label.includes("loss 1.2 at"));

// The card as the page shows it.
const shown = (value) => {
  const element = new Fake("div");
  mountCard(element, { read: () => JSON.stringify(value), watch: () => {}, words: all });
  return element.children[0];
};
const hostile = "<img src=x onerror=alert(1)>";
const card = {
  kind: "medusa", target: "tiny", precision: "nf4", layers: [0, 3], data: [`${hostile} (MIT)`], tokens_seen: 99, minutes: 45.2, seed: 7,
  machine: "a box", recipe: { batch: "4096 tokens" }, results: { overlap_1: 0.5 }, losses: [[10, 2], [20, 1]], checks: [[20, 1.1]],
};
const page = shown({ card });
for (const said of [words.kinds.medusa, "tiny (nf4)", `${hostile} (MIT)`, "4096 tokens", "a box", "45", "0, 3", "50.0 %"]) assert.ok(page.text.includes(said), said);
assert.deepEqual(page.all("img"), []);
assert.equal(page.all("svg").length, 2); // samples of both series in the key
// A card of before there were curves, and a method without one.
assert.deepEqual(shown({ card: { target: "old", results: {} } }).all("svg"), []);
assert.ok(shown({ none: "Nothing to train." }).text.includes("Nothing to train."));
