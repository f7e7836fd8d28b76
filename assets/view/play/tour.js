// The first run that a browser sees: slowed, plain decoding on the same clock above it, and three sentences. Anything
// that one does ends it; it is shown once.

import { speedup, two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { closest, el, setText } from "../parts/dom.js";

/** @import { Words } from "../parts/page" */
/** @import { Verified } from "../types" */
/** @import { View } from "./view" */

const KEPT = "specdemo.introduced"; // in the browser's storage
const BEGIN_SECONDS = 4; // at the first guess
const REST_SECONDS = 6; // at the first rejection
const READ_SECONDS = 15; // the last sentence stands, at most
const PLAYER = new Set([" ", "ArrowLeft", "ArrowRight", "Home", "End", "n", "Escape"]);
const TYPING = "input, textarea, select, [contenteditable]";

/** Whether this browser has seen it; one that keeps nothing is not shown it either. */
export function introduced() {
  try {
    return localStorage.getItem(KEPT) !== null;
  } catch {
    return true;
  }
}

export class Tour {
  #view;
  #words;
  #timer = 0;
  #rested = false; // whether the first rejection was explained
  #ended = new AbortController();
  /** @type {{ time: number, text: string }[]} */
  #plain = [];

  /** Begin with the recorded run that the view shows. @param {View} view @param {Words} words */
  constructor(view, words) {
    this.#view = view;
    this.#words = words;
    try {
      localStorage.setItem(KEPT, "1");
    } catch {
      // Storage is blocked: it was asked for.
    }
    this.#plain = view.events.filter((item) => item.type === "verified" && item.lane === "plain").map((item) => {
      const { elapsed_seconds, next } = /** @type {Verified} */ (item);
      return { time: 1000 * elapsed_seconds, text: next?.text ?? "" };
    });
    this.sentence = el("p", {}, words.start);
    this.leave = el("button", { type: "button", class: "sd-button", onclick: () => this.skip() }, words.skip);
    this.caption = el("div", { class: "sd-tour", role: "group", "aria-label": words.label }, this.sentence, this.leave);
    this.counts = { plain: el("span", { class: "sd-tour-lane" }), drafted: el("span", { class: "sd-tour-lane" }) };
    this.slow = el("p", { class: "sd-tour-plain" });
    this.rows = el("div", { class: "sd-tour-rows", "aria-hidden": "true" }, this.counts.plain, this.slow, this.counts.drafted);
    this.rows.hidden = !this.#plain.length;
    view.text.body.before(this.rows);
    view.layout.stage.append(this.caption);
    view.layout.stage.classList.add("sd-touring");
    view.layout.announce(words.start);
    this.#listen();
    view.player.ticked = () => this.#tick();
    this.#tick();
    this.#timer = setTimeout(() => view.player.play(), 1000 * BEGIN_SECONDS);
  }

  /** Whether it still goes on. */
  get going() {
    return !this.#ended.signal.aborted;
  }

  #listen() {
    const { signal } = this.#ended;
    const { root, layout } = this.#view;
    document.addEventListener("keydown", (event) => {
      if (!PLAYER.has(event.key) || (event.key !== "Escape" && closest(event.target, TYPING))) return;
      if (event.key === " " && closest(event.target, "button, a, summary")) return;
      if (event.key !== "Escape") return this.end();
      event.preventDefault();
      this.skip();
    }, { capture: true, signal });
    root.addEventListener("pointerdown", (event) => closest(event.target, ".sd-foot, .sd-text, .sd-right") && this.end(), { signal });
    layout.stage.addEventListener("wheel", (event) => closest(event.target, ".sd-text") && this.end(), { signal, passive: true });
  }

  /** Show the run whole. */
  skip() {
    const { player, timeline } = this.#view;
    this.end();
    player.pause();
    player.seek(timeline.last);
  }

  /** Leave the run as it stands. */
  end() {
    clearTimeout(this.#timer);
    this.#ended.abort();
    this.#view.player.ticked = null;
    this.#view.layout.stage.classList.remove("sd-touring");
    this.caption.remove();
    this.rows.remove();
  }

  #tick() {
    const { player, timeline, state } = this.#view;
    const written = this.#plain.filter(({ time }) => time <= player.now);
    setText(this.counts.plain, fill(this.#words.plain, { count: written.length }));
    setText(this.counts.drafted, fill(this.#words.drafted, { count: state.lanes.speculative?.tokens ?? 0 }));
    const text = written.map((token) => token.text).join("").trimStart();
    if (this.slow.textContent !== text) {
      this.slow.textContent = text;
      this.slow.scrollTop = 1e9;
    }
    if (!this.#rested && timeline.stops.some(({ rejection }, at) => rejection && at <= timeline.at)) this.#rest();
    else if (timeline.atEnd) this.#close();
  }

  // At the first rejection, or just after it where a frame was late.
  #rest() {
    this.#rested = true;
    const { player, timeline } = this.#view;
    const at = timeline.stops.findIndex((stop) => stop.rejection);
    player.pause();
    player.seek(at);
    const step = this.#view.state.lanes.speculative?.steps.at(-1);
    const refused = step?.nodes.find((node) => node.status === "rejected");
    this.#say(fill(this.#words.rejected, { guess: shown(refused?.text), own: shown(step?.next?.text) }));
    this.#timer = setTimeout(() => player.play(), 1000 * REST_SECONDS);
  }

  #close() {
    const { plain, speculative } = this.#view.state.lanes;
    const same = this.#plain.map(({ text }) => text).join("").startsWith(textOf(this.#view)) && plain;
    this.#say(fill(same ? this.#words.same : this.#words.done, {
      speedup: two(speedup(plain, speculative)), passes: speculative?.steps.length ?? 0, tokens: speculative?.tokens ?? 0,
    }));
    setText(this.leave, this.#words.close);
    this.#timer = setTimeout(() => this.end(), 1000 * READ_SECONDS);
  }

  #say(/** @type {string} */ sentence) {
    setText(this.sentence, sentence);
    this.#view.layout.announce(sentence);
  }
}

const shown = (/** @type {string | undefined} */ text) => (text ?? "").trim() || (text?.includes("\n") ? "↵" : "␣");

/** The text of the drafted lane. @param {View} view */
const textOf = ({ state }) => (state.lanes.speculative?.steps ?? [])
  .flatMap((step) => [...step.path.map((node) => step.nodes[node].text), step.next?.text ?? ""]).join("");
