// Hands a run's state to every part, lights the same step in all of them, and says what is new to a screen reader.

import { acceptRate, speedup, tokensPerSecond, two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { calm } from "../parts/dom.js";
import { phaseOf } from "./layout.js";

/** @import { Subject, Words } from "../parts/page" */
/** @import { View } from "./view" */

export class Drawing {
  #view;
  #words;
  #frame = 0;
  #announced = ""; // the phase that a screen reader knows
  /** @type {Subject | null} */
  #summarized = null; // the subject whose summary stands below the tree
  /** @type {(Element | null)[]} */
  #lit = []; // elements that are lit
  /** @type {Subject[]} */
  #marked = []; // subjects that are marked as pinned

  /** @param {View} view @param {Words} words */
  constructor(view, words) {
    this.#view = view;
    this.#words = words;
    this.drawNumbers = calm(250, () => view.numbers.render(view.state));
    this.drawTree = calm(120, () => view.tree.render(view.state, view.selection.lit));
    this.drawHighlight = calm(150, () => view.charts.highlight(this.#litStep));
    this.drawPlaced = calm(100, () => this.#drawInspector());
    this.drawLatest = calm(1500, () => this.#findLatest());
    this.announceWaiting = calm(10_000, () => view.state.source.waiting && view.layout.announce(view.state.source.waiting));
  }

  /** Another run begins. */
  clear() {
    this.#announced = "";
    this.#view.text.clear();
    this.#view.strip.clear();
  }

  /** Paint with the next frame. */
  soon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.paint();
    });
  }

  paint() {
    const { state, layout, player, timeline, running, recorded, text, strip, stale } = this.#view;
    text.render(state);
    this.#view.beside.render(state, player.now);
    this.#view.picture.render(state, { moving: this.#view.moving });
    strip.render(state);
    this.#view.transport.render({ live: running });
    const phase = stale ? "stale" : phaseOf(state, { playing: player.playing, atEnd: timeline.atEnd, running, held: timeline.held });
    layout.render(state, { phase, rate: player.rate, running, recorded, stale, some: this.#view.events.length > 0 });
    this.#view.next.render(phase);
    this.#announce(phase);
    if (phase === "waiting") this.announceWaiting();
    this.inspect();
    strip.follow();
    this.drawTree();
    this.drawNumbers();
    // What computes may be on this machine: while it answers, its time is not spent on charts.
    if (!(running && this.#view.lane?.steps.length)) this.#view.charts.render(state);
    this.drawLatest();
  }

  #announce(/** @type {string} */ phase) {
    if (this.#announced === phase) return;
    this.#announced = phase;
    const { plain, speculative } = this.#view.state.lanes;
    this.#view.layout.announce(fill(this.#words.announce[phase] ?? "", {
      speedup: two(speedup(plain, speculative)),
      fast: two(tokensPerSecond(speculative)),
      plain: two(tokensPerSecond(plain)),
      accepted: two(speculative ? (acceptRate(speculative) ?? 0) * 100 : null),
    }));
  }

  /** Show what is selected. */
  inspect() {
    const { selection, layout, lane } = this.#view;
    const { why, subjects } = selection.shown();
    if (why === "place") this.drawPlaced();
    else this.#drawInspector();
    layout.arrange({ comparing: subjects.length > 1, trees: Boolean(lane?.trees) });
    this.light();
  }

  #drawInspector() {
    const { selection, inspector, tree, layout, state } = this.#view;
    for (const pin of this.#marked) pin.token?.classList.remove("sd-pinned");
    this.#marked = [...selection.pins];
    for (const pin of this.#marked) (pin.token ??= this.#view.text.token(pin.at, pin.node))?.classList.add("sd-pinned");
    const { why, subjects } = selection.shown();
    inspector.render(subjects, { why, armed: selection.armed, source: state.source.kind });
    const subject = why === "place" ? subjects[0] : selection.pointed;
    if (subject === this.#summarized) return;
    this.#summarized = subject;
    const sentence = subject ? inspector.summary(subject) : "";
    tree.describe(sentence);
    if (why === "place") layout.announce(sentence);
  }

  /** Light the same step in the text, the strip, the tree and the charts. */
  light() {
    const { selection, text, strip } = this.#view;
    const at = selection.lit;
    const parts = [text.steps.at(at), strip.steps.at(at)];
    if (parts.every((part, i) => part === this.#lit[i])) return;
    for (const part of this.#lit) part?.classList.remove("sd-lit");
    for (const part of parts) part?.classList.add("sd-lit");
    this.#lit = parts;
    this.drawTree();
    this.drawHighlight();
  }

  get #litStep() {
    const { state, lane, selection } = this.#view;
    return state.lane === "speculative" ? (lane?.steps[selection.lit]?.index ?? -1) : -1;
  }

  #findLatest() {
    this.#view.selection.findLatest();
    if (!this.#view.resting) this.inspect();
  }
}
