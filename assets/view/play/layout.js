// How the view is put together: the parts and what frames them. Knows no run.

import { disturbed, isFromEarlier, maySplit, repeatsItself, speedup, two } from "../core/metrics.js";
import { headlineOf } from "../core/headline.js";
import { isBroken } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { Legend, problemBlock } from "../parts/blocks.js";
import { button, el, setText } from "../parts/dom.js";

/**
 * @import { Lane, State } from "../core/state"
 * @import { Words } from "../parts/page"
 * @import { View } from "./view"
 * @typedef {Pick<View, "numbers" | "text" | "beside" | "picture" | "strip" | "tree" | "inspector" | "transport" | "charts">} Parts
 */
const TABS = ["token", "tree"];

export class Layout {
  #fitted = -1; // pixels down the page, of the last fit
  #words;

  /**
   * words: the view's; parts: of which each has its element as `root`
   * save: the menu of what can be saved; open(file): a file was chosen
   * @param {Words} words @param {Parts} parts @param {{ save: HTMLElement, open(file: File): void }} how
   */
  constructor(words, parts, { save, open }) {
    this.save = save;
    this.#words = words;
    this.legend = new Legend(words);
    const file = this.#chooser(words, open);
    const hide = button(words.hide_drafts, () => {
      const hidden = this.root.classList.toggle("sd-final-only");
      hide.setAttribute("aria-pressed", String(hidden));
    }, { "aria-pressed": "false" });
    save.querySelector(".sd-menu-list")?.prepend(hide, button(words.open, () => file.click()));
    this.tools = el("div", { class: "sd-tools" }, save, file);
    this.headline = new Headline(words, parts.numbers.root, this.tools);
    this.problems = el("div", { class: "sd-problems" });
    this.live = el("div", { class: "sd-hidden", "aria-live": "polite" });
    this.tabs = el("div", { class: "sd-tabs", role: "group", "aria-label": words.inspector.tabs },
      ...TABS.map((tab) => button(words.inspector[tab], () => this.tab(tab), { "data-tab": tab })));
    this.side = el("aside", { class: "sd-side" }, this.tabs, parts.inspector.root, parts.tree.root);
    const foot = el("div", { class: "sd-foot" }, parts.picture.root, this.legend.root, parts.strip.root, parts.transport.root);
    this.sentence = el("p", { class: "sd-headline" });
    const { beside, text } = parts;
    const column = (/** @type {string} */ name, /** @type {HTMLElement} */ count, /** @type {HTMLElement} */ body) => el("div", { class: `sd-column-${name}` }, count, body);
    const texts = el("div", { class: "sd-texts" }, this.sentence, text.prompt,
      column("plain", beside.counts.plain, beside.root), column("drafted", beside.counts.speculative, text.root));
    const right = el("div", { class: "sd-right" }, this.side, parts.charts.root);
    this.stage = el("div", { class: "sd-stage" }, this.headline.root, this.problems, parts.numbers.shared, texts, foot, right);
    this.root = el("div", { class: "sd-root" }, this.stage, this.live);
    this.root.addEventListener("dragover", (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault());
    this.root.addEventListener("drop", (event) => {
      const [dropped] = event.dataTransfer?.files ?? [];
      if (!dropped) return;
      event.preventDefault();
      open(dropped);
    });
    this.tab("tree");
  }

  /** An entry of the menu above the text. @param {string} label @param {() => void} act @param {string} name class of its own */
  entry(label, act, name) {
    this.save.querySelector(".sd-menu-list")?.append(button(label, () => {
      this.save.removeAttribute("open");
      act();
    }, { class: `sd-button ${name}` }));
  }

  /** Where the panel is too low for both, the tree or the token. Without trees there is only the token. @param {string} name */
  tab(name) {
    this.side.dataset.tab = name;
    for (const one of this.tabs.children) one.setAttribute("aria-pressed", String(one.getAttribute("data-tab") === name));
  }

  /** comparing: two tokens are inspected; trees: some step of the run branches @param {{ comparing: boolean, trees: boolean }} how */
  arrange({ comparing, trees }) {
    this.stage.classList.toggle("sd-comparing", comparing);
    this.tabs.hidden = !trees;
    this.side.classList.toggle("sd-with-tree", trees);
  }

  /** Say a sentence to a screen reader. @param {string} sentence */
  announce(sentence) {
    setText(this.live, sentence);
  }

  /**
   * Show what frames the parts: status, headline, problems and marks of the run.
   *
   * phase: see `phaseOf`; rate: seconds of the run in one of the player's
   * stale: another question is asked than this run answers; some: there is something to save
   * @param {State} state @param {{ phase: string, rate: number, running: boolean, recorded: boolean, stale: boolean, some: boolean }} how
   */
  render(state, { phase, rate, running, recorded, stale, some }) {
    const lane = state.lanes[state.lane ?? ""] ?? null;
    const lossy = Boolean(lane?.header.lossy);
    this.root.dataset.phase = phase;
    if (lossy !== this.root.classList.contains("sd-is-lossy")) this.legend.explain({ lossy });
    this.root.classList.toggle("sd-is-lossy", lossy);
    for (const [name, on] of Object.entries({ running, recorded, stale })) this.stage.classList.toggle(`sd-${name}`, on);
    this.save.classList.toggle("sd-nothing", !some);
    for (const save of /** @type {NodeListOf<HTMLButtonElement>} */ (this.save.querySelectorAll("[data-save]"))) save.disabled = running;
    this.headline.render(state, lane, phase, rate);
    const { name, values } = stale ? { name: "", values: {} } : headlineOf(state);
    setText(this.sentence, name ? fill(this.#words.headline[name], values) : "");
    this.sentence.dataset.kind = name;
    const dropped = lane?.dropped ? [{ message: fill(this.#words.dropped, { error: lane.dropped }) }] : [];
    const problems = [...state.problems, ...dropped];
    if (this.problems.childElementCount !== problems.length) this.problems.replaceChildren(...problems.map(problemBlock));
  }

  /** The view's height is what is left of the window below its top. */
  fit() {
    if (!this.root.getClientRects().length) return;
    const top = Math.round(this.root.getBoundingClientRect().top + scrollY);
    if (top !== this.#fitted) this.root.style.setProperty("--sd-top", `${(this.#fitted = top)}px`);
  }

  /** @param {Words} words @param {(file: File) => void} open */
  #chooser(words, open) {
    const file = el("input", { type: "file", accept: ".jsonl,.json,.txt,.log,.md", hidden: true, "aria-label": words.open });
    file.addEventListener("change", () => {
      const [chosen] = file.files ?? [];
      file.value = "";
      if (chosen) open(chosen);
    });
    return file;
  }
}

// ---- The line above the text: whether a run is live or recorded, what is going on, and what ran where

/** words: the view's; numbers and tools: what stands at its end */
class Headline {
  #words;

  /** @param {Words} words @param {...HTMLElement} ends */
  constructor(words, ...ends) {
    this.#words = words;
    this.badge = el("span", { class: "sd-badge" });
    this.lossy = el("span", { class: "sd-lossy", title: words.lossy_hint, hidden: true }, words.lossy);
    this.repeats = el("span", { class: "sd-lossy sd-said-above", title: words.repeats_hint, hidden: true }, words.repeats);
    this.earlier = el("span", { class: "sd-lossy sd-said-above", title: words.earlier_hint, hidden: true }, words.earlier);
    this.nearTies = el("span", { class: "sd-lossy sd-said-above", title: words.near_ties_hint, hidden: true }, words.near_ties);
    this.phase = el("h2", { class: "sd-phase" });
    this.about = el("span", { class: "sd-about" });
    this.root = el("div", { class: "sd-status" }, this.badge, this.lossy, this.repeats, this.earlier, this.nearTies, el("div", { class: "sd-said" }, this.phase, this.about), ...ends);
  }

  /** See `Layout.render`. @param {State} state @param {Lane | null} lane @param {string} phase @param {number} rate */
  render(state, lane, phase, rate) {
    const words = this.#words;
    const { kind } = state.source;
    const lossy = Boolean(lane?.header.lossy);
    this.lossy.hidden = !lossy;
    this.repeats.hidden = lane?.header.method === "nothing" || !repeatsItself(lane);
    this.earlier.hidden = !isFromEarlier(lane);
    this.nearTies.hidden = !maySplit(lane);
    setText(this.badge, lane ? words.source[kind] : "");
    this.badge.className = `sd-badge sd-badge-${kind}`;
    const name = phase === "playing" && rate !== 1 ? (rate < 1 ? "playing_slowed" : "playing_faster") : phase;
    const sentence = (lossy && words.phase_lossy[name]) || words.phase[name] || "";
    setText(this.phase, fill(sentence, {
      times: two(rate < 1 ? 1 / rate : rate),
      speedup: two(speedup(state.lanes.plain, state.lanes.speculative)),
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
    if (isBroken(state)) return "cut";
    return lane.steps.length === 0 ? "reading" : (state.lane ?? "");
  }
  if (lane.end === "failed" || lane.end === "cancelled") return lane.end;
  if ((running || playing) && state.lane === "speculative") return "plain_rest";
  if (state.lane === "plain") return state.source.kind === "live" ? "plain_done" : "done_alone";
  if (disturbed(state.lanes.plain, lane)) return "done_disturbed";
  return state.lanes.plain?.tokens ? "done" : "done_alone";
}

/** @param {Words} words @param {State} state @param {Lane} lane */
function about(words, state, { header, unnamed }) {
  const recorded = state.source.kind === "recorded";
  const how = [header.server, header.knowledge && words.knowledge[header.knowledge], unnamed && words.knowledge.unnamed, words.methods[header.method] ?? header.method, [header.target?.name, header.target?.precision].filter(Boolean).join(" ")];
  const where = [recorded ? (header.started_at ?? "").slice(0, 10) : "", header.machine];
  const { title } = state.source;
  const parts = [...how, words.runs?.[title] ?? title, ...where];
  if (header.cached_tokens) parts.push(fill(words.reused, { cached: header.cached_tokens, all: header.prompt_tokens }));
  return parts.filter(Boolean).join(" · ");
}
