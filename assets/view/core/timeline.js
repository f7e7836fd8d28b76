// A place in a run, and every way to move it. Live and recorded runs are the same list of events that may still grow.
//
// A stop is a place where a run can be looked at: a proposal, each token of it as the target judges it, and the
// judged step. Stop 0 is before the first. What is shown at a stop is the fold of the shown variant's events up to it.
// The other variant is compared with as a whole: plain decoding may be written before the drafted run or next to it.

import { isEvent } from "./lines.js";
import { emptyState, reduce, tested } from "./reducer.js";

/** @import { Event, Verified } from "../types" */
/** @import { Line, PageLine, State, Stop } from "./state" */
const SHOWN = ["speculative", "plain"];

/** Stops on a clock, one of which is shown. */
class Clock {
  /** @type {{ time: number }[]} */
  stops = [];
  at = 0; // index of the stop that is shown

  get last() {
    return this.stops.length - 1;
  }

  get atEnd() {
    return this.at >= this.last;
  }

  /** Milliseconds on the clock at a stop. */
  timeAt(/** @type {number} */ at) {
    return this.stops[at]?.time ?? 0;
  }

  /** The last stop at or before so many milliseconds. */
  stopAt(/** @type {number} */ time) {
    return Math.max(0, this.stops.findLastIndex((stop) => stop.time <= time));
  }
}

export class Timeline extends Clock {
  /** @type {PageLine[]} */
  preface = []; // the page's own lines: they stand at every stop
  /** @type {Event[]} */
  events = [];
  /** @type {Stop[]} */
  stops = [];
  until = 0; // milliseconds at which the last variant ends: plain decoding writes on when the drafted one is done
  held = false; // whether the end stays behind although it is where it stands
  /** @type {Event[]} */
  #own = []; // events of the shown variant
  #state = emptyState();
  #applied = 0; // of those, the ones that are in the state
  /** @type {State | null} */
  #half = null; // the state at a stop within a step

  /** The fold of everything up to the stop. */
  get state() {
    return this.#half ?? this.#state;
  }

  /**
   * Add lines as they come; the place stays, but at the end it moves with them when `follow`.
   * @param {Line[]} items @param {{ follow: boolean }} how
   */
  push(items, { follow }) {
    const before = this.shown;
    const following = follow && this.atEnd && !this.held;
    for (const item of items) {
      if (isEvent(item)) this.events.push(item);
      else this.preface.push(item);
      if (item.type === "verified") this.until = Math.max(this.until, 1000 * item.elapsed_seconds);
    }
    if (before !== this.shown) this.#restart();
    else {
      for (const item of items) if (!isEvent(item) || item.lane !== before) reduce(this.#state, item);
    }
    this.#scan(items);
    if (before !== this.shown) this.at = Math.min(this.at, Math.max(0, this.last));
    this.seek(following || !this.stops.length ? this.last : this.at);
  }

  /** The lane that is played: the speculative one once it has begun. */
  get shown() {
    return SHOWN.find((name) => this.events.some((item) => item.lane === name)) ?? null;
  }

  /** Show a stop. @param {number} to */
  seek(to) {
    const at = Math.max(0, Math.min(this.last, to));
    const count = at >= this.last ? this.#own.length : this.stops[at].count; // the end of the variant belongs to its last stop
    if (count < this.#applied) this.#rewind();
    this.at = at;
    for (; this.#applied < count; this.#applied += 1) reduce(this.#state, this.#own[this.#applied]);
    const stop = this.stops[at];
    this.#half = stop?.judged ? this.#judged(/** @type {Verified} */ (this.#own[stop.count]), stop.judged) : null;
  }

  // A half judged step stands where the drafted one stood, in a copy: the state itself keeps the drafted one.
  /** @param {Verified} event @param {number} count */
  #judged(event, count) {
    const { source, lanes } = this.#state;
    const lane = lanes[event.lane];
    const copied = lane && { ...lane, steps: [...lane.steps] };
    return reduce({ ...this.#state, source: { ...source }, lanes: { ...lanes, [event.lane]: copied } }, { ...event, type: "judging", count });
  }

  /**
   * The stop one token, one round or one rejection away. by: 1 or -1; what: "token", "round" or "rejection"
   * @param {"token" | "round" | "rejection"} what @param {number} by
   */
  neighbour(what, by) {
    for (let at = this.at + by; at >= 0 && at <= this.last; at += by) {
      const stop = this.stops[at];
      if (what === "token" || at === 0) return at;
      if (what === "round" && stop.kind === "judged") continue;
      if (what === "round" && stop.kind === "verified") return at;
      if (what === "rejection" && stop.rejection) return at;
    }
    return what === "rejection" ? this.at : by > 0 ? this.last : 0;
  }

  /** The stop at which a step of the shown lane has been judged, or -1. @param {number} step */
  stopOf(step) {
    return this.stops.findIndex((stop) => stop.kind === "verified" && stop.step === step);
  }

  /** Number in the trace of the step at a place of the shown lane, or -1; places count all judged steps in their order. @param {number} place */
  stepAt(place) {
    return this.stops.filter((stop) => stop.kind === "verified")[place]?.step ?? -1;
  }

  /** To before the first event of the shown variant. */
  #rewind() {
    const { shown } = this;
    this.#state = emptyState();
    for (const item of [...this.preface, ...this.events.filter(({ lane }) => lane !== shown)]) reduce(this.#state, item);
    this.#applied = 0;
  }

  #now = 0;

  /** Another variant is shown from now on. */
  #restart() {
    this.stops = [];
    this.#own = [];
    this.#now = 0;
    this.#rewind();
  }

  /** Find the stops of new events. @param {Line[]} items */
  #scan(items) {
    const { shown } = this;
    for (const item of this.#own.length ? items : this.events) {
      if (!isEvent(item) || item.lane !== shown) continue;
      this.#own.push(item);
      this.#stop(item, this.#own.length);
    }
  }

  /** @param {Event} item @param {number} count */
  #stop(item, count) {
    if (!this.stops.length) this.stops.push({ kind: "begun", count: item.type === "started" ? count : count - 1, judged: 0, step: -1, time: 0, rejection: false });
    if (item.type === "drafted" && item.nodes.length) {
      const time = (this.#now + (item.draft_seconds ?? 0)) * 1000;
      this.stops.push({ kind: "drafted", count, judged: 0, step: item.step, time, rejection: false });
    }
    if (item.type !== "verified") return;
    this.#now = item.elapsed_seconds;
    const time = this.#now * 1000;
    const order = tested(item);
    const rejection = item.nodes.some((node) => node.status === "rejected");
    for (let judged = 1; judged <= order.length; judged += 1) {
      this.stops.push({ kind: "judged", count: count - 1, judged, step: item.step, time, rejection: false });
    }
    this.stops.push({ kind: "verified", count, judged: 0, step: item.step, time, rejection });
  }
}

// ---- Several timelines on one clock, and how their race came out. Knows nothing of what is shown

/** A timeline of timelines: its stops are all times at which something happens in one of them. */
export class Course extends Clock {
  #timelines;

  constructor(/** @type {Timeline[]} */ timelines) {
    super();
    this.#timelines = timelines;
    const times = new Set([0, ...timelines.flatMap((timeline) => timeline.stops.map((stop) => stop.time))]);
    this.stops = [...times].sort((one, other) => one - other).map((time) => ({ time }));
  }

  /** Show a stop: each timeline where it was at that time. @param {number} to */
  seek(to) {
    this.at = Math.max(0, Math.min(this.last, to));
    const time = this.timeAt(this.at);
    for (const timeline of this.#timelines) {
      const at = timeline.stopAt(time);
      if (at !== timeline.at || at === timeline.last) timeline.seek(at);
    }
  }
}
