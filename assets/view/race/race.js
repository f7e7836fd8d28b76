// The race: lanes that were run one after the other, replayed together on one clock.

import { isEvent, readLines } from "../core/lines.js";
import { Player } from "../core/player.js";
import { fetchFile } from "../core/recorded.js";
import { fill } from "../core/sentence.js";
import { closest, el, firstSeen } from "../parts/dom.js";
import { Head, Legend, problemBlock } from "../parts/blocks.js";
import { InspectorView } from "../parts/inspector.js";
import { emptyState } from "../core/reducer.js";
import { Selection } from "../play/selection.js";
import { Controls } from "./controls.js";
import { Course } from "../core/timeline.js";
import { LaneView } from "./lane.js";
import { Result, standings } from "./result.js";

/** @import { Given, Words } from "../parts/page" */
/** @import { LaneTurn, Line } from "../core/state" */

/** Build the race in `element` from a stream; `words` are its own and the view's as `view`. @param {HTMLElement} element @param {Given} given */
export function mountRace(element, { read, watch, words, say = (text) => text }) {
  const race = new RaceView(element, words, say);
  readLines({ read, watch }, (items, restarted) => race.take(items, restarted));
  return race;
}

class RaceView {
  #words;
  #say; // what Python calls a lane, in the page's language
  /** @type {LaneView[]} */
  #lanes = [];
  /** @type {number | null} */
  #at = null; // the lane whose events come now
  #source = { kind: "live", waiting: "", prompt: "" };
  #state = "empty"; // fetching, missing, warming, running, ready: see words.phase
  /** @type {ReturnType<typeof standings> | null} */
  #result = null; // of the race, once it has been run
  #course = new Course([]);
  #frame = 0;
  #selection = new Selection({ state: emptyState(), resting: false }); // tokens of the lanes that are inspected
  #stream = 0; // counts the streams, so that what was fetched for an earlier one is dropped

  /** @param {HTMLElement} element @param {Words} words @param {(text: string) => string} say */
  constructor(element, words, say) {
    this.#words = words;
    this.#say = say;
    this.player = new Player(this.#course, () => this.#changed());
    this.head = new Head();
    this.problems = el("div", { class: "sd-problems" });
    this.list = el("div", { class: "sd-race-list" });
    this.legend = new Legend(words.view);
    this.controls = new Controls(this.player, words);
    this.result = new Result(words);
    this.inspector = new InspectorView(words.view, { unpin: () => this.#inspect(() => this.#selection.unpin()), compare: () => this.#inspect(() => this.#selection.arm()) });
    this.inspected = el("p", { class: "sd-race-inspected" });
    this.inspection = el("div", { class: "sd-race-inspection", hidden: true }, this.inspected, this.inspector.root);
    this.root = el("section", { class: "sd-race", "aria-label": words.label },
      this.head.root, this.problems, this.head.prompt, this.list, this.controls.root, this.legend.root, this.inspection, this.result.root);
    element.replaceChildren(this.root);
    this.#listen();
    this.#paint();
  }

  /** New lines of the stream; `restarted` when they begin another one. @param {Line[]} items @param {boolean} restarted */
  take(items, restarted) {
    if (restarted) this.#reset();
    for (const item of items) this.#item(item);
    if (items.length || restarted) this.#changed();
  }

  #item(/** @type {Line} */ item) {
    if (isEvent(item)) this.#lanes[this.#at ?? -1]?.timeline.push([item], { follow: true });
    if (item.type === "open") this.#source = { kind: item.source, waiting: item.waiting ?? "", prompt: item.title ?? "" };
    if (item.type === "waiting") this.#source.waiting = item.text;
    if (item.type === "lane") this.#turn(item);
    if (item.type === "notice" || item.type === "failed") this.problems.append(problemBlock(item));
    if (item.type === "drafted" && item.reasons?.[0]?.code === "dropped" && item.reason) {
      this.problems.append(problemBlock({ message: fill(this.#words.view.dropped, { error: item.reason }) }));
    }
    if (item.type === "started") this.#state = "running";
    if (item.type === "raced" || item.type === "notice") this.#ended();
  }

  /** @param {LaneTurn} turn */
  #turn({ index, title, run, lane }) {
    if (this.#lanes[index]) {
      this.#state = "warming";
      this.#at = index;
    } else {
      this.#lanes[index] = new LaneView(index, this.#say(title), this.#words, run && lane ? { run, lane } : null);
      this.list.append(this.#lanes[index].root);
      this.#listenTo(this.#lanes[index]);
    }
  }

  /** A token is inspected as on the Play tab, and who scrolls one lane reads them all. @param {LaneView} lane */
  #listenTo(lane) {
    const { root } = lane.text;
    const choose = (/** @type {MouseEvent | KeyboardEvent} */ event) => {
      const subject = lane.subject(event.target);
      if (!subject) return;
      event.preventDefault();
      this.#inspect(() => this.#selection.pin(subject, { beside: event.shiftKey }));
    };
    root.addEventListener("click", choose);
    root.addEventListener("keydown", (event) => event.key === "Enter" && choose(event));
    root.addEventListener("scroll", () => lane.scrolled && this.#lineUp(lane.read, lane), { passive: true });
  }

  /** Change what is inspected, and show it. @param {() => void} change */
  #inspect(change) {
    for (const { token } of this.#selection.pins) token?.classList.remove("sd-pinned");
    change();
    const { pins, armed } = this.#selection;
    for (const { token } of pins) token?.classList.add("sd-pinned");
    this.inspection.hidden = !pins.length;
    this.inspected.textContent = pins.map(({ lane }) => lane).join(" · ");
    this.inspector.render(pins, { why: "pinned", armed, source: this.#source.kind === "recorded" ? "recorded" : "live" });
    if (pins.length) this.inspection.scrollIntoView({ block: "nearest" });
  }

  /** Bring one position of the text to the same height in every lane that has come to it. @param {number} token @param {LaneView | null} [except] @param {boolean} [over] */
  #lineUp(token, except = null, over = false) {
    const lanes = this.#lanes.filter((lane) => lane !== except && lane.tokens);
    const offsets = lanes.map((lane) => lane.offsetOf(Math.min(token, lane.tokens)));
    lanes.forEach((lane, i) => lane.lineUp(offsets[i], over));
  }

  async #ended() {
    const recorded = this.#lanes.flatMap((lane) => lane.recorded ?? []);
    if (recorded.length) {
      const stream = this.#stream;
      this.#state = "fetching";
      await this.#seen;
      const runs = await Promise.all(recorded.map(({ run }) => fetchFile(run)));
      if (stream !== this.#stream) return;
      if (runs.includes(null)) {
        this.#state = "missing";
        this.#changed();
        return;
      }
      recorded.forEach(({ lane }, i) => {
        this.#lanes[i].timeline.push((runs[i] ?? []).filter((item) => item.lane === lane), { follow: false });
      });
    }
    this.#finish();
    this.#changed();
  }

  // All have run: from here on they race.
  #finish() {
    const folded = this.#lanes.map((lane) => lane.folded());
    if (!folded.some(Boolean)) {
      this.#state = "empty";
      return;
    }
    this.#result = standings(folded);
    this.#state = folded.every((lane) => lane?.end === "stop" || lane?.end === "length") ? "ready" : "cut";
    this.#course = this.player.timeline = new Course(this.#lanes.map((lane) => lane.timeline));
    this.result.show(this.#lanes.map(({ title }, i) => ({ title, lane: folded[i] })), this.#result, {
      seconds: this.#course.timeAt(this.#course.last) / 1000,
      origin: this.#words.view.source[this.#source.kind],
      prompt: this.#source.prompt,
    });
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.player.seek(still ? this.#course.last : 0);
    if (!still) this.player.play();
  }

  #reset() {
    this.#stream += 1;
    this.player.pause();
    this.#course = this.player.timeline = new Course([]);
    this.#lanes = [];
    this.#at = null;
    this.#result = null;
    this.#inspect(() => this.#selection.clear());
    this.#state = "empty";
    this.list.replaceChildren();
    this.problems.replaceChildren();
    this.result.root.hidden = true;
  }

  #changed() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#paint();
    });
  }

  #paint() {
    const words = this.#words;
    const result = this.#result;
    const now = this.#course.timeAt(this.#course.at) / 1000;
    const most = result?.most ?? Math.max(1, ...this.#lanes.map((lane) => lane.tokens));
    this.#lanes.forEach((lane, i) => {
      const turn = i === this.#at && !result ? this.#state : result ? "" : "waiting";
      lane.render({ turn, most, goal: result?.goal ?? null, row: result?.rows[i] ?? null, now });
    });
    const running = result ? null : this.#lanes[this.#at ?? -1];
    const shown = running ? [running] : this.#lanes.filter((lane) => lane.tokens);
    if (shown.length) this.#lineUp(Math.min(...shown.map((lane) => lane.tokens)), null, Boolean(result) && this.#course.atEnd);
    const { kind, waiting, prompt } = this.#source;
    const said = fill(words.phase[this.#phaseName()], {
      lane: (this.#at ?? 0) + 1, lanes: this.#lanes.length, tokens: this.#lanes[this.#at ?? -1]?.tokens ?? 0,
    });
    const phase = this.#phaseName() === "over" ? `${said} ${this.result.won}`.trim() : said;
    this.head.render({
      kind, prompt, badge: this.#lanes.length ? words.view.source[kind] : "", about: this.#about(), phase: waiting && !this.#lanes.length ? waiting : phase,
    });
    this.controls.root.hidden = !result;
    this.legend.root.hidden = !this.#lanes.length;
    if (!result) return;
    this.controls.render();
    this.result.chart.mark([now, now]);
  }

  #phaseName() {
    if (!this.#result) return this.#state;
    if (this.player.playing) return "racing";
    if (this.#state === "cut" && this.#course.atEnd) return "cut";
    return this.#course.atEnd ? "over" : this.#course.at ? "racing" : "ready";
  }

  #about() {
    const [header] = this.#lanes.flatMap((lane) => lane.header ?? []);
    if (!header) return "";
    const precisions = [...new Set(this.#lanes.map((lane) => lane.header?.target?.precision).filter(Boolean))];
    const model = [header.target?.name, precisions.join(" / ")].filter(Boolean).join(" ");
    const recorded = this.#source.kind === "recorded";
    return recorded ? fill(this.#words.recorded_about, { machine: `${model}, ${header.machine}` }) : [model, header.machine].filter(Boolean).join(" · ");
  }

  /** A recorded race is fetched, and begins, when it is first looked at. @type {Promise<void> | null} */
  #seen = null;

  #listen() {
    this.#seen = firstSeen(this.root);
    document.addEventListener("keydown", (event) => this.#key(event));
    addEventListener("resize", () => this.#changed()); // the presenter mode's letters are larger
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.#selection.pins.length) return;
      event.preventDefault();
      this.#inspect(() => this.#selection.unpin());
    });
  }

  /** Keys of the player, wherever the focus is that does not want them itself. @param {KeyboardEvent} event */
  #key(event) {
    if (event.defaultPrevented || !this.#result || !this.root.getClientRects().length) return;
    if (closest(event.target, "input, textarea, select, button, a, summary, [role=slider], [role=listbox], [contenteditable], .sd-token")) return;
    this.controls.key(event);
  }
}
