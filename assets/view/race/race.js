// The race: lanes that were run one after the other, replayed together on one clock.

import { LineReader, isEvent } from "../core/lines.js";
import { Player } from "../core/player.js";
import { fetchFile } from "../core/recorded.js";
import { fill } from "../core/sentence.js";
import { el, firstSeen, textEl } from "../parts/dom.js";
import { Legend } from "../parts/legend.js";
import { Controls } from "./controls.js";
import { Course } from "./course.js";
import { Lane } from "./lane.js";
import { Result } from "./result.js";
import { standings } from "./standings.js";

/** Build the race in `element`; `read()` gives the stream's text, `words` the part's own and the view's as `view`. */
export function mountRace(element, { read, watch, words }) {
  const race = new RaceView(element, words);
  const reader = new LineReader();
  const consume = () => {
    const { restarted, items } = reader.read(read() ?? "");
    race.take(items, restarted);
  };
  watch(consume);
  consume();
  return race;
}

class RaceView {
  #words;
  /** @type {Lane[]} */
  #lanes = [];
  /** @type {number | null} */
  #at = null; // the lane whose events come now
  #source = { kind: "live", waiting: "", prompt: "" };
  #state = "empty"; // fetching, missing, warming, running, ready: see words.phase
  /** @type {ReturnType<typeof standings> | null} */
  #result = null; // of the race, once it has been run
  #course = new Course([]);
  #frame = 0;
  #stream = 0; // counts the streams, so that what was fetched for an earlier one is dropped

  constructor(element, words) {
    this.#words = words;
    this.player = new Player(this.#course, () => this.#changed());
    this.badge = el("span", { class: "sd-badge" });
    this.phase = el("span", { class: "sd-race-phase", role: "status" });
    this.about = el("span", { class: "sd-about" });
    this.prompt = el("p", { class: "sd-asked" });
    this.problems = el("div", { class: "sd-problems" });
    this.list = el("div", { class: "sd-race-list" });
    this.legend = new Legend(words.view);
    this.controls = new Controls(this.player, words);
    this.result = new Result(words);
    this.root = el("section", { class: "sd-race", "aria-label": words.label },
      el("div", { class: "sd-race-status" }, this.badge, this.phase, this.about),
      this.problems, this.prompt, this.list, this.controls.root, this.legend.root, this.result.root);
    element.replaceChildren(this.root);
    this.#listen();
    this.#paint();
  }

  /** New lines of the stream; `restarted` when they begin another one. */
  take(items, restarted) {
    if (restarted) this.#reset();
    for (const item of items) this.#item(item);
    if (items.length || restarted) this.#changed();
  }

  #item(item) {
    if (isEvent(item)) this.#lanes[this.#at ?? -1]?.push(item);
    if (item.type === "open") this.#source = { kind: item.source, waiting: item.waiting ?? "", prompt: item.title ?? "" };
    if (item.type === "lane") this.#turn(item);
    if (item.type === "notice" || item.type === "failed") this.#problem(item);
    if (item.type === "started") this.#state = "running";
    if (item.type === "raced") this.#ended();
  }

  #turn({ index, title, run, lane }) {
    if (this.#lanes[index]) {
      this.#state = "warming";
      this.#at = index;
    } else {
      this.#lanes[index] = new Lane(index, title, this.#words, run ? { run, lane } : null);
      this.list.append(this.#lanes[index].root);
    }
  }

  async #ended() {
    if (this.#lanes.some((lane) => lane.recorded)) {
      const stream = this.#stream;
      this.#state = "fetching";
      await this.#seen;
      const runs = [...new Set(this.#lanes.map(({ recorded }) => recorded.run))];
      const read = new Map();
      await Promise.all(runs.map(async (run) => read.set(run, await fetchFile(run))));
      if (stream !== this.#stream) return;
      if ([...read.values()].includes(null)) {
        this.#state = "missing";
        this.#changed();
        return;
      }
      for (const { recorded, timeline } of this.#lanes) {
        timeline.push(read.get(recorded.run).filter((item) => item.lane === recorded.lane), { follow: false });
      }
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
      origin: this.#words.source[this.#source.kind],
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
    this.#state = "empty";
    this.list.replaceChildren();
    this.problems.replaceChildren();
    this.result.hide();
  }

  #problem({ message, unharmed, advice }) {
    const block = el("div", { class: "sd-problem", role: "alert" });
    for (const [sentence, tag] of [[message, "strong"], [unharmed, "span"], [advice, "span"]]) {
      if (sentence) block.append(textEl(tag, sentence));
    }
    this.problems.append(block);
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
    this.badge.textContent = this.#lanes.length ? words.source[this.#source.kind] : "";
    this.badge.className = `sd-badge sd-badge-${this.#source.kind}`;
    this.phase.textContent = this.#source.waiting && !this.#lanes.length ? this.#source.waiting : fill(words.phase[this.#phaseName()], {
      lane: (this.#at ?? 0) + 1,
      lanes: this.#lanes.length,
      tokens: this.#lanes[this.#at ?? -1]?.tokens ?? 0,
    });
    this.about.textContent = this.#about();
    this.prompt.textContent = this.#source.prompt;
    this.prompt.hidden = !this.#source.prompt;
    this.controls.root.hidden = !result;
    this.legend.root.hidden = !this.#lanes.length;
    if (!result) return;
    this.controls.render();
    this.result.mark(now);
  }

  #phaseName() {
    if (!this.#result) return this.#state;
    if (this.player.playing) return "racing";
    if (this.#state === "cut" && this.#course.atEnd) return "cut";
    return this.#course.atEnd ? "over" : this.#course.at ? "racing" : "ready";
  }

  #about() {
    const header = this.#lanes.map((lane) => lane.header).find(Boolean);
    if (!header) return "";
    const target = header.target ?? {};
    const precisions = [...new Set(this.#lanes.map((lane) => lane.header?.target?.precision).filter(Boolean))];
    const model = [target.name, precisions.join(" / ")].filter(Boolean).join(" ");
    const recorded = this.#source.kind === "recorded";
    return recorded ? fill(this.#words.recorded_about, { machine: `${model}, ${header.machine}` }) : [model, header.machine].filter(Boolean).join(" · ");
  }

  // A recorded race is fetched, and begins, when it is first looked at.
  /** @type {Promise<void> | null} */
  #seen = null;

  #listen() {
    this.#seen = firstSeen(this.root);
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  // Keys of the player, wherever the focus is that does not want them itself.
  #key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!this.#result || !this.root.getClientRects().length) return;
    if (event.target.closest?.("input, textarea, select, button, a, summary, [role=slider], [role=listbox], [contenteditable], .sd-token")) return;
    this.controls.key(event);
  }
}
