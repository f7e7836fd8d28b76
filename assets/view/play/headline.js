// The line above the text: whether a run is live or recorded, what is going on, and what ran where.

import { speedup, standIn, two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { el, setText } from "../parts/dom.js";

/**
 * @import { Words } from "../parts/page"
 * @import { Lane, State } from "../core/state"
 * @import { ModelInfo } from "../types"
 */

/** words: the view's; numbers and tools: what stands at its end */
export class Headline {
  #words;

  /** @param {Words} words @param {...HTMLElement} ends */
  constructor(words, ...ends) {
    this.#words = words;
    this.badge = el("span", { class: "sd-badge" });
    this.lossy = el("span", { class: "sd-lossy", title: words.lossy_hint, hidden: true }, words.lossy);
    this.phase = el("h2", { class: "sd-phase" });
    this.about = el("span", { class: "sd-about" });
    this.root = el("div", { class: "sd-status" }, this.badge, this.lossy, el("div", { class: "sd-said" }, this.phase, this.about), ...ends);
  }

  /** phase: a name, see `phaseOf`; rate: seconds of the run in one of the player's @param {State} state @param {string} phase @param {number} rate */
  render(state, phase, rate) {
    const words = this.#words;
    const lane = state.lanes[state.lane ?? ""] ?? null;
    const { kind } = state.source;
    const lossy = Boolean(lane?.header.lossy);
    this.lossy.hidden = !lossy;
    setText(this.badge, lane ? words.source[kind] : "");
    this.badge.className = `sd-badge sd-badge-${kind}`;
    const name = phase === "playing" && rate !== 1 ? (rate < 1 ? "playing_slowed" : "playing_faster") : phase;
    const sentence = (lossy && words.phase_lossy[name]) || words.phase[name] || "";
    setText(this.phase, fill(sentence, {
      times: two(rate < 1 ? 1 / rate : rate),
      speedup: two(speedup(state.lanes.plain, state.lanes.speculative)),
      minutes: Math.max(1, Math.round((standIn(lane)?.age_seconds ?? 0) / 60)),
    }));
    setText(this.about, lane ? about(words, state, lane) : "");
    this.about.title = this.about.textContent;
  }
}

/** What is going on, as one word. @param {State} state @param {{ playing: boolean, atEnd: boolean, running: boolean, held: boolean }} how */
export function phaseOf(state, { playing, atEnd, running, held }) {
  if (state.source.waiting) return "waiting";
  const lane = state.lane ? state.lanes[state.lane] : null;
  if (!lane) return "empty";
  if (lane.end === null) {
    if (!playing && !atEnd) return running ? "behind" : "paused";
    if (held && running) return "held";
    if (state.source.kind === "recorded") return playing ? "playing" : "cut";
    if (state.problems.length) return "cut";
    return lane.steps.length === 0 ? "reading" : (state.lane ?? "");
  }
  if (lane.end === "failed" || lane.end === "cancelled") return lane.end;
  if (state.lane === "plain") return state.source.kind === "live" ? "plain_done" : "done_alone";
  if (!state.lanes.plain && standIn(lane)) return "done_stand_in";
  return state.lanes.plain?.tokens ? "done" : "done_alone";
}

/** @param {Words} words @param {State} state @param {Lane} lane */
function about(words, state, { header }) {
  const recorded = state.source.kind === "recorded";
  const how = [words.methods[header.method] ?? header.method, modelName(header.target)];
  const where = [recorded ? (header.started_at ?? "").slice(0, 10) : "", header.machine];
  const { title } = state.source;
  const parts = [...how, words.runs?.[title] ?? title, ...where];
  if (header.cached_tokens) parts.push(fill(words.reused, { cached: header.cached_tokens, all: header.prompt_tokens }));
  return parts.filter(Boolean).join(" · ");
}

/** @param {ModelInfo | undefined} target */
const modelName = (target) => (target ? [target.name, target.precision].filter(Boolean).join(" ") : "");
