// How a method guesses: a recorded step of its own, slowed to ten seconds, with a player of its own.

import { Player } from "../core/player.js";
import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { spell } from "../core/symbols.js";
import { chip, place, spots } from "../parts/draft.js";
import { el, setText, textEl } from "../parts/dom.js";
import { moveButton, paintMove } from "../parts/move.js";
import { Moments, SECONDS, sceneAt } from "./guess.js";

/**
 * @import { Node as Token } from "../core/state"
 * @import { Words } from "../parts/page"
 * @import { Scene } from "./guess"
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

  /** @param {KeyboardEvent} event */
  #key(event) {
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

  /** @param {string} beat */
  #sentence(beat) {
    const words = this.#words;
    const { step, header, kind, matched, places } = this.#scene;
    const { nodes, path, next } = step;
    const refused = nodes.find((node) => node.status === "rejected");
    const values = {
      count: nodes.length, kept: path.length, matched, places, tokens: path.length + 1,
      token: shown(refused), own: shown(next),
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

/** @param {Token | null | undefined} token */
const shown = (token) => spell((token?.text ?? "").trim() || (token?.text ?? ""));

/** The draft's own chance, and the target's once it has judged. @param {Token} token @param {string} state */
function chanceOf({ draft_prob, confidence, target_prob }, state) {
  const drafted = draft_prob ?? confidence;
  /** @param {number | null | undefined} prob */
  const percent = (prob) => (typeof prob === "number" ? (prob < 0.001 ? "< 0.1 %" : `${two(100 * prob)} %`) : "");
  if (state === "hidden" || state === "masked") return "";
  if (state === "drafted" || state === "unreached") return percent(drafted);
  return [percent(drafted), percent(target_prob)].filter(Boolean).join(" → ");
}
