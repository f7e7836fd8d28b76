// Play, scrub and speed for all lanes of a race at once, on their common clock.

import { SPEEDS } from "../core/player.js";
import { fill } from "../core/sentence.js";
import { el, svg, textEl } from "../parts/dom.js";

/**
 * @import { Player } from "../core/player"
 * @import { Words } from "../parts/page"
 */

const ICONS = {
  start: "M3 3h2v10H3zM13 3v10L6 8z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  end: "M11 3h2v10h-2zM3 3v10l7-5z",
};

export class Controls {
  #words;
  #player;

  /** player: moves the race's course, which it has as `timeline` @param {Player} player @param {Words} words */
  constructor(player, words) {
    this.#words = words;
    this.#player = player;
    this.play = this.#button("play", () => player.toggle());
    this.slider = el("input", { type: "range", class: "sd-scrub", min: 0, max: 0, step: 1, value: 0, "aria-label": words.scrub });
    this.slider.addEventListener("input", () => player.seek(Number(this.slider.value)));
    this.clock = el("span", { class: "sd-place" });
    const speed = el("select", { class: "sd-speed", "aria-label": words.speed, title: words.speed });
    speed.append(...SPEEDS.map((value) => textEl("option", `${value}×`, { value, selected: value === 1 })));
    speed.addEventListener("change", () => player.setSpeed(Number(speed.value)));
    this.root = el("div", { class: "sd-transport", role: "group", "aria-label": words.controls, hidden: true },
      this.#button("start", () => player.seek(0)), this.play, this.#button("end", () => this.#toEnd()), this.slider, this.clock, speed);
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
    if (this.play.title === words[name]) return;
    this.play.title = words[name];
    this.play.setAttribute("aria-label", words[name]);
    this.play.querySelector("path")?.setAttribute("d", ICONS[name]);
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

  /** @param {"start" | "play" | "end"} name @param {() => void} act */
  #button(name, act) {
    const icon = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
    icon.append(svg("path", { d: ICONS[name] }));
    return el("button", { type: "button", class: `sd-move sd-move-${name}`, "aria-label": this.#words[name], title: this.#words[name], onclick: act }, icon);
  }
}
