// The one selection of a run, which every part of the view follows: what is pinned, pointed at, or where the player rests.

import { tested } from "../core/reducer.js";

/** @import { Lane, State, Step } from "../core/state" */
/** @import { Found, Subject } from "../parts/page" */

export class Selection {
  /** @type {Subject[]} */
  pins = []; // subjects that stay: one, or two that are compared
  armed = false; // whether the next one that is chosen is compared with the first
  hovered = -1; // the step under the pointer in the strip
  recalled = -1; // the step that the picture shows again
  /** @type {Subject | null} */
  pointed = null; // the subject under the pointer or the focus, or the last one
  /** @type {Subject | null} */
  #latest = null; // the latest refusal
  #run;

  /** run: with its `state`, and whether the player is `resting` at a place of its own @param {{ state: State, resting: boolean }} run */
  constructor(run) {
    this.#run = run;
  }

  /** Forget everything: another run begins. */
  clear() {
    this.unpin();
    this.#latest = null;
  }

  unpin() {
    this.pins = [];
    this.armed = false;
    this.pointed = null;
  }

  /** Compare the next one with the first, or no longer. */
  arm() {
    this.armed = !this.armed;
    this.pointed = null;
  }

  /** What the pointer rests on does not count while the player is moved. */
  release() {
    this.pointed = null;
    this.hovered = -1;
  }

  /** Pin a subject; again: take it off. beside: pin it beside the first @param {Subject} subject @param {{ beside: boolean }} how */
  pin(subject, { beside }) {
    const pinned = this.pins.findIndex((pin) => same(pin, subject));
    if (pinned >= 0) this.pins.splice(pinned, 1);
    else if (this.pins.length && (beside || this.armed)) this.pins = [this.pins[0], subject];
    else this.pins = [subject];
    this.armed = false;
    this.pointed = pinned >= 0 ? null : subject;
  }

  /** The subject of what `find` of the text or of the tree gives. @param {Found} found */
  subject({ token, step, piece, at }) {
    return { ...this.#subjectOf(at, step, piece.node, piece.count), token };
  }

  /** The token that the player's place is about: the one just judged, else the target's own; null without one. */
  placed() {
    const at = (this.#lane?.steps.length ?? 0) - 1;
    const step = this.#lane?.steps[at];
    if (!step) return null;
    const node = step.open ? (tested(step).at(-1) ?? (step.nodes.length ? 0 : null)) : step.next ? -1 : (step.path.at(-1) ?? null);
    return node === null ? null : this.#subjectOf(at, step, node);
  }

  /** Look for the latest refusal. */
  findLatest() {
    const steps = this.#lane?.steps ?? [];
    const at = steps.findLastIndex((step) => step.nodes.some((node) => node.status === "rejected"));
    const step = steps[at];
    this.#latest = step ? this.#subjectOf(at, step, step.nodes.findIndex((node) => node.status === "rejected")) : null;
  }

  /** A token of a step by their numbers in the trace, -1 for the target's own; null if there is none. @param {number} number @param {number} node */
  named(number, node) {
    const at = this.#lane?.steps.findIndex(({ index }) => index === number) ?? -1;
    const step = this.#lane?.steps[at];
    return step && (node < 0 ? step.next : step.nodes[node]) ? this.#subjectOf(at, step, node) : null;
  }

  /** What the inspector is about, and why: pinned, pointed at, at the place where the player rests, or the latest refusal. */
  shown() {
    if (this.pins.length) {
      const second = this.armed && this.pins.length < 2 && this.pointed && !same(this.pointed, this.pins[0]) ? [this.pointed] : [];
      return { why: "pinned", subjects: [...this.pins, ...second] };
    }
    if (this.pointed) return { why: "pointed", subjects: [this.pointed] };
    const placed = this.#run.resting ? this.placed() : null;
    if (placed) return { why: "place", subjects: [placed] };
    return { why: "latest", subjects: this.#latest && this.#latest.at < (this.#lane?.steps.length ?? 0) ? [this.#latest] : [] };
  }

  /** Index in the shown lane of the step that every part lights, or -1. */
  get lit() {
    if (this.hovered >= 0) return this.hovered;
    const { why, subjects } = this.shown();
    const [subject] = why === "latest" ? [] : [this.pointed ?? subjects[0]];
    return subject && subject.lane === this.#run.state.lane ? subject.at : this.recalled;
  }

  get #lane() {
    const { state } = this.#run;
    return state.lanes[state.lane ?? ""] ?? null;
  }

  /** @param {number} at @param {Step} step @param {number} node @param {number} [count] @returns {Subject} */
  #subjectOf(at, step, node, count = 0) {
    const { header } = /** @type {Lane} */ (this.#lane);
    return { lane: this.#run.state.lane, header, at, step, node, count };
  }
}

/** @param {Subject} one @param {Subject} other */
const same = (one, other) => one.lane === other.lane && one.step.index === other.step.index && one.node === other.node && one.count === other.count;
