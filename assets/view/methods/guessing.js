// How a method guesses: a recorded step of its own, slowed to ten seconds, with a player of its own.

import { reasonValue } from "../core/decision.js";
import { two } from "../core/metrics.js";
import { Player } from "../core/player.js";
import { fold, tokensOf } from "../core/reducer.js";
import { fill, quote } from "../core/sentence.js";
import { depths, isTree } from "../core/tree.js";
import { chip, place, spots } from "../parts/blocks.js";
import { el, setText, textEl } from "../parts/dom.js";
import { moveButton, paintMove } from "../parts/transport.js";

/**
 * @import { Header, JudgedStep, Line, Node as Token, Playable, Step } from "../core/state"
 * @import { Words } from "../parts/page"
 * @typedef {{ lead: string, match: string, copied: string, rest: string }} Earlier where the text said the same before
 * @typedef {{ at: number, judged: number }} Times milliseconds
 * @typedef {{
 *   kind: string, header: Header, step: JudgedStep, before: string[], whole: boolean, matched: number, places: number, earlier: Earlier | null,
 *   words: Times[], own: number, stops: number[],
 * }} Scene
 *   before: the last tokens of the text, whole where there are no others; matched: how many of them were looked up; places: where they stand in a datastore
 *   words: one a node; own: when the target's own token comes; stops: every time at which something changes
 */
const PROMPT = 120; // characters that are shown

export class Guessing {
  #scene;
  #words;
  #player;
  #moments;
  /** @type {{ index: number, token: Token, box: HTMLElement, chance: HTMLElement }[]} */
  #tokens = [];

  /** words: `guessing` of the methods'; title: the run's @param {Scene} scene @param {Words} words @param {string} method its name, as the page says it */
  constructor(scene, words, method) {
    this.#scene = scene;
    this.#words = words;
    this.#moments = new Moments(scene.stops);
    this.#player = new Player(this.#moments, () => this.#paint());
    this.caption = el("p", { class: "sd-scene-caption", "aria-live": "polite" });
    this.button = moveButton("play", words.play, () => this.#player.toggle());
    const again = moveButton("start", words.again, () => this.#again());
    const { header, step } = scene;
    const milliseconds = two(1000 * (step.draftSeconds + step.verifySeconds));
    const about = fill(words.recorded, { step: step.index + 1, milliseconds, seconds: SECONDS, target: header.target?.name ?? "" });
    this.root = el("div", { class: "sd-scene", role: "group", tabindex: "0", "aria-label": fill(words.label, { method }), onkeydown: (event) => this.#key(event) },
      ...this.#text(), this.#grid(), this.caption,
      el("div", { class: "sd-scene-foot" }, this.button, again, textEl("span", about), textEl("span", words.chances)));
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.#player.seek(this.#moments.last);
    else this.#player.play();
  }

  /** Stop for good. */
  pause() {
    this.#player.pause();
  }

  #again() {
    this.#player.pause();
    this.#player.seek(0);
    this.#player.play();
  }

  #key(/** @type {KeyboardEvent} */ event) {
    if (event.target !== this.root || ![" ", "Home"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === " ") this.#player.toggle();
    else this.#again();
  }

  // What was asked and the text so far; and, of what is copied, where it stood before.
  #text() {
    const { before, whole, matched, earlier, kind, header } = this.#scene;
    const words = this.#words;
    const known = before.slice(0, before.length - matched).join("");
    const lit = before.slice(before.length - matched).join("");
    /** @param {string} label @param {...(Node | string)} parts */
    const line = (label, ...parts) => el("p", { class: "sd-scene-text" }, textEl("span", label, { class: "sd-scene-name" }), ...parts);
    const match = (/** @type {string} */ text) => textEl("mark", text, { class: "sd-scene-match" });
    const now = line(words.so_far, whole ? known.trimStart() : `…${known}`, ...(matched ? [match(lit)] : []), ...(kind === "heads" ? [el("span", { class: "sd-scene-state", "aria-hidden": "true" })] : []));
    if (!earlier) return [line(words.prompt, header.prompt.length > PROMPT ? `${header.prompt.slice(0, PROMPT)}…` : header.prompt), now];
    return [line(words.earlier, earlier.lead, match(earlier.match), textEl("span", earlier.copied, { class: "sd-scene-copied" }), earlier.rest), now];
  }

  #grid() {
    const { step } = this.#scene;
    this.#tokens = spots(step).map((spot) => {
      const { index, token } = spot;
      const chance = el("small");
      const box = place(el("span", { class: "sd-scene-token" }, chip(token.text ?? "", "drafted", ""), chance), spot);
      return { index, token, box, chance };
    });
    const { length } = step.nodes;
    return el("div", { class: "sd-draft-tree sd-scene-grid", role: "img", "aria-label": fill(this.#words.picture, { count: length, kept: step.path.length }) },
      ...this.#tokens.map(({ box }) => box));
  }

  #paint() {
    const { playing } = this.#player;
    const { kind } = this.#scene;
    const { beat, states, own } = sceneAt(this.#scene, this.#moments.timeAt(this.#moments.at));
    this.root.dataset.beat = beat;
    this.root.dataset.kind = kind;
    for (const { index, token, box, chance } of this.#tokens) {
      const state = index < 0 ? (own ? (token.status ?? "correction") : "hidden") : states[index];
      box.dataset.state = state;
      box.firstElementChild?.setAttribute("class", `sd-token sd-${state}`);
      setText(chance, chanceOf(token, state));
    }
    setText(this.caption, this.#sentence(beat));
    paintMove(this.button, playing ? "pause" : "play", playing ? this.#words.pause : this.#words.play);
  }

  #sentence(/** @type {string} */ beat) {
    const words = this.#words;
    const { step, header, kind, matched, places } = this.#scene;
    const { nodes, path, next } = step;
    const refused = nodes.find((node) => node.status === "rejected");
    const values = {
      count: nodes.length, kept: path.length, matched, places, tokens: path.length + 1,
      token: quote(refused), own: quote(next),
    };
    const guess = step.hit ? words.guess.ready : (words.guess[header.method] ?? words.guess[kind]);
    const result = path.length === nodes.length ? "all" : path.length ? "part" : "none";
    /** @type {Record<string, string>} */
    const said = {
      text: words.text, look: words.look[kind] ?? guess, guess, check: nodes.length ? words.check : words.check_plain,
      verdict: nodes.length ? words.verdict[result] : words.check_plain, own: nodes.length ? words.own : words.own_plain,
    };
    return fill(said[beat], values);
  }
}

/** The draft's own chance, and the target's once it has judged. @param {Token} token @param {string} state */
function chanceOf({ draft_prob, confidence, target_prob }, state) {
  const drafted = draft_prob ?? confidence;
  /** @param {number | null | undefined} prob */
  const percent = (prob) => (typeof prob === "number" ? (prob < 0.001 ? "< 0.1 %" : `${two(100 * prob)} %`) : "");
  if (state === "hidden" || state === "masked") return "";
  if (state === "drafted" || state === "unreached") return percent(drafted);
  return [percent(drafted), percent(target_prob)].filter(Boolean).join(" → ");
}

// ---- One recorded step as a scene of ten seconds: what was known, how the guess came, the verdict, the target's own. Pure

export const SECONDS = 10;
const KINDS = Object.entries({
  chain: ["draft_model", "feature", "exit", "online", "parallel", "quantised_self", "look_back"],
  tree: ["tree", "feature_tree"], heads: ["medusa"], block: ["block", "jet"],
  copy: ["ngram"], lookup: ["retrieval"], plain: ["nothing"],
}).flatMap(([kind, methods]) => methods.map((method) => /** @type {[string, string]} */ ([method, kind])));
const KIND = new Map(KINDS);
const LOOK = 1300; // what the guess begins with: words that match, masks, a state
const GUESS = [2300, 5200];
const CHECK = 5700;
const VERDICT = [6500, 8300];
const OWN = 8800;
const BEFORE = 16; // tokens of the text that are shown
const AROUND = 48; // characters around what was copied

/** How a step was guessed: of a method that chooses, by what it chose. @param {string} method @param {Step} step */
export const kindOf = (method, step) => KIND.get(method) ?? KIND.get(step.source) ?? (isTree(step.nodes) ? "tree" : "chain");

/** The step of a recorded run that shows best how its method guesses; null where no step shows it. @param {Line[]} items @returns {Scene | null} */
export function bestScene(items) {
  const { plain, speculative } = fold(items).lanes;
  const lane = speculative ?? plain;
  if (!lane) return null;
  const { header } = lane;
  /** @type {Scene | null} */
  let best = null;
  let most = -Infinity;
  /** @type {string[]} */
  const said = [];
  for (const step of lane.steps) {
    if (step.open) break;
    const value = worth(step) + (said.length ? 1 : 0);
    const scene = value > most ? sceneOf(header, step, said) : null;
    if (scene) [best, most] = [scene, value];
    said.push(...tokensOf({ steps: [step] }).map((token) => token.text ?? ""));
  }
  return best;
}

/** Some are kept and then one is refused, few enough to follow, in words. @param {JudgedStep} step */
function worth({ nodes, path, hit }) {
  const words = nodes.filter((node) => /\p{L}{2,}/u.test(node.text ?? "")).length;
  const refused = nodes.some((node) => node.status === "rejected");
  return 3 * Math.min(3, path.length) + Math.min(4, nodes.length) + (refused && path.length ? 6 : 0) + (6 * words) / (nodes.length || 1) - Math.max(0, nodes.length - 9) + (hit ? 3 : 0);
}

/** @param {Header} header @param {JudgedStep} step @param {string[]} said @returns {Scene | null} */
function sceneOf(header, step, said) {
  const kind = kindOf(header.method, step);
  if (!step.next || (kind === "plain" ? said.length < 3 : !step.nodes.length)) return null;
  const matched = ["copy", "lookup"].includes(kind) ? (reasonValue(step, "matched") ?? 0) : 0;
  const earlier = kind === "copy" ? foundIn(header.prompt, said, matched, step) : null;
  if ((kind === "copy" && !earlier) || (kind === "lookup" && (!matched || matched > said.length))) return null;
  const words = timesOf(kind, step);
  const seen = Math.max(BEFORE, matched);
  return {
    kind, header, step, matched, earlier, words, own: OWN,
    before: said.slice(-seen),
    whole: said.length <= seen,
    places: reasonValue(step, "places") ?? 1,
    stops: [...new Set([0, LOOK, ...words.flatMap(({ at, judged }) => [at, judged]), GUESS[0], CHECK, VERDICT[0], OWN, 1000 * SECONDS])].sort((a, b) => a - b),
  };
}

// The matched tokens and the drafted ones, together, as they stand in the prompt or in the answer so far.
/** @param {string} prompt @param {string[]} said @param {number} matched @param {JudgedStep} step @returns {Earlier | null} */
function foundIn(prompt, said, matched, { nodes }) {
  if (!matched || matched > said.length) return null;
  const match = said.slice(-matched).join("");
  const copied = nodes.map((node) => node.text ?? "").join("");
  for (const text of [said.join(""), prompt]) {
    const at = text.lastIndexOf(match + copied);
    if (at < 0) continue;
    const end = at + match.length + copied.length;
    const lead = text.slice(Math.max(0, at - AROUND), at);
    const rest = text.slice(end, end + AROUND);
    return { lead: at > AROUND ? `…${lead}` : lead, match, copied, rest: text.length > end + AROUND ? `${rest}…` : rest };
  }
  return null;
}

// A chain comes token by token, a tree level by level, what one pass guesses at once; the walk judges level by level.
/** @param {string} kind @param {JudgedStep} step @returns {Times[]} */
function timesOf(kind, { nodes, path }) {
  const levels = depths(nodes);
  const once = kind === "heads" || kind === "block";
  const ranks = once ? levels.map(() => 0) : levels.map((depth) => depth - 1);
  const end = path.length + 1; // the level at which the walk ends
  const judged = nodes.map((node, i) => (node.status === "unreached" ? end : Math.min(levels[i], end)) - 1);
  return nodes.map((_, i) => ({ at: between(GUESS, ranks[i], Math.max(...ranks)), judged: between(VERDICT, judged[i], Math.max(...judged)) }));
}

/** @param {number[]} span @param {number} rank @param {number} last */
const between = ([from, to], rank, last) => Math.round(from + (last ? ((to - from) * rank) / last : 0));

/**
 * What is seen of a scene at a time: the beat, which says what happens, and each token as masked, hidden or what it is by then.
 * @param {Scene} scene @param {number} time milliseconds
 */
export function sceneAt({ kind, step, words, own }, time) {
  const beats = /** @type {[string, number][]} */ ([
    ["text", 0], ["look", LOOK], ["guess", Math.min(GUESS[0], ...words.map(({ at }) => at))], ["check", CHECK], ["verdict", VERDICT[0]], ["own", own],
  ]);
  const beat = beats.findLast(([, at]) => at <= time)?.[0] ?? "text";
  const unseen = kind === "block" && time >= LOOK ? "masked" : "hidden";
  const states = words.map(({ at, judged }, i) => (time < at ? unseen : time < judged ? "drafted" : (step.nodes[i].status ?? "drafted")));
  return { beat, states, own: time >= own };
}

/** The times of a scene as what a player moves. @implements {Playable} */
export class Moments {
  at = 0;
  #stops;

  /** @param {number[]} stops milliseconds */
  constructor(stops) {
    this.#stops = stops;
  }

  get last() {
    return this.#stops.length - 1;
  }

  get atEnd() {
    return this.at === this.last;
  }

  timeAt(/** @type {number} */ at) {
    return this.#stops[at];
  }

  stopAt(/** @type {number} */ time) {
    return Math.max(0, this.#stops.findLastIndex((stop) => stop <= time));
  }

  seek(/** @type {number} */ to) {
    this.at = Math.max(0, Math.min(this.last, to));
  }
}
