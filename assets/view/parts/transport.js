// Play, pause, step, scrub, speed: the controls of a player. Says where it stands in steps of the run.

import { SPEEDS } from "../core/player.js";
import { fill } from "../core/sentence.js";
import { el, menu, svg } from "./dom.js";

/** @import { Player } from "../core/player" */
/** @import { Timeline } from "../core/timeline" */
/** @import { Words } from "./page" */

// ---- The buttons that move a player, each with its icon

/** @type {Record<string, string>} */
const ICONS = {
  start: "M3 3h2v10H3zM13 3v10L6 8z",
  back_round: "M8 3v10L2 8zM14 3v10L8 8z",
  back: "M11 3v10L4 8z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  forward: "M5 3v10l7-5z",
  round: "M2 3v10l6-5zM8 3v10l6-5z",
  rejection: "M2 3v10l6-5zM9.2 5.2l1-1L12 6l1.8-1.8 1 1L13 7l1.8 1.8-1 1L12 8l-1.8 1.8-1-1L11 7z",
  end: "M11 3h2v10h-2zM3 3v10l7-5z",
};

/** @param {string} name @param {string} label @param {() => void} act */
export function moveButton(name, label, act) {
  const icon = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
  return el("button", { type: "button", class: `sd-move sd-move-${name}`, "aria-label": label, title: label, onclick: act }, icon);
}

/** Let a button show another icon and label. @param {HTMLButtonElement} button @param {string} name @param {string} label */
export function paintMove(button, name, label) {
  if (button.title === label) return;
  button.setAttribute("aria-label", label);
  button.title = label;
  button.querySelector("path")?.setAttribute("d", ICONS[name]);
}

/** The slider, the place and the speed of a player. words: with `scrub` and `speed` */
export class PlayerControls {
  constructor(/** @type {Player} */ player, /** @type {Words} */ words) {
    this.player = player;
    this.words = words;
    this.slider = el("input", { type: "range", class: "sd-scrub", min: 0, max: 0, step: 1, value: 0, "aria-label": words.scrub, oninput: () => player.seek(Number(this.slider.value)) });
    this.place = el("span", { class: "sd-place" });
    this.speed = menu({ class: "sd-speed", "aria-label": words.speed, title: words.speed, onchange: () => player.setSpeed(Number(this.speed.value)) },
      SPEEDS.map((speed) => [String(speed), `${speed}×`]));
    this.speed.value = "1";
  }

  /** Show where the player stands. position: the same as a text */
  show(/** @type {string} */ position) {
    const last = String(Math.max(0, this.player.timeline.last));
    if (this.slider.max !== last) this.slider.max = last;
    this.slider.value = String(this.player.timeline.at);
    if (this.place.textContent === position) return;
    this.place.textContent = position;
    this.slider.setAttribute("aria-valuetext", position);
  }

  toEnd() {
    this.player.pause();
    this.player.seek(this.player.timeline.last);
  }

  toggle() {
    this.player.toggle();
  }

  /** What keys do, with shift or without. @param {boolean} _ @returns {Record<string, () => void>} */
  acts(_) {
    return { " ": () => this.toggle(), Home: () => this.player.seek(0), End: () => this.toEnd() };
  }

  /** Do what a key stands for. @param {KeyboardEvent} event */
  key(event) {
    const act = this.acts(event.shiftKey)[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || this.player.timeline.last < 0) return;
    event.preventDefault();
    act();
  }
}

export class Transport extends PlayerControls {
  /** @type {Record<string, HTMLButtonElement>} */
  #buttons = {};

  /** @param {Timeline} timeline @param {Player} player @param {Words} words */
  constructor(timeline, player, words) {
    super(player, words);
    this.timeline = timeline;
    /** @param {string} name @param {"token" | "round" | "rejection"} what @param {number} by */
    const step = (name, what, by) => this.#button(name, () => player.step(what, by));
    this.root = el("div", { class: "sd-transport", role: "group", "aria-label": words.label },
      this.#button("start", () => player.seek(0)),
      step("back_round", "round", -1), step("back", "token", -1),
      this.#button("play", () => this.toggle()),
      step("forward", "token", 1), step("round", "round", 1), step("rejection", "rejection", 1),
      this.#button("end", () => this.toEnd()),
      this.slider, this.place, this.speed);
  }

  /** live: whether more of the run is still to come by itself @param {{ live: boolean }} how */
  render({ live }) {
    this.live = live;
    const { timeline, player, words } = this;
    this.root.classList.toggle("sd-idle", !timeline.stops.length);
    const steps = timeline.stops.at(-1)?.step ?? -1;
    const step = timeline.stops[timeline.at]?.step ?? -1;
    const position = timeline.stops.length ? fill(words.place, { step: step + 1, steps: steps + 1 }) : "";
    this.show(position);
    const moves = player.playing || (live && timeline.atEnd && !timeline.held) ? "pause" : "play";
    paintMove(this.#buttons.play, moves, words[moves]);
    paintMove(this.#buttons.end, "end", live && !timeline.atEnd ? words.live : words.end);
    this.#buttons.end.classList.toggle("sd-behind", live && !timeline.atEnd);
    for (const name of ["start", "back_round", "back"]) this.#buttons[name].disabled = timeline.at <= 0;
    for (const name of ["forward", "round", "rejection", "end"]) this.#buttons[name].disabled = timeline.atEnd;
    this.#buttons.play.disabled = this.slider.disabled = !timeline.stops.length;
  }

  /** @param {boolean} shift */
  acts(shift) {
    const { player } = this;
    const what = shift ? "round" : "token";
    return {
      ...super.acts(shift),
      ArrowRight: () => player.step(what, 1),
      ArrowLeft: () => player.step(what, -1),
      n: () => player.step("rejection", 1),
    };
  }

  // At the end of a run that goes on there is nothing to play: it is held there, and let go.
  toggle() {
    const { player, timeline } = this;
    if (!this.live || player.playing || !timeline.atEnd) player.toggle();
    else {
      timeline.held = !timeline.held;
      player.moved();
    }
  }

  /** @param {string} name @param {() => void} act */
  #button(name, act) {
    return (this.#buttons[name] = moveButton(name, this.words[name], act));
  }
}
