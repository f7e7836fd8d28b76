// Several timelines on one clock, and how their race came out. Knows nothing of what is shown.

import { lastBefore } from "../core/timeline.js";

/** @import { Timeline } from "../core/timeline" */

/** A timeline of timelines: its stops are all times at which something happens in one of them. */
export class Course {
  #timelines;
  #at = 0;

  /** @param {Timeline[]} timelines */
  constructor(timelines) {
    this.#timelines = timelines;
    const times = new Set([0, ...timelines.flatMap((timeline) => timeline.stops.map((stop) => stop.time))]);
    this.stops = [...times].sort((one, other) => one - other).map((time) => ({ time }));
  }

  get at() {
    return this.#at;
  }

  get last() {
    return this.stops.length - 1;
  }

  get atEnd() {
    return this.#at >= this.last;
  }

  /** Milliseconds on the common clock at a stop. @param {number} at */
  timeAt(at) {
    return this.stops[at]?.time ?? 0;
  }

  /** The last stop at or before so many milliseconds. @param {number} time */
  stopAt(time) {
    return lastBefore(this.stops, time);
  }

  /** Show a stop: each timeline where it was at that time. @param {number} to */
  seek(to) {
    this.#at = Math.max(0, Math.min(this.last, to));
    const time = this.timeAt(this.#at);
    for (const timeline of this.#timelines) {
      const at = timeline.stopAt(time);
      if (at !== timeline.at || at === timeline.last) timeline.seek(at);
    }
  }
}
