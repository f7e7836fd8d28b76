// The view: reads the growing text of a run, folds it into one state and draws that state.

import { ChartsView } from "../charts/charts.js";
import { calm, el } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { exportMenu } from "./export.js";
import { LineReader, isEvent, readTrace } from "../core/lines.js";
import { acceptRate, speedup, tokensPerSecond, two } from "../core/metrics.js";
import { InspectorView } from "../parts/inspector.js";
import { NumbersView } from "../parts/numbers.js";
import { Player } from "../core/player.js";
import { fetchRun } from "./opening.js";
import { tested } from "../core/reducer.js";
import { StripView } from "../parts/strip.js";
import { TextView } from "../parts/text.js";
import { Timeline } from "../core/timeline.js";
import { Transport } from "../parts/transport.js";
import { TreeView } from "../parts/treeview.js";

// Where keys are wanted by what has the focus: all of them, or those that press a button.
const TYPING = "input, textarea, select, [role=slider], [role=listbox], [role=tab], [role=menu], [role=combobox], [contenteditable]";
const PRESSED = "button, a, summary";
const TABS = ["token", "tree"];
const LEGEND = ["accepted", "rejected", "unreached", "correction", "bonus", "plain"];

/**
 * Build the view inside `element`; `read()` gives the stream's text, `watch(call)` tells of its growth.
 * keys: whether it takes the page's keys and the height of the window; false for a view that is a part of something else
 * onselect(detail): called as the event "sd-select" of the root is, with { lane, step, node, text } of what was chosen
 */
export function mount(element, { read, watch, words, keys = true, onselect = () => {} }) {
  const view = new View(element, words, { keys, onselect });
  element.view = view; // the lab asks it for the visitor's last run
  const reader = new LineReader();
  const consume = () => {
    const { restarted, items } = reader.read(read() ?? "");
    view.take(items, restarted);
  };
  watch(consume);
  consume();
  return view;
}

/**
 * Everything that is shown of a run. A subject is a token that can be inspected:
 * { lane, at, header, step, node, count, text, token }, `at` the step's place in its lane, `node` -1 for the target's own
 * token, `token` the element under the pointer.
 */
class View {
  pins = []; // subjects that stay: one, or two that are compared
  armed = false; // whether the next one that is chosen is compared with the first
  hovered = -1; // the step under the pointer in the strip
  pointed = null; // the subject under the pointer or the focus, or the last one
  #left = new AbortController(); // ends what listens outside of the root
  #lit = [];
  #marked = [];

  constructor(element, words, { keys, onselect }) {
    this.words = words;
    this.onselect = onselect;
    this.timeline = new Timeline();
    this.player = new Player(this.timeline, () => this.#moved());
    this.frame = 0;
    this.transport = new Transport(this.timeline, this.player, words.transport);
    this.text = new TextView(words);
    this.strip = new StripView(words, (at) => this.#choose(at));
    this.tree = new TreeView(words);
    this.inspector = new InspectorView(words, { unpin: () => this.#unpin(), compare: () => this.#arm() });
    this.numbers = new NumbersView(words);
    this.charts = new ChartsView(words);
    this.#build(element);
    this.drawNumbers = calm(250, () => this.numbers.render(this.state));
    this.drawTree = calm(120, () => this.tree.render(this.state, this.#litAt()));
    this.drawCharts = calm(400, () => this.charts.render(this.state));
    this.drawHighlight = calm(150, () => this.charts.highlight(this.#litStep()));
    this.drawPlaced = calm(100, () => this.#drawInspector());
    this.drawLatest = calm(1500, () => this.#findLatest());
    this.#listen(keys);
    this.#whenPlotly();
    this.#paint();
  }

  /** The fold of the run up to the place that is shown. */
  get state() {
    return this.timeline.state;
  }

  /** The run's own events, without the page's lines: what is saved and exported. */
  get events() {
    return this.timeline.events;
  }

  /** New lines of the stream; `restarted` when they begin another one. */
  take(items, restarted) {
    if (restarted) this.#reset();
    const opening = items.find((item) => item.type === "open");
    if (opening) this.#openRecorded(opening, items);
    if (items.length) this.timeline.push(items, { follow: !this.recorded });
    if (opening && this.recorded && this.events.length) this.#begin();
    if (items.length || restarted) this.#changed();
  }

  /** Show a recorded run from its lines, in place of what is there; autoplay: else it rests at its beginning. */
  load(items, { autoplay = true } = {}) {
    const opening = items.some((item) => item.type === "open") ? [] : [{ type: "open", source: "recorded", key: "", title: "" }];
    this.take([...opening, ...items], true);
    if (!autoplay) this.seekStep(-1);
  }

  /** Rest at a step of the shown lane as it was judged; -1 is the beginning. returns: whether there is such a step */
  seekStep(step) {
    const at = step < 0 ? 0 : this.timeline.stopOf(step);
    if (at < 0) return false;
    this.player.pause();
    this.player.seek(at);
    return true;
  }

  /** A button in the status line. returns: the button */
  addTool(label, act) {
    const button = el("button", { type: "button", class: "sd-button", onclick: act });
    button.textContent = label;
    this.tools.append(button);
    return button;
  }

  /** Take the view off the page; nothing of it stays behind. */
  destroy() {
    this.player.pause();
    cancelAnimationFrame(this.frame);
    this.#left.abort();
    this.root.remove();
  }

  // A recorded run may be a file beside the script; another stream may have begun when it arrives.
  async #openRecorded(opening, items) {
    this.opening = opening;
    this.recorded = opening.source === "recorded";
    this.root.dataset.run = opening.run ?? "";
    if (!opening.run || items.length > 1) return;
    const lines = await fetchRun(opening, this.words.trace);
    if (this.opening === opening) this.take(lines, true);
  }

  #reset() {
    this.player.pause();
    this.timeline = this.player.timeline = this.transport.timeline = new Timeline();
    this.recorded = false;
    this.said = "";
    this.pins = [];
    this.pointed = this.latest = null;
    this.armed = false;
    this.text.clear();
    this.strip.clear();
  }

  // A recorded run plays by itself; where motion is not wanted it stands there whole.
  #begin() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.timeline.seek(this.timeline.last);
    else this.player.play();
  }

  // Who moves the player looks at its place, not at what the pointer happens to rest on.
  #moved() {
    if (!this.player.playing) {
      this.pointed = null;
      this.hovered = -1;
    }
    this.#changed();
  }

  #changed() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.#paint();
    });
  }

  #paint() {
    const { state } = this;
    this.text.render(state);
    this.strip.render(state);
    this.transport.render({ live: this.#running });
    this.#paintStatus();
    this.#paintProblems();
    this.#inspect();
    this.text.follow();
    this.strip.follow();
    this.drawTree();
    this.drawNumbers();
    this.drawCharts();
    this.drawLatest();
  }

  /** Whether more of the run is still to come by itself. */
  get #running() {
    const last = this.events.at(-1)?.type;
    return !this.recorded && last !== undefined && last !== "finished" && last !== "failed" && !this.state.problems.length;
  }

  /** Whether the run moves by itself just now, so that nothing rests at its place. */
  get #moving() {
    return this.player.playing || (this.#running && this.timeline.atEnd && !this.timeline.held);
  }

  #paintStatus() {
    const { state, words } = this;
    const lane = this.#lane;
    const kind = state.source.kind;
    const lossy = Boolean(lane?.header.lossy);
    if (this.lossy.hidden === lossy) {
      this.lossy.hidden = !lossy;
      this.root.classList.toggle("sd-is-lossy", lossy);
      for (const [status, item] of Object.entries(this.legend)) {
        item.title = (lossy && words.explain_lossy[status]) || words.meaning[status];
      }
    }
    say(this.badge, lane ? words.source[kind] : "");
    this.badge.className = `sd-badge sd-badge-${kind}`;
    const name = phase(state, { playing: this.player.playing, atEnd: this.timeline.atEnd, running: this.#running, held: this.timeline.held });
    const sentence = (lossy && words.phase_lossy[name]) || words.phase[name] || "";
    say(this.phase, fill(sentence, { speedup: two(speedup(state.lanes.plain, state.lanes.speculative)) }));
    say(this.about, lane ? about(words, state, lane) : "");
    this.about.title = this.about.textContent;
    this.save.hidden = !this.events.length;
    this.#announce(name, state);
  }

  #announce(name, { lanes }) {
    if (this.said === name) return;
    this.said = name;
    const { plain, speculative } = lanes;
    say(this.live, fill(this.words.announce[name] ?? "", {
      speedup: two(speedup(plain, speculative)),
      fast: two(tokensPerSecond(speculative)),
      plain: two(tokensPerSecond(plain)),
      accepted: two(speculative ? (acceptRate(speculative) ?? 0) * 100 : null),
    }));
  }

  #paintProblems() {
    if (this.problems.childElementCount === this.state.problems.length) return;
    this.problems.replaceChildren(...this.state.problems.map((problem) => {
      const block = el("div", { class: "sd-problem", role: "alert" });
      for (const [name, tag] of [["message", "strong"], ["unharmed", "span"], ["advice", "span"]]) {
        if (!problem[name]) continue;
        const part = el(tag, { class: `sd-problem-${name}` });
        part.textContent = problem[name];
        block.append(part);
      }
      return block;
    }));
  }

  #build(element) {
    const { words } = this;
    const button = (label, run) => el("button", { type: "button", class: "sd-button", onclick: run }, label);
    this.badge = el("span", { class: "sd-badge" });
    this.lossy = el("span", { class: "sd-lossy", title: words.lossy_hint }, words.lossy);
    this.lossy.hidden = true;
    this.phase = el("span", { class: "sd-phase" });
    this.about = el("span", { class: "sd-about" });
    this.live = el("div", { class: "sd-hidden", "aria-live": "polite" });
    this.problems = el("div", { class: "sd-problems" });
    this.save = exportMenu(this, words.export, (message) => this.take([{ type: "notice", message }], false));
    this.file = el("input", { type: "file", accept: ".jsonl,.json,.txt", class: "sd-hidden", tabindex: "-1", "aria-label": words.open });
    this.file.addEventListener("change", () => this.#open());
    const open = button(words.open, () => this.file.click());
    this.hide = button(words.hide_drafts, () => this.#toggleDrafts());
    this.hide.setAttribute("aria-pressed", "false");
    this.legend = Object.fromEntries(LEGEND.map((status) => [status, key(words, status)]));
    this.tools = el("div", { class: "sd-tools" }, this.hide, this.save, open, this.file);
    this.tabs = el("div", { class: "sd-tabs", role: "group", "aria-label": words.inspector.tabs },
      ...TABS.map((tab) => el("button", { type: "button", class: "sd-button", "data-tab": tab, onclick: () => this.#tab(tab) }, words.inspector[tab])));
    this.side = el("aside", { class: "sd-side" }, this.tabs, this.inspector.root, this.tree.root);
    this.tree.summary.id = `sd-summary-${Math.random().toString(36).slice(2)}`;
    this.stage = el("div", { class: "sd-stage" },
      el("div", { class: "sd-status" }, this.badge, this.lossy, this.phase, this.about, this.tools),
      this.problems, this.text.root,
      el("div", { class: "sd-foot" },
        el("div", { class: "sd-legends" }, el("ul", { class: "sd-legend", "aria-label": words.legend }, ...Object.values(this.legend)), this.strip.key),
        this.strip.root, this.transport.root),
      this.side);
    this.root = el("div", { class: "sd-root" }, this.numbers.root, this.stage, this.charts.root, this.live);
    this.#tab("tree");
    element.classList.add("sd-view-box");
    element.replaceChildren(this.root);
  }

  #toggleDrafts() {
    const hidden = this.root.classList.toggle("sd-final-only");
    this.hide.setAttribute("aria-pressed", String(hidden));
  }

  // Where the panel is too low for both, the tree or the token. Without trees there is only the token.
  #tab(name) {
    this.side.dataset.tab = name;
    for (const button of this.tabs.children) button.setAttribute("aria-pressed", String(button.dataset.tab === name));
  }

  #listen(keys) {
    for (const part of [this.text, this.tree]) {
      for (const type of ["pointerover", "focusin"]) part.root.addEventListener(type, (event) => this.#point(part.find(event.target)));
      part.root.addEventListener("pointerleave", () => this.#moving && this.#leave());
      part.root.addEventListener("click", (event) => this.#pinUnder(part.find(event.target), event.shiftKey));
      part.root.addEventListener("keydown", (event) => {
        const found = event.key === "Enter" && part.find(event.target);
        if (!found) return;
        event.preventDefault();
        this.#pinUnder(found, event.shiftKey);
      });
    }
    this.strip.root.addEventListener("pointerover", (event) => this.#hoverStep(this.strip.find(event.target)));
    this.strip.root.addEventListener("pointerleave", () => this.#hoverStep(-1));
    this.charts.onselect = (at, chosen) => (chosen ? this.#choose(at) : this.#hoverStep(at));
    this.root.addEventListener("keydown", (event) => this.#escape(event));
    const { signal } = this.#left;
    const theme = new MutationObserver(() => this.charts.redraw());
    theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    signal.addEventListener("abort", () => theme.disconnect());
    if (!keys) return;
    document.addEventListener("keydown", (event) => this.#key(event), { signal });
    const size = new ResizeObserver(() => this.#fit());
    size.observe(document.body);
    signal.addEventListener("abort", () => size.disconnect());
    addEventListener("resize", () => this.#fit(), { signal });
  }

  // How far down the page the view begins: its height is what is left of the window.
  #fit() {
    if (!this.root.getClientRects().length) return;
    const top = Math.round(this.root.getBoundingClientRect().top + scrollY);
    if (top !== this.top) this.root.style.setProperty("--sd-top", `${(this.top = top)}px`);
  }

  get #lane() {
    return this.state.lanes[this.state.lane] ?? null;
  }

  // found: what `find` of the text or of the tree gives
  #subject({ token, step, piece, at }) {
    return { ...this.#subjectOf(at, step, piece.node, piece.count, piece.value.text), token };
  }

  #subjectOf(at, step, node, count = 0, text = (node < 0 ? step.next : step.nodes[node]).text) {
    return { lane: this.state.lane, header: this.#lane.header, at, step, node, count, text: text ?? "" };
  }

  #point(found) {
    if (!found) return;
    this.pointed = this.#subject(found);
    found.token.setAttribute("aria-describedby", this.tree.summary.id);
    this.#inspect();
  }

  #leave() {
    this.pointed = null;
    this.#inspect();
  }

  #hoverStep(at) {
    this.hovered = at;
    this.#light();
  }

  /** Pin what is under an element; again: take it off. beside: pin it beside the first */
  #pinUnder(found, beside) {
    if (!found) return;
    const subject = this.#subject(found);
    const pinned = this.pins.findIndex((pin) => same(pin, subject));
    if (pinned >= 0) this.pins.splice(pinned, 1);
    else if (this.pins.length && (beside || this.armed)) this.pins = [this.pins[0], subject];
    else this.pins = [subject];
    this.armed = false;
    this.pointed = pinned >= 0 ? null : subject;
    if (this.pins.length) {
      this.#tab("token");
      this.#select(subject);
    }
    this.#inspect();
    if (this.pins.length) this.inspector.root.scrollIntoView({ block: "nearest" });
  }

  #arm() {
    this.armed = !this.armed;
    this.pointed = null;
    this.#inspect();
  }

  #unpin() {
    this.pins = [];
    this.armed = false;
    this.pointed = null;
    this.#inspect();
  }

  // A column of the strip: the player rests there.
  #choose(at) {
    const index = this.timeline.stepAt(at);
    if (!this.seekStep(index)) return;
    this.pins = [];
    this.#inspect();
    const subject = this.#placed();
    if (subject) this.#select(subject);
  }

  #select({ lane, step, node, text }) {
    const detail = { lane, step: step.index, node, text };
    this.root.dispatchEvent(new CustomEvent("sd-select", { detail, bubbles: true }));
    this.onselect(detail);
  }

  /** The token that the player's place is about: the one just judged, else the target's own. */
  #placed() {
    const at = (this.#lane?.steps.length ?? 0) - 1;
    const step = this.#lane?.steps[at];
    if (!step) return null;
    const node = step.open ? (tested(step).at(-1) ?? (step.nodes.length ? 0 : null)) : step.next ? -1 : (step.path.at(-1) ?? null);
    return node === null ? null : this.#subjectOf(at, step, node);
  }

  #findLatest() {
    const steps = this.#lane?.steps ?? [];
    const at = steps.findLastIndex((step) => step.nodes.some((node) => node.status === "rejected"));
    const step = steps[at];
    this.latest = step ? this.#subjectOf(at, step, step.nodes.findIndex((node) => node.status === "rejected")) : null;
    if (this.#moving || this.timeline.atEnd) this.#inspect();
  }

  /** What the inspector is about, and why: pinned, pointed at, at the place where the player rests, or the latest refusal. */
  #subjects() {
    if (this.pins.length) {
      const second = this.armed && this.pins.length < 2 && this.pointed && !same(this.pointed, this.pins[0]) ? [this.pointed] : [];
      return { why: "pinned", subjects: [...this.pins, ...second] };
    }
    if (this.pointed) return { why: "pointed", subjects: [this.pointed] };
    const placed = this.#moving || this.timeline.atEnd ? null : this.#placed();
    if (placed) return { why: "place", subjects: [placed] };
    return { why: "latest", subjects: this.latest && this.latest.at < (this.#lane?.steps.length ?? 0) ? [this.latest] : [] };
  }

  #inspect() {
    const { why, subjects } = this.#subjects();
    if (why === "place") this.drawPlaced();
    else this.#drawInspector();
    this.stage.classList.toggle("sd-comparing", subjects.length > 1);
    this.tabs.hidden = !this.#lane?.trees;
    this.side.classList.toggle("sd-with-tree", !this.tabs.hidden);
    this.#light();
  }

  #drawInspector() {
    for (const pin of this.#marked) pin.token.classList.remove("sd-pinned");
    this.#marked = [...this.pins];
    for (const pin of this.#marked) pin.token.classList.add("sd-pinned");
    const { why, subjects } = this.#subjects();
    this.inspector.render(subjects, { why, armed: this.armed, source: this.state.source.kind });
    const told = why === "place" ? subjects[0] : this.pointed;
    if (told === this.told) return;
    this.told = told;
    const sentence = told ? this.inspector.summary(told) : "";
    this.tree.say(sentence);
    if (why === "place") say(this.live, sentence);
  }

  /** Place in the shown lane of the step that every part lights, or -1. */
  #litAt() {
    if (this.hovered >= 0) return this.hovered;
    const { why, subjects } = this.#subjects();
    const [subject] = why === "latest" ? [] : [this.pointed ?? subjects[0]];
    return subject && subject.lane === this.state.lane ? subject.at : -1;
  }

  #litStep() {
    return this.state.lane === "speculative" ? (this.#lane?.steps[this.#litAt()]?.index ?? -1) : -1;
  }

  /** Light the same step in the text, the strip, the tree and the charts. */
  #light() {
    const at = this.#litAt();
    const parts = [this.text.stepElement(at), this.strip.columnElement(at)];
    if (parts.every((part, i) => part === this.#lit[i])) return;
    for (const part of this.#lit) part?.classList.remove("sd-lit");
    for (const part of parts) part?.classList.add("sd-lit");
    this.#lit = parts;
    this.drawTree();
    this.drawHighlight();
  }

  // Keys of the player, wherever the focus is that does not want them itself.
  #key(event) {
    if (event.defaultPrevented) return;
    if (event.key === "Escape" && this.pins.length && event.target === document.body) {
      this.#unpin();
      return;
    }
    shortcuts(event);
    if (!this.root.getClientRects().length || event.target.closest?.(TYPING)) return;
    if ((event.key === " " || event.key === "Enter") && event.target.closest?.(PRESSED)) return;
    this.transport.key(event);
  }

  // Escape first takes off what is pinned, then, as elsewhere on the page, stops the run.
  #escape(event) {
    if (event.key !== "Escape" || event.defaultPrevented || !(this.pins.length || this.armed)) return;
    event.preventDefault();
    this.#unpin();
  }

  async #open() {
    const [file] = this.file.files;
    this.file.value = "";
    if (!file) return;
    const { items, line, problem } = readTrace(await file.text());
    const words = this.words.trace;
    if (!items.length) {
      const message = fill(problem ? words.foreign : words.nothing, { name: file.name, line, problem });
      this.take([{ type: "notice", message, unharmed: words.unharmed, advice: words.advice }], false);
      return;
    }
    const lines = [{ type: "open", source: "recorded", key: file.name, title: file.name }];
    if (problem) lines.push({ type: "notice", message: fill(words.cut, { name: file.name, line, problem, count: items.length }) });
    this.take([...lines, ...items], true);
  }

  // Plotly is large and comes after the text.
  #whenPlotly() {
    if (this.#left.signal.aborted) return;
    if (globalThis.Plotly) this.charts.redraw();
    else setTimeout(() => this.#whenPlotly(), 100);
  }
}

const same = (one, other) => one.lane === other.lane && one.step.index === other.step.index && one.node === other.node && one.count === other.count;

// Writing what stands there already would make the browser lay the line out again.
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// One entry of the legend.
function key(words, status) {
  const sample = el("span", { class: `sd-token sd-${status}` }, el("span", { class: "sd-mark" }, words.status[status]));
  return el("li", { title: words.meaning[status] }, sample);
}

/** What is going on, as one word. */
export function phase(state, { playing, atEnd, running, held }) {
  if (state.source.waiting) return "waiting";
  const lane = state.lane ? state.lanes[state.lane] : null;
  if (!lane) return "empty";
  if (lane.end === null) {
    if (!playing && !atEnd) return running ? "behind" : "paused";
    if (held && running) return "held";
    if (state.source.kind === "recorded") return playing ? "playing" : "cut";
    if (state.problems.length) return "cut";
    return lane.steps.length === 0 ? "reading" : state.lane;
  }
  if (lane.end === "failed" || lane.end === "cancelled") return lane.end;
  if (state.lane === "plain") return state.source.kind === "live" ? "plain_done" : "done_alone";
  return state.lanes.plain?.tokens ? "done" : "done_alone";
}

function about(words, state, { header }) {
  const recorded = state.source.kind === "recorded";
  const how = [words.methods[header.method] ?? header.method, modelName(header.target)];
  const where = [recorded ? (header.started_at ?? "").slice(0, 10) : "", header.machine];
  const parts = [state.source.title, ...(recorded ? [...where, ...how] : [...how, ...where])];
  if (header.cached_tokens) parts.push(fill(words.reused, { cached: header.cached_tokens, all: header.prompt_tokens }));
  return parts.filter(Boolean).join(" · ");
}

const modelName = (target) => (target ? [target.name, target.precision].filter(Boolean).join(" ") : "");

function shortcuts(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    // The prompt's last keys reach the server with the change event that leaving the box fires.
    setTimeout(() => document.getElementById("sd-run")?.click(), 0);
  }
  if (event.key === "Escape") document.getElementById("sd-stop")?.click();
}
