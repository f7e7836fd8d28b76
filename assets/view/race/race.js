// The race: lanes that were run one after the other, replayed together on one clock.

import { Course, compared, markdown, standings, tableOf } from "./course.js";
import { el, firstSeen, svg } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { LineReader, isEvent } from "../core/lines.js";
import { tokensPerSecond, two } from "../core/metrics.js";
import { Player, SPEEDS } from "../core/player.js";
import { Pen, Plot, sample } from "../charts/plot.js";
import { fold } from "../core/reducer.js";
import { fetchFile } from "../core/recorded.js";
import { TextView } from "../parts/text.js";
import { Timeline } from "../core/timeline.js";

// No two lanes differ by colour alone.
const LOOKS = [
  { shape: "line", colour: "ink", width: 2 },
  { shape: "line", colour: "accepted", width: 3, dash: "8px,3px" },
  { shape: "line", colour: "correction", width: 3, dash: "2px,3px" },
  { shape: "line", colour: "bonus", width: 3, dash: "9px,3px,2px,3px" },
];
const ICONS = {
  start: "M3 3h2v10H3zM13 3v10L6 8z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  end: "M11 3h2v10h-2zM3 3v10l7-5z",
};
const LEGEND = ["accepted", "rejected", "unreached", "correction", "bonus", "plain"];

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
  #lanes = [];
  #at = null; // the lane whose events come now
  #source = { kind: "live", waiting: "", prompt: "" };
  #state = "empty"; // fetching, missing, warming, running, ready: see words.phase
  #result = null; // of the race, once it has been run
  #course = new Course([]);
  #frame = 0;
  #stream = 0; // counts the streams, so that what was fetched for an earlier one is dropped

  constructor(element, words) {
    this.#words = words;
    this.player = new Player(this.#course, () => this.#changed());
    this.#build(element);
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
    if (isEvent(item)) this.#lanes[this.#at]?.push(item);
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
      const read = new Map(await Promise.all(runs.map(async (run) => [run, await fetchFile(run)])));
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
    this.slider.max = this.#course.last;
    this.#paintResult(folded);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.player.seek(still ? this.#course.last : 0);
    if (!still) this.player.play();
  }

  #reset() {
    this.#stream += 1;
    this.player.pause();
    this.#course = this.player.timeline = new Course([]);
    this.#lanes = [];
    this.#at = this.#result = null;
    this.#state = "empty";
    this.list.replaceChildren();
    this.problems.replaceChildren();
    this.result.hidden = true;
  }

  #problem({ message, unharmed, advice }) {
    const block = el("div", { class: "sd-problem", role: "alert" });
    for (const [sentence, tag] of [[message, "strong"], [unharmed, "span"], [advice, "span"]]) {
      if (sentence) block.append(said(tag, sentence));
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
      tokens: this.#lanes[this.#at]?.tokens ?? 0,
    });
    this.about.textContent = this.#about();
    this.prompt.textContent = this.#source.prompt;
    this.prompt.hidden = !this.#source.prompt;
    this.controls.hidden = !result;
    this.legend.hidden = !this.#lanes.length;
    if (result) this.#paintControls(now);
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

  #paintControls(now) {
    const words = this.#words;
    const course = this.#course;
    const all = course.timeAt(course.last) / 1000;
    this.slider.value = course.at;
    const clock = fill(words.clock_of, { now: now.toFixed(1), all: all.toFixed(1) });
    this.slider.setAttribute("aria-valuetext", clock);
    this.clock.textContent = clock;
    const name = this.player.playing ? "pause" : "play";
    if (this.play.title !== words[name]) {
      this.play.title = words[name];
      this.play.setAttribute("aria-label", words[name]);
      this.play.querySelector("path").setAttribute("d", ICONS[name]);
    }
    this.chart.mark([now, now]);
  }

  // What does not change while they race: the table, the sentences and the chart.
  #paintResult(folded) {
    const words = this.#words;
    const titles = this.#lanes.map((lane) => lane.title);
    this.table = tableOf(titles, this.#result, words.source[this.#source.kind], words);
    const cells = (tag, texts) => texts.map((text, i) => said(i === 1 ? "th" : tag, text, i === 1 ? { scope: tag === "th" ? "col" : "row" } : tag === "th" ? { scope: "col" } : {}));
    this.grid.replaceChildren(
      el("thead", {}, el("tr", {}, ...cells("th", this.table.head))),
      el("tbody", {}, ...this.table.body.map((row) => el("tr", {}, ...cells("td", row)))));
    const wrote = folded.flatMap((lane, i) => (lane?.tokens ? [{ title: titles[i], lane }] : []));
    const runs = Math.max(...folded.map((lane) => lane?.runs ?? 1));
    this.notes = [
      ...compared(wrote, words.same),
      ...(this.#result.goal ? [fill(words.table.finish, { tokens: this.#result.goal })] : []),
      ...(this.#result.plain ? [] : [words.table.no_plain]),
      ...(runs > 1 ? [fill(words.shared, { runs })] : []),
    ];
    this.said.replaceChildren(...this.notes.map((sentence) => said("p", sentence)));
    this.copied.textContent = "";
    this.result.hidden = false;
    this.chart.show((colours) => this.#figure(colours, folded));
  }

  #figure(colours, folded) {
    const words = this.#words.chart;
    const names = this.#lanes.map((lane) => lane.title);
    const pen = new Pen(colours, LOOKS, names);
    const traces = folded.flatMap((lane, i) => {
      if (!lane?.tokens) return [];
      const steps = lane.steps.filter((step) => !step.open);
      return [pen.line(i, [0, ...steps.map((step) => step.elapsed)], [0, ...steps.map((step) => step.tokens)])];
    });
    const seconds = this.#course.timeAt(this.#course.last) / 1000;
    const { goal, most } = this.#result;
    const line = { color: colours.soft, width: 1, dash: "dot" };
    return {
      traces,
      x: { title: words.x, range: [0, seconds * 1.02] },
      y: { title: words.y, range: [0, most * 1.06] },
      shapes: goal ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: goal, y1: goal, line }] : [],
    };
  }

  async #copy() {
    const header = this.#lanes.map((lane) => lane.header).find(Boolean);
    const head = fill(this.#words.markdown_head, {
      prompt: this.#source.prompt || header?.prompt, origin: this.#words.source[this.#source.kind],
      machine: [header?.target?.name, header?.target?.precision, header?.machine].filter(Boolean).join(", "),
    });
    const text = [head, "", markdown(this.table), "", ...this.notes, ""].join("\n");
    try {
      await navigator.clipboard.writeText(text);
      this.copied.textContent = this.#words.copied;
    } catch {
      getSelection().selectAllChildren(this.grid);
      this.copied.textContent = this.#words.copy_failed;
    }
  }

  #build(element) {
    const words = this.#words;
    this.badge = el("span", { class: "sd-badge" });
    this.phase = el("span", { class: "sd-race-phase", role: "status" });
    this.about = el("span", { class: "sd-about" });
    this.prompt = el("p", { class: "sd-asked" });
    this.problems = el("div", { class: "sd-problems" });
    this.list = el("div", { class: "sd-race-list" });
    this.legend = el("ul", { class: "sd-legend", "aria-label": words.view.legend }, ...LEGEND.map((status) =>
      el("li", { title: words.view.meaning[status] }, el("span", { class: `sd-token sd-${status}` }, el("span", { class: "sd-mark" }, words.view.status[status])))));
    this.#buildControls();
    this.chart = new Plot();
    this.chart.say(words.chart.label);
    const across = said("p", words.chart.x, { class: "sd-race-across" });
    const chart = el("section", { class: "sd-chart" }, said("h3", words.chart.title), this.chart.root, across);
    this.grid = el("table");
    this.said = el("div", { class: "sd-race-said" });
    this.copied = el("span", { class: "sd-race-copied", role: "status" });
    const copy = said("button", words.copy, { type: "button", class: "sd-button sd-race-copy", onclick: () => this.#copy() });
    const box = el("div", { class: "sd-race-box", role: "region", tabindex: "0", "aria-label": words.table.label }, this.grid);
    this.result = el("div", { class: "sd-race-result", hidden: true }, el("div", {}, box, this.said, el("p", {}, copy, this.copied)), chart);
    this.root = el("section", { class: "sd-race", "aria-label": words.label },
      el("div", { class: "sd-race-status" }, this.badge, this.phase, this.about),
      this.problems, this.prompt, this.list, this.controls, this.legend, this.result);
    element.replaceChildren(this.root);
  }

  #buildControls() {
    const words = this.#words;
    const button = (name, act) => {
      const icon = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
      icon.append(svg("path", { d: ICONS[name] }));
      return el("button", { type: "button", class: `sd-move sd-move-${name}`, "aria-label": words[name], title: words[name], onclick: act }, icon);
    };
    this.play = button("play", () => this.player.toggle());
    this.slider = el("input", { type: "range", class: "sd-scrub", min: 0, max: 0, step: 1, value: 0, "aria-label": words.scrub });
    this.slider.addEventListener("input", () => this.player.seek(Number(this.slider.value)));
    this.clock = el("span", { class: "sd-place" });
    const speed = el("select", { class: "sd-speed", "aria-label": words.speed, title: words.speed });
    speed.append(...SPEEDS.map((value) => said("option", `${value}×`, { value, selected: value === 1 })));
    speed.addEventListener("change", () => this.player.setSpeed(Number(speed.value)));
    this.controls = el("div", { class: "sd-transport", role: "group", "aria-label": words.controls, hidden: true },
      button("start", () => this.player.seek(0)), this.play, button("end", () => this.#toEnd()), this.slider, this.clock, speed);
  }

  #toEnd() {
    this.player.pause();
    this.player.seek(this.#course.last);
  }

  // A recorded race is fetched, and begins, when it is first looked at.
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
    const act = { " ": () => this.player.toggle(), Home: () => this.player.seek(0), End: () => this.#toEnd() }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

// One lane: a track with its finish line, what it has come to, and its text.
class Lane {
  #words;

  constructor(index, title, words, recorded) {
    this.#words = words;
    this.title = title;
    this.recorded = recorded; // { run, lane }: its events lie there
    this.timeline = new Timeline();
    this.text = new TextView(words.view);
    this.rank = el("span", { class: "sd-race-rank" });
    this.lossy = said("span", words.lossy, { class: "sd-lossy", hidden: true });
    this.fill = el("span", { class: "sd-race-fill" });
    this.flag = el("span", { class: "sd-race-flag" });
    this.track = el("div", { class: "sd-race-track", role: "progressbar", "aria-valuemin": 0 }, this.fill, this.flag);
    this.facts = el("p", { class: "sd-race-facts" });
    this.root = el("article", { class: `sd-race-lane sd-race-lane-${index + 1}` },
      el("header", {}, sample(LOOKS[index]), said("h3", title), this.lossy, this.rank), this.track, this.facts, this.text.root);
  }

  /** The run as far as it is shown, or null. */
  get lane() {
    const { state } = this.timeline;
    return state.lane ? state.lanes[state.lane] : null;
  }

  get header() {
    return this.timeline.events.find((item) => item.type === "started") ?? null;
  }

  get tokens() {
    return this.lane?.tokens ?? 0;
  }

  push(event) {
    this.timeline.push([event], { follow: true });
  }

  /** The whole run, whatever is shown of it; null when it never began. */
  folded() {
    const state = fold(this.timeline.events);
    return state.lane ? state.lanes[state.lane] : null;
  }

  /** turn: what the lane does while they run, empty when they race; row: of the standings */
  render({ turn, most, goal, row, now }) {
    const words = this.#words;
    const { lane } = this;
    this.text.root.hidden = !lane;
    if (lane) this.text.render(this.timeline.state);
    if (lane && !lane.end) this.text.root.scrollTop = this.text.root.scrollHeight;
    const there = goal !== null && row?.finish != null && now >= row.finish - 1e-9;
    this.rank.textContent = there ? words.rank[row.rank] : "";
    this.root.classList.toggle("sd-race-won", there && row.rank === 1);
    this.lossy.hidden = !lane?.header.lossy;
    this.fill.style.transform = `scaleX(${Math.min(1, this.tokens / most)})`;
    this.flag.hidden = goal === null;
    if (goal !== null) this.flag.style.left = `${(100 * goal) / most}%`;
    this.flag.title = goal === null ? "" : fill(words.finish, { tokens: goal });
    this.track.setAttribute("aria-label", fill(words.track, { title: this.title, tokens: this.tokens, goal: most }));
    this.track.setAttribute("aria-valuemax", most);
    this.track.setAttribute("aria-valuenow", this.tokens);
    this.facts.textContent = this.#facts(turn, lane);
  }

  #facts(turn, lane) {
    const words = this.#words;
    if (turn === "waiting" && !lane) return words.lane_waiting;
    if (turn === "warming" && !lane) return words.lane_warming;
    if (!lane) return words.lane_stopped;
    const told = { tokens: lane.tokens, rate: two(tokensPerSecond(lane)), seconds: two(lane.elapsed) };
    const ended = { failed: words.lane_failed, cancelled: words.lane_stopped }[lane.end];
    const facts = fill(lane.end ? words.lane_done : words.lane_facts, told);
    return ended ? `${ended} · ${facts}` : facts;
  }
}

function said(tag, text, attributes = {}) {
  const node = el(tag, attributes);
  node.textContent = text;
  return node;
}
