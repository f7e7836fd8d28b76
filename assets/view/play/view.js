// The view of a run: reads its growing text, folds it into one state, and lets every part draw that state.

import { ChartsView } from "../charts/charts.js";
import { readLines, readTrace } from "../core/lines.js";
import { readState } from "../core/permalink.js";
import { Player } from "../core/player.js";
import { isBroken } from "../core/reducer.js";
import { Timeline } from "../core/timeline.js";
import { BesideView } from "../parts/beside.js";
import { InspectorView } from "../parts/inspector.js";
import { NumbersView } from "../parts/numbers.js";
import { PictureView } from "../parts/picture.js";
import { StripView } from "../parts/strip.js";
import { TextView } from "../parts/text.js";
import { Transport } from "../parts/transport.js";
import { TreeView } from "../parts/treeview.js";
import { Drawing } from "./drawing.js";
import { exportMenu } from "./export.js";
import { Gestures } from "./gestures.js";
import { Layout } from "./layout.js";
import { Next } from "./next.js";
import { fetchRun, opened, readFile } from "./runs.js";
import { Selection } from "./selection.js";

/**
 * @import { Line, Open } from "../core/state"
 * @import { Verified } from "../types"
 * @import { Given, Words } from "../parts/page"
 * @typedef {{ step?: number, token?: number }} Place numbers of a step and of one of its nodes in the trace, -1 for the target's own token
 * @typedef {HTMLElement & { view?: View }} Mounted
 */

/**
 * Build the view inside `element`; `read()` gives the stream's text, `watch(call)` calls when it has grown.
 * keys: whether it takes the page's keys and the height of the window; false for a view that is a part of something else
 * @param {Mounted} element @param {Given & { keys?: boolean }} given
 */
export function mount(element, { read, watch, words, keys = true }) {
  const view = new View(words, keys);
  element.classList.add("sd-view-box");
  element.replaceChildren(view.root);
  element.view = view; // the lab asks it for the visitor's last run
  readLines({ read, watch }, (items, restarted) => view.take(items, restarted));
  return view;
}

/** The controller: lines become a state, what one does becomes a selection, and the parts draw both. */
export class View {
  timeline = new Timeline();
  recorded = false;
  #words;
  #keys;
  #asked = ""; // what the prompt box holds that was not run
  /** @type {Open | null} */
  #opening = null;
  /** Where the next recorded run is to rest. @type {Place} */
  wanted = {};

  /** @param {Words} words @param {boolean} keys */
  constructor(words, keys) {
    this.#words = words;
    this.#keys = keys;
    if (keys) this.wanted = readState(globalThis.location?.search ?? "");
    this.player = new Player(this.timeline, () => this.#moved());
    this.selection = new Selection(this);
    this.transport = new Transport(this.timeline, this.player, words.transport);
    this.player.ticked = () => this.beside.render(this.state, this.player.now);
    this.text = new TextView(words);
    this.beside = new BesideView(words.beside);
    this.picture = new PictureView(words.picture, (place) => {
      this.selection.recalled = place;
      this.drawing.light();
    });
    this.strip = new StripView(words, (at) => this.gestures.choose(at));
    this.tree = new TreeView(words);
    this.inspector = new InspectorView(words, { unpin: () => this.gestures.unpin(), compare: () => this.gestures.arm() });
    this.numbers = new NumbersView(words);
    this.charts = new ChartsView(words);
    this.next = new Next(this, words.next);
    this.text.flow.append(this.next.root);
    if (keys) this.text.root.id = "sd-text";
    const save = exportMenu(this, words.export, (message) => this.take([{ type: "notice", message, aside: true }], false));
    this.layout = new Layout(words, this, { save, open: (file) => this.#open(file) });
    if (keys) this.layout.entry(words.batch.open, openBatch, "sd-batch-entry");
    this.drawing = new Drawing(this, words);
    this.gestures = new Gestures(this, this.drawing);
    this.gestures.listen(keys);
    this.drawing.paint();
  }

  get root() {
    return this.layout.root;
  }

  /** The fold of the run up to the place that is shown. */
  get state() {
    return this.timeline.state;
  }

  /** The lane that is shown, or null. */
  get lane() {
    return this.state.lanes[this.state.lane ?? ""] ?? null;
  }

  /** The run's own events, without the page's lines: what is saved and exported. */
  get events() {
    return this.timeline.events;
  }

  /** Whether more of the run is still to come by itself. */
  get running() {
    const { lanes } = this.state;
    const ended = this.events.filter(({ type }) => type === "finished" || type === "failed").length;
    return !this.recorded && ended < Object.keys(lanes).length && !isBroken(this.state);
  }

  /** Whether the run moves by itself just now, so that nothing rests at its place. */
  get moving() {
    return this.player.playing || (this.running && this.timeline.atEnd && !this.timeline.held);
  }

  /** Whether the player rests at a place of its own, neither moving nor at the end. */
  get resting() {
    return !this.moving && !this.timeline.atEnd;
  }

  /** Whether another question is asked than the one that is answered here. */
  get stale() {
    const shown = this.lane?.header.prompt;
    return Boolean(this.#asked) && shown !== undefined && !this.running && this.#asked !== shown.trim();
  }

  /** The prompt box holds this text now. @param {string} prompt */
  ask(prompt) {
    this.#asked = prompt.trim();
    this.drawing.soon();
  }

  /** Rest at the first rejection, with the rejected token pinned. */
  explain() {
    const step = this.timeline.stops.find(({ rejection }) => rejection)?.step ?? -1;
    this.show({ step, token: this.#verdict(step)?.nodes.findIndex(({ status }) => status === "rejected") });
  }

  /** Where the player rests, or what is pinned; nothing while the run moves or stands at its end. @returns {Place} */
  get place() {
    const { wanted } = this; // it is on its way
    if (wanted.step !== undefined) return { step: wanted.step, token: wanted.token };
    const [pin] = this.selection.pins;
    if (pin && !pin.count) return { step: pin.step.index, token: pin.node };
    const step = this.resting ? this.timeline.stops[this.timeline.at].step : -1;
    return step < 0 ? {} : { step };
  }

  /** Rest at a step, with one of its tokens pinned. returns: whether there is such a step @param {Place} place */
  show({ step = -1, token }) {
    if (!this.#verdict(step)) return false;
    this.seekStep(step);
    this.selection.unpin();
    const subject = token === undefined ? null : this.selection.named(step, token);
    if (subject) {
      this.selection.pin(subject, { beside: false });
      this.layout.tab("token");
    }
    this.drawing.inspect();
    return true;
  }

  /** The check of a step of the shown lane. @param {number} step */
  #verdict(step) {
    const { shown, events } = this.timeline;
    return /** @type {Verified | undefined} */ (events.find((item) => item.type === "verified" && item.lane === shown && item.step === step));
  }

  /** Show a run of this visit again. @param {string} trace */
  restore(trace) {
    this.take(opened(readTrace(trace), this.#words.trace.yours, this.#words.trace), true);
  }

  /** Name of the stream on show. */
  get key() {
    return this.#opening?.key ?? "";
  }

  /** New lines of the stream; `restarted` when they begin another one. @param {Line[]} items @param {boolean} restarted */
  take(items, restarted) {
    if (restarted) this.#reset();
    const opening = items.find((item) => item.type === "open");
    if (opening) this.#openRecorded(opening, items);
    if (items.length) this.timeline.push(items, { follow: !this.recorded });
    if (opening && this.recorded && this.events.length) this.#begin();
    if (items.length || restarted) this.drawing.soon();
    const over = this.#keys && !this.recorded && !this.running && items.some(({ type }) => type === "finished");
    if (over) document.dispatchEvent(new CustomEvent("specdemo-ended"));
  }

  /** Show the events of a recorded run at rest at its beginning, in place of what is there. @param {Line[]} items */
  load(items) {
    this.take([{ type: "open", source: "recorded", key: "", title: "" }, ...items], true);
    this.seekStep(-1);
  }

  /** Rest at a step of the shown lane as it was judged; -1 is the beginning. returns: whether there is such a step @param {number} step */
  seekStep(step) {
    const at = step < 0 ? 0 : this.timeline.stopOf(step);
    if (at < 0) return false;
    this.player.pause();
    this.player.seek(at);
    return true;
  }

  /** A recorded run may be a file beside the script; another stream may have begun when it arrives. @param {Open} opening @param {Line[]} items */
  async #openRecorded(opening, items) {
    this.#opening = opening;
    this.recorded = opening.source === "recorded";
    this.root.dataset.run = opening.run ?? "";
    if (this.#keys) document.dispatchEvent(new CustomEvent("specdemo-shown", { detail: opening.run ?? "" }));
    if (!opening.run || items.length > 1) return;
    const lines = await fetchRun(opening, this.#words.trace);
    if (this.#opening === opening) this.take(lines, true);
  }

  async #open(/** @type {File} */ file) {
    const lines = await readFile(file, this.#words.trace);
    this.take(lines, lines.length > 1);
  }

  #reset() {
    this.player.pause();
    this.player.pace = 1;
    this.#asked = "";
    this.timeline = this.player.timeline = this.transport.timeline = new Timeline();
    this.recorded = false;
    this.selection.clear();
    this.drawing.clear();
  }

  // A recorded run plays by itself; where motion is not wanted it stands there whole.
  #begin() {
    this.player.pace = paceOf(this.timeline.until);
    const { wanted } = this;
    this.wanted = {};
    if (this.show(wanted)) return;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.timeline.seek(this.timeline.last);
    else this.#play();
    const first = this.#opening?.key === "opening" && this.#keys && this.player.playing;
    this.layout.stage.classList.toggle("sd-first-sight", Boolean(first));
  }

  // The page itself has played the opening run since it arrived, see page/first.js: it goes on from there.
  #play() {
    const { begun, pace } = (this.#opening?.key === "opening" && this.#keys && document.getElementById("sd-first")?.dataset) || {};
    if (!begun) return this.player.play();
    this.player.pace = Number(pace);
    this.player.playFrom((performance.now() - Number(begun)) * this.player.pace);
  }

  // Who moves the player looks at its place, not at what the pointer happens to rest on.
  #moved() {
    if (!this.player.playing) {
      this.selection.release();
      this.layout.stage.classList.remove("sd-first-sight");
    }
    this.drawing.soon();
  }
}

/** Show the box of several prompts at once, below the view. */
function openBatch() {
  document.body.classList.add("sd-batch-open");
  const head = /** @type {HTMLElement | null} */ (document.querySelector("#sd-batch-box > button"));
  head?.click();
  head?.scrollIntoView({ block: "nearest" });
}

const WATCHED = 16_000; // milliseconds that the eye needs for a run of a hundred tokens, written without drafts
const PACES = [1, 1.5, 2, 3, 4, 6, 8, 10, 15, 20, 30, 40, 60, 100];

/** How a recorded run of so many milliseconds is slowed: to what the eye can follow. @param {number} time */
const paceOf = (time) => 1 / (PACES.find((slowed) => slowed * time >= WATCHED) ?? 100);
