// The view of a run: reads its growing text, folds it into one state, and lets every part draw that state.

import { ChartsView } from "../charts/charts.js";
import { LineReader } from "../core/lines.js";
import { acceptRate, speedup, tokensPerSecond, two } from "../core/metrics.js";
import { Player } from "../core/player.js";
import { fill } from "../core/sentence.js";
import { Timeline } from "../core/timeline.js";
import { calm } from "../parts/dom.js";
import { InspectorView } from "../parts/inspector.js";
import { NumbersView } from "../parts/numbers.js";
import { StripView } from "../parts/strip.js";
import { TextView } from "../parts/text.js";
import { Transport } from "../parts/transport.js";
import { TreeView } from "../parts/treeview.js";
import { exportMenu } from "./export.js";
import { phaseOf } from "./headline.js";
import { takeKey } from "./keyboard.js";
import { Layout } from "./layout.js";
import { fetchRun, readFile } from "./opening.js";
import { Selection } from "./selection.js";

/**
 * Build the view inside `element`; `read()` gives the stream's text, `watch(call)` calls when it has grown.
 * keys: whether it takes the page's keys and the height of the window; false for a view that is a part of something else
 * onselect(detail): called as the event "sd-select" of the root is, with { lane, step, node, text } of what was chosen
 */
export function mount(element, { read, watch, words, keys = true, onselect = () => {} }) {
  const view = new View(words, { keys, onselect });
  element.classList.add("sd-view-box");
  element.replaceChildren(view.root);
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

/** The controller: lines become a state, what one does becomes a selection, and the parts draw both. */
class View {
  timeline = new Timeline();
  recorded = false;
  #words;
  #onselect;
  #opening = null;
  #frame = 0;
  #announced = ""; // the phase that a screen reader knows
  /** @type {import("./selection.js").Subject | null} */
  #summarized = null; // the subject whose summary stands below the tree
  #lit = []; // elements that are lit
  #marked = []; // subjects that are marked as pinned
  #left = new AbortController(); // ends what listens outside of the root

  constructor(words, { keys, onselect }) {
    this.#words = words;
    this.#onselect = onselect;
    this.player = new Player(this.timeline, () => this.#moved());
    this.selection = new Selection(this);
    this.transport = new Transport(this.timeline, this.player, words.transport);
    this.text = new TextView(words);
    this.strip = new StripView(words, (at) => this.#choose(at));
    this.tree = new TreeView(words);
    this.inspector = new InspectorView(words, { unpin: () => this.#unpin(), compare: () => this.#arm() });
    this.numbers = new NumbersView(words);
    this.charts = new ChartsView(words);
    const save = exportMenu(this, words.export, (message) => this.take([{ type: "notice", message }], false));
    this.layout = new Layout(words, this, { save, open: (file) => this.#open(file) });
    this.drawNumbers = calm(250, () => this.numbers.render(this.state));
    this.drawTree = calm(120, () => this.tree.render(this.state, this.selection.lit));
    this.drawCharts = calm(400, () => this.charts.render(this.state));
    this.drawHighlight = calm(150, () => this.charts.highlight(this.#litStep));
    this.drawPlaced = calm(100, () => this.#drawInspector());
    this.drawLatest = calm(1500, () => this.#findLatest());
    this.#listen(keys);
    this.#whenPlotly();
    this.#paint();
  }

  get root() {
    return this.layout.root;
  }

  /** The fold of the run up to the place that is shown. */
  get state() {
    return this.timeline.state;
  }

  /** The run's own events, without the page's lines: what is saved and exported. */
  get events() {
    return this.timeline.events;
  }

  /** Whether the player rests at a place of its own, neither moving nor at the end. */
  get resting() {
    return !this.#moving && !this.timeline.atEnd;
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

  /** A button in the line above the text. returns: the button */
  addTool(label, act) {
    return this.layout.addTool(label, act);
  }

  /** Take the view off the page; nothing of it stays behind. */
  destroy() {
    this.player.pause();
    cancelAnimationFrame(this.#frame);
    this.#left.abort();
    this.root.remove();
  }

  // ---- lines

  // A recorded run may be a file beside the script; another stream may have begun when it arrives.
  async #openRecorded(opening, items) {
    this.#opening = opening;
    this.recorded = opening.source === "recorded";
    this.root.dataset.run = opening.run ?? "";
    if (!opening.run || items.length > 1) return;
    const lines = await fetchRun(opening, this.#words.trace);
    if (this.#opening === opening) this.take(lines, true);
  }

  async #open(file) {
    const lines = await readFile(file, this.#words.trace);
    this.take(lines, lines.length > 1);
  }

  #reset() {
    this.player.pause();
    this.timeline = this.player.timeline = this.transport.timeline = new Timeline();
    this.recorded = false;
    this.#announced = "";
    this.selection.clear();
    this.text.clear();
    this.strip.clear();
  }

  // A recorded run plays by itself; where motion is not wanted it stands there whole.
  #begin() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.timeline.seek(this.timeline.last);
    else this.player.play();
  }

  // ---- what is going on

  /** Whether more of the run is still to come by itself. */
  get #running() {
    const last = this.events.at(-1)?.type;
    return !this.recorded && last !== undefined && last !== "finished" && last !== "failed" && !this.state.problems.length;
  }

  /** Whether the run moves by itself just now, so that nothing rests at its place. */
  get #moving() {
    return this.player.playing || (this.#running && this.timeline.atEnd && !this.timeline.held);
  }

  get #lane() {
    return this.state.lanes[this.state.lane ?? ""] ?? null;
  }

  get #litStep() {
    return this.state.lane === "speculative" ? (this.#lane?.steps[this.selection.lit]?.index ?? -1) : -1;
  }

  // ---- drawing

  #changed() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#paint();
    });
  }

  #paint() {
    const { state, layout } = this;
    this.text.render(state);
    this.strip.render(state);
    this.transport.render({ live: this.#running });
    const phase = phaseOf(state, { playing: this.player.playing, atEnd: this.timeline.atEnd, running: this.#running, held: this.timeline.held });
    layout.headline.render(state, phase);
    layout.warn({ lossy: Boolean(this.#lane?.header.lossy) });
    layout.save.hidden = !this.events.length;
    layout.showProblems(state.problems);
    this.#announce(phase);
    this.#inspect();
    this.text.follow();
    this.strip.follow();
    this.drawTree();
    this.drawNumbers();
    this.drawCharts();
    this.drawLatest();
  }

  #announce(phase) {
    if (this.#announced === phase) return;
    this.#announced = phase;
    const { plain, speculative } = this.state.lanes;
    this.layout.announce(fill(this.#words.announce[phase] ?? "", {
      speedup: two(speedup(plain, speculative)),
      fast: two(tokensPerSecond(speculative)),
      plain: two(tokensPerSecond(plain)),
      accepted: two(speculative ? (acceptRate(speculative) ?? 0) * 100 : null),
    }));
  }

  #inspect() {
    const { why, subjects } = this.selection.shown();
    if (why === "place") this.drawPlaced();
    else this.#drawInspector();
    this.layout.arrange({ comparing: subjects.length > 1, trees: Boolean(this.#lane?.trees) });
    this.#light();
  }

  #drawInspector() {
    for (const pin of this.#marked) pin.token.classList.remove("sd-pinned");
    this.#marked = [...this.selection.pins];
    for (const pin of this.#marked) pin.token.classList.add("sd-pinned");
    const { why, subjects } = this.selection.shown();
    this.inspector.render(subjects, { why, armed: this.selection.armed, source: this.state.source.kind });
    const subject = why === "place" ? subjects[0] : this.selection.pointed;
    if (subject === this.#summarized) return;
    this.#summarized = subject;
    const sentence = subject ? this.inspector.summary(subject) : "";
    this.tree.say(sentence);
    if (why === "place") this.layout.announce(sentence);
  }

  /** Light the same step in the text, the strip, the tree and the charts. */
  #light() {
    const at = this.selection.lit;
    const parts = [this.text.stepElement(at), this.strip.columnElement(at)];
    if (parts.every((part, i) => part === this.#lit[i])) return;
    for (const part of this.#lit) part?.classList.remove("sd-lit");
    for (const part of parts) part?.classList.add("sd-lit");
    this.#lit = parts;
    this.drawTree();
    this.drawHighlight();
  }

  #findLatest() {
    this.selection.findLatest();
    if (!this.resting) this.#inspect();
  }

  // Plotly is large and comes after the text.
  #whenPlotly() {
    if (this.#left.signal.aborted) return;
    if (globalThis.Plotly) this.charts.redraw();
    else setTimeout(() => this.#whenPlotly(), 100);
  }

  // ---- what one does

  #listen(keys) {
    for (const part of [this.text, this.tree]) {
      for (const type of ["pointerover", "focusin"]) part.root.addEventListener(type, (event) => this.#point(part.find(event.target)));
      part.root.addEventListener("pointerleave", () => this.#moving && this.#leave());
      part.root.addEventListener("click", (event) => this.#pin(part.find(event.target), event.shiftKey));
      part.root.addEventListener("keydown", (event) => {
        const found = event.key === "Enter" && part.find(event.target);
        if (!found) return;
        event.preventDefault();
        this.#pin(found, event.shiftKey);
      });
    }
    this.tree.summary.id = `sd-summary-${Math.random().toString(36).slice(2)}`;
    this.strip.root.addEventListener("pointerover", (event) => this.#hover(this.strip.find(event.target)));
    this.strip.root.addEventListener("pointerleave", () => this.#hover(-1));
    this.charts.onselect = (at, chosen) => (chosen ? this.#choose(at) : this.#hover(at));
    this.root.addEventListener("keydown", (event) => this.#escape(event));
    const { signal } = this.#left;
    const theme = new MutationObserver(() => this.charts.redraw());
    theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    signal.addEventListener("abort", () => theme.disconnect());
    if (keys) this.#listenToPage(signal);
  }

  #listenToPage(signal) {
    const unpin = () => Boolean(this.selection.pins.length) && this.#unpin();
    document.addEventListener("keydown", (event) => takeKey(event, { root: this.root, transport: this.transport, unpin }), { signal });
    const size = new ResizeObserver(() => this.layout.fit());
    size.observe(document.body);
    signal.addEventListener("abort", () => size.disconnect());
    addEventListener("resize", () => this.layout.fit(), { signal });
  }

  // Who moves the player looks at its place, not at what the pointer happens to rest on.
  #moved() {
    if (!this.player.playing) this.selection.release();
    this.#changed();
  }

  #point(found) {
    if (!found) return;
    this.selection.pointed = this.selection.subject(found);
    found.token.setAttribute("aria-describedby", this.tree.summary.id);
    this.#inspect();
  }

  #leave() {
    this.selection.pointed = null;
    this.#inspect();
  }

  #hover(at) {
    this.selection.hovered = at;
    this.#light();
  }

  #pin(found, beside) {
    if (!found) return;
    const subject = this.selection.subject(found);
    this.selection.pin(subject, { beside });
    const pinned = this.selection.pins.length > 0;
    if (pinned) {
      this.layout.tab("token");
      this.#select(subject);
    }
    this.#inspect();
    if (pinned) this.inspector.root.scrollIntoView({ block: "nearest" });
  }

  #arm() {
    this.selection.arm();
    this.#inspect();
  }

  #unpin() {
    this.selection.unpin();
    this.#inspect();
    return true;
  }

  // A column of the strip: the player rests there.
  #choose(at) {
    if (!this.seekStep(this.timeline.stepAt(at))) return;
    this.selection.pins = [];
    this.#inspect();
    const subject = this.selection.placed();
    if (subject) this.#select(subject);
  }

  #select({ lane, step, node, text }) {
    const detail = { lane, step: step.index, node, text };
    this.root.dispatchEvent(new CustomEvent("sd-select", { detail, bubbles: true }));
    this.#onselect(detail);
  }

  // Escape first takes off what is pinned, then, as elsewhere on the page, stops the run.
  #escape(event) {
    if (event.key !== "Escape" || event.defaultPrevented || !(this.selection.pins.length || this.selection.armed)) return;
    event.preventDefault();
    this.#unpin();
  }
}
