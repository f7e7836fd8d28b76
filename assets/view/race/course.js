// Several timelines on one clock, and how their race came out. Knows nothing of what is shown.

import { lastBefore } from "../core/timeline.js";

/** A timeline of timelines: its stops are all times at which something happens in one of them. */
export class Course {
  #timelines;
  #at = 0;

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

  /** Milliseconds on the common clock at a stop. */
  timeAt(at) {
    return this.stops[at]?.time ?? 0;
  }

  /** The last stop at or before so many milliseconds. */
  stopAt(time) {
    return lastBefore(this.stops, time);
  }

  /** Show a stop: each timeline where it was at that time. */
  seek(to) {
    this.#at = Math.max(0, Math.min(this.last, to));
    const time = this.timeAt(this.#at);
    for (const timeline of this.#timelines) {
      const at = timeline.stopAt(time);
      if (at !== timeline.at || at === timeline.last) timeline.seek(at);
    }
  }
}
