// One lane of a race: a track with its finish line, what it has come to, and its text.

import { sample } from "../charts/pen.js";
import { tokensPerSecond, two } from "../core/metrics.js";
import { fold } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { Timeline } from "../core/timeline.js";
import { el } from "../parts/dom.js";
import { TextView } from "../parts/text.js";

/** @import { Look } from "../charts/figure" */
/** @import { Lane } from "../core/state" */
/** @import { Subject, Words } from "../parts/page" */
/** @import { Standing } from "./result" */
/** No two lanes differ by colour alone. @type {Look[]} */
export const LOOKS = [
  { shape: "line", colour: "ink", width: 2 },
  { shape: "line", colour: "accepted", width: 3, dash: "8px,3px" },
  { shape: "line", colour: "correction", width: 3, dash: "2px,3px" },
  { shape: "line", colour: "bonus", width: 3, dash: "9px,3px,2px,3px" },
];

const LINE = 0.4; // of the height of a lane's text: where the position stands that all lanes share
const LAST = 0.75; // the same when the race is over, and nothing more comes below

export class LaneView {
  #words;
  #placed = 0; // where the text was scrolled to, other than by the reader

  /** @param {number} index @param {string} title @param {Words} words @param {{ run: string, lane: string } | null} recorded */
  constructor(index, title, words, recorded) {
    this.#words = words;
    this.title = title;
    this.recorded = recorded; // { run, lane }: its events lie there
    this.timeline = new Timeline();
    this.text = new TextView(words.view);
    this.rank = el("span", { class: "sd-race-rank" });
    this.lossy = el("span", { class: "sd-lossy", hidden: true }, words.view.lossy);
    this.fill = el("span", { class: "sd-race-fill" });
    this.flag = el("span", { class: "sd-race-flag" });
    this.track = el("div", { class: "sd-race-track", role: "progressbar", "aria-label": title, "aria-valuemin": 0 }, this.fill, this.flag);
    this.facts = el("p", { class: "sd-race-facts" });
    this.root = el("article", { class: `sd-race-lane sd-race-lane-${index + 1}` },
      el("header", {}, sample(LOOKS[index]), el("h3", {}, title), this.lossy, this.rank), this.track, this.facts, this.text.root);
  }

  /** The run as far as it is shown, or null. */
  get lane() {
    const { state } = this.timeline;
    return state.lanes[state.lane ?? ""] ?? null;
  }

  get header() {
    return this.timeline.events.find((item) => item.type === "started") ?? null;
  }

  get tokens() {
    return this.lane?.tokens ?? 0;
  }

  /** The whole run, whatever is shown of it; null when it never began. */
  folded() {
    const state = fold(this.timeline.events);
    return state.lanes[state.lane ?? ""] ?? null;
  }

  /**
   * turn: what the lane does while they run, empty when they race; row: of the standings
   * @param {{ turn: string, most: number, goal: number | null, row: Standing | null, now: number }} how
   */
  render({ turn, most, goal, row, now }) {
    const words = this.#words;
    const { lane } = this;
    this.text.root.hidden = !lane;
    if (lane) this.text.render(this.timeline.state);
    const rank = goal !== null && row?.finish != null && now >= row.finish - 1e-9 ? row.rank : null;
    this.rank.textContent = rank === null ? "" : words.rank[rank];
    this.root.classList.toggle("sd-race-won", rank === 1);
    this.lossy.hidden = !lane?.header.lossy;
    this.fill.style.transform = `scaleX(${Math.min(1, this.tokens / most)})`;
    this.flag.hidden = goal === null;
    if (goal !== null) this.flag.style.left = `${(100 * goal) / most}%`;
    this.flag.title = goal === null ? "" : fill(words.finish, { tokens: goal });
    this.track.setAttribute("aria-label", fill(words.track, { title: this.title, tokens: this.tokens, goal: most }));
    this.track.setAttribute("aria-valuemax", String(most));
    this.track.setAttribute("aria-valuenow", String(this.tokens));
    this.facts.textContent = this.#facts(turn, lane);
  }

  /** How far down its text a token stands, in pixels; null where it is not drawn. token: counted from 1 @param {number} token */
  offsetOf(token) {
    const found = tokenAt(this.lane, token);
    const kept = found && this.text.steps.at(found.step)?.querySelectorAll(":scope > .sd-token, .sd-kept .sd-token")[found.place];
    const { root } = this.text;
    const word = kept?.querySelector(".sd-mark") ?? kept; // the blank before it may stand at the end of the line above
    if (!word) return null;
    const { top, height } = root.getBoundingClientRect();
    const zoom = height / root.offsetHeight || 1; // the presenter mode's: boxes are measured with it, scrolling without
    return (word.getBoundingClientRect().top - top) / zoom + root.scrollTop;
  }

  /** The token of the kept text that stands where `lineUp` puts one, counted from 1. */
  get read() {
    const { top, height } = this.text.root.getBoundingClientRect();
    const steps = this.lane?.steps ?? [];
    const at = steps.findIndex((_, i) => Number(this.text.steps.at(i)?.getBoundingClientRect().bottom) >= top + LINE * height);
    const before = steps[at - 1];
    return at < 0 ? this.tokens : 1 + (before && !before.open ? before.tokens : 0);
  }

  /** Scroll the text so that what stands so far down comes to the line that all lanes share. @param {number | null} offset @param {boolean} over */
  lineUp(offset, over) {
    const { root } = this.text;
    if (offset === null) return;
    root.scrollTop = offset - (over ? LAST : LINE) * root.clientHeight;
    this.#placed = root.scrollTop;
  }

  /** Whether it was the reader who scrolled last. */
  get scrolled() {
    return Math.abs(this.text.root.scrollTop - this.#placed) > 2;
  }

  /** What the inspector is to show of an element of its text. @param {EventTarget | null} element @returns {Subject | null} */
  subject(element) {
    const found = this.text.find(element);
    if (!found || !this.lane) return null;
    const { token, step, piece, at } = found;
    return { lane: this.title, header: this.lane.header, at, step, node: piece.node, count: piece.count ?? 0, token };
  }

  /** @param {string} turn @param {Lane | null} lane */
  #facts(turn, lane) {
    const words = this.#words;
    if (turn === "waiting" && !lane) return words.lane_waiting;
    if (turn === "warming" && !lane) return words.lane_warming;
    if (!lane) return words.lane_stopped;
    const facts = { tokens: lane.tokens, rate: two(tokensPerSecond(lane)), seconds: two(lane.elapsed) };
    const sentence = fill(lane.end ? words.lane_done : words.lane_facts, facts);
    const ended = lane.end === "failed" ? words.lane_failed : lane.end === "cancelled" ? words.lane_stopped : "";
    return ended ? `${ended} · ${sentence}` : sentence;
  }
}

// ---- One position of the text in every lane: lanes reach it in steps of their own. Pure

/**
 * Where a lane writes its token of this number, counted from 1: the step's index, and which of its kept tokens it is.
 * null where the lane has not come so far. An open step has no tokens yet.
 *
 *     tokens a step   3   1   4        token 5: step 2, place 0
 * @param {Lane | null} lane @param {number} token
 */
export function tokenAt(lane, token) {
  const steps = lane?.steps ?? [];
  const step = steps.findIndex((one) => !one.open && one.tokens >= token);
  const before = steps[step - 1];
  return step < 0 || token < 1 ? null : { step, place: token - 1 - (before && !before.open ? before.tokens : 0) };
}
