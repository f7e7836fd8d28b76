// The page's own player in a lesson, at rest until somebody plays.

import { el } from "../parts/dom.js";
import { mount } from "../play/view.js";

export class Screen {
  constructor(words) {
    this.root = el("div", { class: "sd-lesson-screen", onkeydown: (event) => this.#key(event) });
    this.view = mount(this.root, { read: () => "", watch() {}, words, keys: false });
  }

  show(name, items) {
    this.root.hidden = false;
    if (this.name !== name) this.view.load(items, { autoplay: false });
    else this.view.seekStep(-1);
    this.name = name;
  }

  // The player's keys within the player alone: elsewhere Space and the arrows move the page.
  #key(event) {
    if (!event.defaultPrevented && !event.target.closest("input, select, button, a")) this.view.transport.key(event);
  }
}
