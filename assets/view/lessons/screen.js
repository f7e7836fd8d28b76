// The runs of a lesson in the page's own player, at rest until somebody plays. One player serves all lessons.

import { closest, el } from "../parts/dom.js";
import { mount } from "../play/view.js";
import { button } from "./question.js";

/** @import { Words } from "../parts/page" */
/** @import { Runs } from "./evidence" */

export class Screen {
  #words;
  #wanted = "";
  #shown = "";
  /** @type {Runs | null} */
  #runs = null;
  /** @type {Words | null} */
  #own = null;
  /** @type {Record<string, HTMLButtonElement>} */
  #picks = {};

  constructor(/** @type {Words} */ words) {
    this.#words = words;
    this.menu = el("div", { class: "sd-lesson-picks", role: "group", "aria-label": words.runs });
    this.look = el("p", { class: "sd-lesson-look", id: "sd-lesson-look" });
    this.problem = el("p", { class: "sd-lesson-problem", role: "alert", hidden: true });
    this.player = el("div", { class: "sd-lesson-screen", onkeydown: (event) => this.#key(event) });
    this.view = mount(this.player, { read: () => "", watch() {}, words: words.view, keys: false });
    this.root = el("section", { class: "sd-lesson-run" }, el("h3", {}, words.run), this.menu, this.look, this.problem, this.player);
  }

  /** The runs of a lesson, the first of them shown. @param {Runs} runs @param {string[]} names @param {Words} own words of the lesson's runs */
  open(runs, names, own) {
    this.#runs = runs;
    this.#own = own;
    this.#picks = Object.fromEntries(names.map((name) => [name, button(own[name].title, () => this.show(name), "sd-lesson-pick")]));
    this.menu.replaceChildren(...Object.values(this.#picks));
    this.menu.hidden = names.length < 2;
    this.show(names[0]);
  }

  async show(/** @type {string} */ name) {
    this.#wanted = name;
    for (const [other, pick] of Object.entries(this.#picks)) pick.setAttribute("aria-pressed", String(other === name));
    this.look.textContent = this.#own?.[name]?.look ?? "";
    this.problem.hidden = true;
    try {
      const items = (await this.#runs?.items(name)) ?? [];
      if (this.#wanted !== name) return;
      this.player.hidden = false;
      if (this.#shown !== name) this.view.load(items);
      else this.view.seekStep(-1);
      this.#shown = name;
    } catch (error) {
      if (this.#wanted !== name) return;
      this.problem.textContent = error instanceof Error ? error.message : String(error);
      this.problem.hidden = false;
      this.player.hidden = true;
    }
  }

  /** @param {string} name @param {number} step */
  async showStep(name, step) {
    await this.show(name);
    this.view.seekStep(step);
    this.player.scrollIntoView({ block: "center" });
  }

  /** The player's keys within the player alone: elsewhere Space and the arrows move the page. @param {KeyboardEvent} event */
  #key(event) {
    if (!event.defaultPrevented && !closest(event.target, "input, select, button, a")) this.view.transport.key(event);
  }
}
