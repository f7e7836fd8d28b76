// Play, pause, step, scrub, speed: the controls of a player. Says where it stands in steps of the run.

import { el } from "./dom.js";
import { fill } from "../core/sentence.js";
import { moveButton, paintMove } from "./move.js";
import { SPEEDS } from "../core/player.js";

/**
 * @import { Timeline } from "../core/timeline"
 * @import { Player } from "../core/player"
 * @import { Words } from "./page"
 */

export class Transport {
  /** @type {Record<string, HTMLButtonElement>} */
  #buttons = {};

  /** @param {Timeline} timeline @param {Player} player @param {Words} words */
  constructor(timeline, player, words) {
    this.timeline = timeline;
    this.player = player;
    this.words = words;
    this.slider = el("input", { type: "range", class: "sd-scrub", min: 0, max: 0, step: 1, value: 0, "aria-label": words.scrub });
    this.slider.addEventListener("input", () => player.seek(Number(this.slider.value)));
    this.place = el("span", { class: "sd-place" });
    this.speed = el("select", { class: "sd-speed", "aria-label": words.speed, title: words.speed });
    this.speed.append(...SPEEDS.map((speed) => el("option", { value: speed, selected: speed === 1 }, `${speed}×`)));
    this.speed.addEventListener("change", () => player.setSpeed(Number(this.speed.value)));
    /** @param {string} name @param {"token" | "round" | "rejection"} what @param {number} by */
    const step = (name, what, by) => this.#button(name, () => player.step(what, by));
    this.root = el("div", { class: "sd-transport", role: "group", "aria-label": words.label },
      this.#button("start", () => player.seek(0)),
      step("back_round", "round", -1), step("back", "token", -1),
      this.#button("play", () => this.#toggle()),
      step("forward", "token", 1), step("round", "round", 1), step("rejection", "rejection", 1),
      this.#button("end", () => this.#toEnd()),
      this.slider, this.place, this.speed);
  }

  /** live: whether more of the run is still to come by itself @param {{ live: boolean }} how */
  render({ live }) {
    this.live = live;
    const { timeline, player, words } = this;
    const last = Math.max(0, timeline.last);
    if (Number(this.slider.max) !== last) this.slider.max = String(last);
    this.slider.value = String(timeline.at);
    this.root.classList.toggle("sd-idle", !timeline.stops.length);
    const steps = timeline.stops.at(-1)?.step ?? -1;
    const step = timeline.stops[timeline.at]?.step ?? -1;
    const position = timeline.stops.length ? fill(words.place, { step: step + 1, steps: steps + 1 }) : "";
    if (this.place.textContent !== position) {
      this.place.textContent = position;
      this.slider.setAttribute("aria-valuetext", position);
    }
    const moves = player.playing || (live && timeline.atEnd && !timeline.held) ? "pause" : "play";
    paintMove(this.#buttons.play, moves, words[moves]);
    paintMove(this.#buttons.end, "end", live && !timeline.atEnd ? words.live : words.end);
    this.#buttons.end.classList.toggle("sd-behind", live && !timeline.atEnd);
    for (const name of ["start", "back_round", "back"]) this.#buttons[name].disabled = timeline.at <= 0;
    for (const name of ["forward", "round", "rejection", "end"]) this.#buttons[name].disabled = timeline.atEnd;
    this.#buttons.play.disabled = this.slider.disabled = !timeline.stops.length;
  }

  /** What a key does; true when it was one of ours. @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const { player, timeline } = this;
    if (!timeline.stops.length) return false;
    const what = event.shiftKey ? "round" : "token";
    /** @type {Record<string, () => void>} */
    const acts = {
      " ": () => this.#toggle(),
      ArrowRight: () => player.step(what, 1),
      ArrowLeft: () => player.step(what, -1),
      Home: () => player.seek(0),
      End: () => this.#toEnd(),
      n: () => player.step("rejection", 1),
    };
    const act = acts[event.key];
    if (!act) return false;
    event.preventDefault();
    act();
    return true;
  }

  // At the end of a run that goes on there is nothing to play: it is held there, and let go.
  #toggle() {
    const { player, timeline } = this;
    if (!this.live || player.playing || !timeline.atEnd) player.toggle();
    else {
      timeline.held = !timeline.held;
      player.moved();
    }
  }

  #toEnd() {
    this.player.pause();
    this.player.seek(this.timeline.last);
  }

  /** @param {string} name @param {() => void} act */
  #button(name, act) {
    return (this.#buttons[name] = moveButton(name, this.words[name], act));
  }
}
