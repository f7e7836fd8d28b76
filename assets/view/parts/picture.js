// A step as a picture: the guesses as cards, one check over all of them, the wrong one falls, the correction drops in; and two clocks.

import { clocksOf } from "../core/headline.js";
import { two } from "../core/metrics.js";
import { keyOf, pieces, roundsKnown } from "../core/reducer.js";
import { fill, quote } from "../core/sentence.js";
import { isTree } from "../core/tree.js";
import { el, setText, svg } from "./dom.js";
import { isEnd } from "./text.js";

/** @import { Lane, Piece, State, Step } from "../core/state" */
/** @import { Words } from "./page" */
const MOST_CARDS = 14; // of a step; the rest is one card with their number
const PLAYED_MS = 1200; // a step's picture lasts at least so long while the run plays

export class PictureView {
  #words;
  #key = "";
  #until = 0; // time at which the step that is played has been shown
  #timer = 0;
  #again = -1; // place of the step that is shown again, while plain decoding catches up

  /** words: `picture` of the view's; recall(place): called with the step that is shown again, -1 for none any more @param {Words} words @param {(place: number) => void} recall */
  constructor(words, recall) {
    this.#words = words;
    this.recall = recall;
    this.said = el("p", { class: "sd-picture-said" });
    this.cards = el("div", { class: "sd-guesses" });
    this.clocks = { drafted: clock("drafted", words.drafted), plain: clock("plain", words.plain_clock) };
    this.root = el("figure", { class: "sd-picture", hidden: true, title: words.hint },
      el("div", { class: "sd-picture-step" }, this.said, this.cards),
      el("div", { class: "sd-clocks" }, this.clocks.drafted.root, this.clocks.plain.root));
  }

  /**
   * Show the step at the player's place. While the run moves, the newest that was checked, each for a readable time; when
   * its text is done and plain decoding still writes, all of them once more.
   * @param {State} state @param {{ moving: boolean }} how
   */
  render(state, { moving }) {
    const lane = state.lanes.speculative;
    clearTimeout(this.#timer);
    this.root.hidden = !lane?.drafted && !lane?.steps.at(-1)?.nodes.length;
    if (!lane) return;
    const left = moving ? this.#until - performance.now() : 0;
    if (left <= 0) this.#show(state, lane, moving);
    if (moving && (left > 0 || lane.end)) this.#timer = setTimeout(() => this.render(state, { moving }), left > 0 ? left : PLAYED_MS);
  }

  /** @param {State} state @param {Lane} lane @param {boolean} moving */
  #show(state, lane, moving) {
    const guessed = lane.steps.flatMap((step, i) => (!step.open && step.nodes.length ? [i] : []));
    const again = moving && lane.end ? (guessed.find((i) => i > this.#again) ?? guessed[0] ?? -1) : -1;
    const step = lane.steps[again >= 0 ? again : moving ? (guessed.at(-1) ?? -1) : lane.steps.length - 1];
    if (again !== this.#again) this.recall((this.#again = again));
    const key = step ? `${keyOf(lane.header.started_at ?? "", step)} ${Boolean(state.lanes.plain)}` : "";
    if (!step || key === this.#key) return;
    this.#key = key;
    this.#until = moving ? performance.now() + PLAYED_MS : 0;
    this.#draw(state, lane, step, moving);
  }

  /** @param {State} state @param {Lane} lane @param {Step} step @param {boolean} moving */
  #draw(state, lane, step, moving) {
    this.root.classList.toggle("sd-played", moving);
    const kept = step.path.length;
    const refused = step.nodes.find((node) => node.status === "rejected");
    setText(this.said, fill(this.#words[sentence(lane, step)], { count: step.nodes.length, kept, guess: quote(refused), own: named(step.next) }));
    this.cards.replaceChildren(...slots(step), el("i", { class: "sd-check" }));
    this.#drawClocks(state, step);
  }

  /** @param {State} state @param {Step} step */
  #drawClocks(state, step) {
    const { tokens, drafted, plain } = clocksOf(state, step);
    const longest = Math.max(drafted, plain ?? 0);
    for (const { root } of Object.values(this.clocks)) root.hidden = step.open || !longest || plain === null;
    const times = [["drafted", drafted, 1], ["plain", plain ?? 0, tokens]];
    for (const [name, seconds, passes] of /** @type {["drafted" | "plain", number, number][]} */ (times)) {
      const { root, label, face } = this.clocks[name];
      face.append(...[...face.children].slice(1)); // put in again, its animation begins again
      root.style.setProperty("--share", String(longest ? seconds / longest : 0));
      setText(label, fill(passes === 1 ? this.#words.one_pass : this.#words.passes, { passes, time: two(1000 * seconds) }));
    }
  }
}

/** A clock whose hand has run over `--share` of its face. @param {string} name @param {string} title */
function clock(name, title) {
  const face = svg("svg", { viewBox: "-10 -10 20 20", "aria-hidden": "true" },
    svg("circle", { r: 9, class: "sd-clock-face" }), svg("circle", { r: 4.5, pathLength: 1, class: "sd-clock-time", transform: "rotate(-90)" }));
  const label = el("span", { class: "sd-clock-passes" });
  return { label, face, root: el("div", { class: `sd-clock sd-clock-${name}` }, face, el("span", {}, el("b", {}, title), label)) };
}

/** One element for each position: its guess and, where that was wrong, the target's own word on top. @param {Step} step */
function slots(step) {
  const parts = pieces(step);
  const own = parts.find(({ node, count }) => node < 0 && !count);
  const guesses = parts.filter((part) => part !== own);
  const wrong = isTree(step.nodes) ? -1 : guesses.findIndex(({ status }) => status === "rejected");
  const out = guesses.slice(0, MOST_CARDS).map((part, i) => {
    const slot = el("span", { class: `sd-slot-guess sd-slot-of-${part.status}`, style: `--i:${i}` }, card(part));
    if (i === wrong && own) slot.append(card(own));
    return slot;
  });
  if (guesses.length > MOST_CARDS) out.push(el("span", { class: "sd-slot-guess" }, `+${guesses.length - MOST_CARDS}`));
  if (own && wrong < 0) out.push(el("span", { class: "sd-slot-guess", style: `--i:${out.length}` }, card(own)));
  return out;
}

/**
 * The name of the sentence about a step. Another program's server may report only accepted guesses, or only sums.
 * @param {Lane} lane @param {Step} step
 */
export function sentence(lane, step) {
  if (!roundsKnown(lane)) return step.nodes.length ? "kept" : "unknown";
  if (!step.nodes.length) return "plain";
  if (step.open || !step.next) return step.open ? "open" : "end";
  return step.nodes.some((node) => node.status === "rejected") ? "wrong" : "right";
}

/** @param {Piece} part */
const card = ({ value, status }) => el("span", { class: `sd-guess sd-guess-${status}` }, named(value) || "·");

/** A token by its text, the model's own mark of the end as a sign. @param {{ text?: string } | null | undefined} token */
const named = (token) => (isEnd(token?.text ?? "") ? "■" : quote(token));
