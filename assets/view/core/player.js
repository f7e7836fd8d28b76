// Moves a timeline on the run's own clock, at a chosen speed. Knows time and nothing of what is shown.

/**
 * @import { Course, Timeline } from "./timeline"
 * @typedef {Pick<Course, keyof Course> & Partial<Pick<Timeline, "held" | "until" | "neighbour">>} Playable
 *   a list of stops with one that is shown: what a player moves
 */

export const SPEEDS = [0.25, 0.5, 1, 2, 4];

export class Player {
  speed = 1;
  pace = 1; // seconds of the run in one of the player's, at speed 1
  moved;
  /** Called with each frame while it plays. @type {(() => void) | null} */
  ticked = null;
  #frame = 0;
  #from = { wall: 0, time: 0 };

  /**
   * moved(): called after each move of the timeline and each change between playing and resting.
   * @param {Playable} timeline @param {() => void} moved
   */
  constructor(timeline, moved) {
    this.timeline = timeline;
    this.moved = moved;
  }

  get playing() {
    return this.#frame !== 0;
  }

  /** Seconds of the run in one of the player's. */
  get rate() {
    return this.speed * this.pace;
  }

  /** Milliseconds of the run's clock: between two stops while it plays, without a bound at the end. */
  get now() {
    const { timeline } = this;
    if (this.playing) return this.#from.time + (performance.now() - this.#from.wall) * this.rate;
    return timeline.atEnd ? Infinity : timeline.timeAt(timeline.at);
  }

  /** Go on from where it stands; from the beginning when it stands at the end. */
  play() {
    if (this.playing) return;
    if (this.timeline.atEnd) this.timeline.seek(0);
    this.playFrom(this.timeline.timeAt(this.timeline.at));
  }

  /** Play from a time on the run's clock. @param {number} time milliseconds */
  playFrom(time) {
    this.timeline.seek(this.timeline.stopAt(time));
    this.timeline.held = false;
    this.#from = { wall: performance.now(), time };
    this.#frame ||= requestAnimationFrame(() => this.#tick());
    this.moved();
  }

  pause() {
    if (!this.playing) return;
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.moved();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  /** Move to a stop; what was playing goes on from there. @param {number} at */
  seek(at) {
    this.timeline.held = false;
    this.timeline.seek(at);
    if (this.playing) this.#begin();
    this.moved();
  }

  /** Rest, and take one step. See `Timeline.neighbour`. @param {"token" | "round" | "rejection"} what @param {number} by */
  step(what, by) {
    this.pause();
    this.seek(this.timeline.neighbour?.(what, by) ?? this.timeline.at);
  }

  setSpeed(/** @type {number} */ speed) {
    this.speed = speed;
    if (this.playing) this.#begin();
    this.moved();
  }

  #begin() {
    this.#from = { wall: performance.now(), time: this.timeline.timeAt(this.timeline.at) };
  }

  #tick() {
    const timeline = this.timeline;
    const at = timeline.stopAt(this.now);
    const due = at > timeline.at;
    if (due) timeline.seek(at);
    const over = timeline.atEnd && this.now >= (timeline.until ?? 0);
    this.#frame = over ? 0 : requestAnimationFrame(() => this.#tick());
    if (due || !this.playing) this.moved();
    this.ticked?.();
  }
}
