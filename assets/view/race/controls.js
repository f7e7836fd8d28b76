// Play, scrub and speed for all lanes of a race at once, on their common clock.

import { SPEEDS } from "../core/player.js";
import { fill } from "../core/sentence.js";
import { el, textEl } from "../parts/dom.js";
import { moveButton, paintMove } from "../parts/transport.js";

/**
 * @import { Player } from "../core/player"
 * @import { Words } from "../parts/page"
 */

export class Controls {
  #words;
  #player;

  /** player: moves the race's course, which it has as `timeline` @param {Player} player @param {Words} words */
  constructor(player, words) {
    this.#words = words;
    this.#player = player;
    this.play = moveButton("play", words.play, () => player.toggle());
    this.slider = el("input", { type: "range", class: "sd-scrub", min: 0, max: 0, step: 1, value: 0, "aria-label": words.scrub });
    this.slider.addEventListener("input", () => player.seek(Number(this.slider.value)));
    this.clock = el("span", { class: "sd-place" });
    const speed = el("select", { class: "sd-speed", "aria-label": words.speed, title: words.speed });
    speed.append(...SPEEDS.map((value) => textEl("option", `${value}×`, { value, selected: value === 1 })));
    speed.addEventListener("change", () => player.setSpeed(Number(speed.value)));
    this.root = el("div", { class: "sd-transport", role: "group", "aria-label": words.controls, hidden: true },
      moveButton("start", words.start, () => player.seek(0)), this.play, moveButton("end", words.end, () => this.#toEnd()), this.slider, this.clock, speed);
  }

  render() {
    const words = this.#words;
    const { timeline: course, playing } = this.#player;
    /** @param {number} at */
    const seconds = (at) => (course.timeAt(at) / 1000).toFixed(1);
    this.slider.max = String(course.last);
    this.slider.value = String(course.at);
    const clock = fill(words.clock_of, { now: seconds(course.at), all: seconds(course.last) });
    this.slider.setAttribute("aria-valuetext", clock);
    this.clock.textContent = clock;
    const name = playing ? "pause" : "play";
    paintMove(this.play, name, words[name]);
  }

  /** What a key does. @param {KeyboardEvent} event */
  key(event) {
    const act = { " ": () => this.#player.toggle(), Home: () => this.#player.seek(0), End: () => this.#toEnd() }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  #toEnd() {
    this.#player.pause();
    this.#player.seek(this.#player.timeline.last);
  }
}
