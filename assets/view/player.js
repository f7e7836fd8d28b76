// Plays recorded events on their own clock: the plain run stands at once, the speculative run takes its true time.

/** Milliseconds at which each event of a recording is shown. */
export function schedule(items) {
  const shown = items.some((item) => item.lane === "speculative") ? "speculative" : "plain";
  let now = 0;
  return items.map((item) => {
    if (item.lane !== shown) return 0;
    if (item.type === "started") now = 0;
    if (item.type === "drafted") return (now + item.draft_seconds) * 1000;
    if (item.type === "verified") now = item.elapsed_seconds;
    return now * 1000;
  });
}

export class Player {
  #show;
  #items = [];
  #times = [];
  #next = 0;
  #started = 0;
  #frame = 0;

  /** show(items): called with the events that are due. */
  constructor(show) {
    this.#show = show;
  }

  get playing() {
    return this.#next < this.#items.length;
  }

  stop() {
    cancelAnimationFrame(this.#frame);
    this.#items = [];
    this.#next = 0;
  }

  play(items) {
    this.stop();
    this.#items = items;
    this.#times = schedule(items);
    this.#started = performance.now();
    this.#tick();
  }

  /** Show all that is left at once. */
  finish() {
    cancelAnimationFrame(this.#frame);
    const rest = this.#items.slice(this.#next);
    this.#next = this.#items.length;
    if (rest.length) this.#show(rest);
  }

  #tick() {
    const now = performance.now() - this.#started;
    const due = [];
    while (this.#next < this.#items.length && this.#times[this.#next] <= now) {
      due.push(this.#items[this.#next]);
      this.#next += 1;
    }
    if (due.length) this.#show(due);
    if (this.playing) this.#frame = requestAnimationFrame(() => this.#tick());
  }
}
