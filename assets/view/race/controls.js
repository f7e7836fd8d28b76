// Play, scrub and speed for all lanes of a race at the same time, on their common clock.

import { decimals } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { el } from "../parts/dom.js";
import { PlayerControls, moveButton, paintMove } from "../parts/transport.js";

/** @import { Player } from "../core/player" */
/** @import { Words } from "../parts/page" */

export class Controls extends PlayerControls {
  constructor(/** @type {Player} */ player, /** @type {Words} */ words) {
    super(player, words);
    const { start, play } = words.view.transport;
    this.play = moveButton("play", play, () => this.toggle());
    this.root = el("div", { class: "sd-transport", role: "group", "aria-label": words.controls, hidden: true },
      moveButton("start", start, () => player.seek(0)), this.play, moveButton("end", words.end, () => this.toEnd()), this.slider, this.place, this.speed);
  }

  render() {
    const { timeline: course, playing } = this.player;
    const seconds = (/** @type {number} */ at) => decimals(course.timeAt(at) / 1000, 1);
    this.show(fill(this.words.clock_of, { now: seconds(course.at), all: seconds(course.last) }));
    const name = playing ? "pause" : "play";
    paintMove(this.play, name, this.words.view.transport[name]);
  }
}
