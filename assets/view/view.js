// The view: reads the growing text of a run, folds it into one state and draws that state.

import { ChartsView } from "./charts.js";
import { calm, el, fill } from "./dom.js";
import { LineReader, isEvent, readTrace } from "./lines.js";
import { acceptRate, speedup, tokensPerSecond, two } from "./metrics.js";
import { NumbersView } from "./numbers.js";
import { Player } from "./player.js";
import { fetchRun } from "./runs.js";
import { Popover } from "./popover.js";
import { StripView } from "./strip.js";
import { TextView } from "./text.js";
import { Timeline } from "./timeline.js";
import { Transport } from "./transport.js";
import { TreeView } from "./treeview.js";

const LEGEND = ["accepted", "rejected", "unreached", "correction", "bonus", "plain"];

/** Build the view inside `element`; `read()` gives the stream's text, `watch(call)` tells of its growth. */
export function mount(element, { read, watch, words }) {
  const view = new View(element, words);
  const reader = new LineReader();
  const consume = () => {
    const { restarted, items } = reader.read(read() ?? "");
    view.take(items, restarted);
  };
  watch(consume);
  consume();
  return view;
}

class View {
  constructor(element, words) {
    this.words = words;
    this.timeline = new Timeline();
    this.player = new Player(this.timeline, () => this.#changed());
    this.frame = 0;
    this.transport = new Transport(this.timeline, this.player, words.transport);
    this.text = new TextView(words);
    this.strip = new StripView(words);
    this.tree = new TreeView(words);
    this.numbers = new NumbersView(words);
    this.charts = new ChartsView(words);
    this.popover = new Popover(words);
    this.#build(element);
    this.drawNumbers = calm(250, () => this.numbers.render(this.state));
    this.drawTree = calm(120, () => this.tree.render(this.state, this.lit ?? -1));
    this.drawCharts = calm(200, () => this.charts.render(this.state));
    this.#listen();
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
    this.#light(-1);
    this.timeline = this.player.timeline = this.transport.timeline = new Timeline();
    this.recorded = false;
    this.said = "";
    this.popover.hide();
    this.text.clear();
    this.strip.clear();
  }

  // A recorded run plays by itself; where motion is not wanted it stands there whole.
  #begin() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.timeline.seek(this.timeline.last);
    else this.player.play();
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
    this.transport.render({ live: !this.recorded });
    this.#paintStatus();
    this.#paintProblems();
    this.drawTree();
    this.drawNumbers();
    this.drawCharts();
  }

  #paintStatus() {
    const { state, words } = this;
    const lane = state.lane ? state.lanes[state.lane] : null;
    const kind = state.source.kind;
    const lossy = Boolean(lane?.header.lossy);
    this.lossy.hidden = !lossy;
    this.root.classList.toggle("sd-is-lossy", lossy);
    for (const [status, item] of Object.entries(this.legend)) {
      item.title = (lossy && words.explain_lossy[status]) || words.meaning[status];
    }
    this.badge.textContent = lane ? words.source[kind] : "";
    this.badge.className = `sd-badge sd-badge-${kind}`;
    const name = phase(state, { playing: this.player.playing, atEnd: this.timeline.atEnd });
    const sentence = (lossy && words.phase_lossy[name]) || words.phase[name] || "";
    this.phase.textContent = fill(sentence, { speedup: two(speedup(state.lanes.plain, state.lanes.speculative)) });
    this.about.textContent = lane ? about(words, state, lane) : "";
    this.about.title = this.about.textContent;
    this.save.disabled = !this.events.length;
    this.#announce(name, state);
  }

  #announce(name, { lanes }) {
    if (this.said === name) return;
    this.said = name;
    const { plain, speculative } = lanes;
    this.live.textContent = fill(this.words.announce[name] ?? "", {
      speedup: two(speedup(plain, speculative)),
      fast: two(tokensPerSecond(speculative)),
      plain: two(tokensPerSecond(plain)),
      accepted: two(speculative ? (acceptRate(speculative) ?? 0) * 100 : null),
    });
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
    const button = (label, run) => {
      const node = el("button", { type: "button", class: "sd-button", onclick: run });
      node.textContent = label;
      return node;
    };
    this.badge = el("span", { class: "sd-badge" });
    this.lossy = el("span", { class: "sd-lossy", title: words.lossy_hint });
    this.lossy.textContent = words.lossy;
    this.lossy.hidden = true;
    this.phase = el("span", { class: "sd-phase" });
    this.about = el("span", { class: "sd-about" });
    this.live = el("div", { class: "sd-hidden", "aria-live": "polite" });
    this.problems = el("div", { class: "sd-problems" });
    this.save = button(words.save, () => this.#save());
    this.file = el("input", { type: "file", accept: ".jsonl,.json,.txt", class: "sd-hidden", tabindex: "-1", "aria-label": words.open });
    this.file.addEventListener("change", () => this.#open());
    const open = button(words.open, () => this.file.click());
    this.hide = button(words.hide_drafts, () => this.#toggleDrafts());
    this.hide.setAttribute("aria-pressed", "false");
    this.legend = Object.fromEntries(LEGEND.map((status) => [status, key(words, status)]));
    const tools = el("div", { class: "sd-tools" }, this.hide, this.save, open, this.file);
    this.stage = el("div", { class: "sd-stage" },
      el("div", { class: "sd-status" }, this.badge, this.lossy, this.phase, this.about, tools),
      this.problems, el("div", { class: "sd-middle" }, this.text.root, this.tree.root), this.popover.root,
      el("div", { class: "sd-foot" }, el("ul", { class: "sd-legend", "aria-label": words.legend }, ...Object.values(this.legend)), this.strip.root, this.transport.root));
    this.root = el("div", { class: "sd-root" }, this.numbers.root, this.stage, this.charts.root, this.live);
    element.replaceChildren(this.root);
  }

  #toggleDrafts() {
    const hidden = this.root.classList.toggle("sd-final-only");
    this.hide.setAttribute("aria-pressed", String(hidden));
  }

  #listen() {
    for (const part of [this.text, this.tree]) {
      part.root.addEventListener("pointerover", (event) => this.#point(part, event.target));
      part.root.addEventListener("focusin", (event) => this.#point(part, event.target));
      part.root.addEventListener("pointerleave", () => this.#point(part, null));
      part.root.addEventListener("scroll", () => part.root.contains(this.popover.owner) && this.popover.hide(), { passive: true, capture: true });
    }
    this.text.root.addEventListener("keydown", (event) => this.#walk(event));
    this.strip.root.addEventListener("pointerover", (event) => this.#light(this.strip.find(event.target)));
    this.strip.root.addEventListener("pointerleave", () => this.#light(-1));
    new MutationObserver(() => this.charts.redraw()).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  #point(part, target) {
    const found = target ? part.find(target) : null;
    const inTree = part === this.tree;
    const how = { lossy: Boolean(this.#lane?.header.lossy), clear: inTree ? this.tree.root : null };
    if (found) this.popover.show(found.token, found.step, found.piece, this.stage, how);
    else this.popover.hide();
    this.#light(target && inTree ? this.tree.at : found ? Number(found.token.closest(".sd-step").dataset.step) : -1);
  }

  get #lane() {
    return this.state.lane ? this.state.lanes[this.state.lane] : null;
  }

  /** Light the same step in the text, the strip, the tree and the charts. */
  #light(step) {
    if (this.lit === step) return;
    for (const part of [this.text.stepElement(this.lit), this.strip.columnElement(this.lit)]) part?.classList.remove("sd-lit");
    for (const part of [this.text.stepElement(step), this.strip.columnElement(step)]) part?.classList.add("sd-lit");
    this.lit = step;
    if (step >= 0) this.tree.render(this.state, step);
    this.charts.highlight(this.state.lane === "speculative" ? (this.#lane?.steps[step]?.index ?? -1) : -1);
  }

  // Arrow keys move the focus from token to token.
  #walk(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const tokens = [...this.text.body.querySelectorAll(".sd-token")].filter((token) => token.getClientRects().length);
    const at = tokens.indexOf(document.activeElement);
    const next = tokens[at < 0 ? 0 : at + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  // Keys of the player, wherever the focus is that does not want them itself.
  #key(event) {
    if (event.defaultPrevented) return;
    shortcuts(event);
    const own = event.target.closest?.("input, textarea, select, button, a, summary, [role=slider], [role=listbox], [contenteditable], .sd-token, .sd-tree");
    if (!own && this.root.getClientRects().length) this.transport.key(event);
  }

  #save() {
    const text = this.events.map((item) => `${JSON.stringify(item)}\n`).join("");
    const url = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
    el("a", { href: url, download: "specdemo-trace.jsonl" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
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
    if (globalThis.Plotly) this.charts.redraw();
    else setTimeout(() => this.#whenPlotly(), 100);
  }
}

// One entry of the legend.
function key(words, status) {
  const sample = el("span", { class: `sd-token sd-${status}` }, el("span", { class: "sd-mark" }, words.status[status]));
  return el("li", { title: words.meaning[status] }, sample);
}

/** What is going on, as one word. */
export function phase(state, { playing, atEnd }) {
  if (state.source.waiting) return "waiting";
  const lane = state.lane ? state.lanes[state.lane] : null;
  if (!lane) return "empty";
  if (lane.end === null) {
    if (!playing && !atEnd) return "paused";
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
