// The whole of it as static files: recorded runs, races and drafts, the lab, the lessons and the methods, without Gradio or Python.

import { el, menu } from "../parts/dom.js";
import { data, say } from "./data.js";
import { readState } from "../core/permalink.js";
import { frame } from "./frame.js";
import { mount } from "../play/view.js";

/**
 * @import { Given } from "../parts/page"
 * @typedef {Given & { send(text: string): void, open(run: string): void }} Here
 */

const words = data.words.export.page;
/** Only the first tab's script is there from the beginning. @type {Record<string, () => Promise<(element: HTMLElement, given: Here) => unknown>>} */
const MOUNTS = {
  play: async () => mount,
  race: async () => (await import("../race/race.js")).mountRace,
  proposals: async () => (await import("../proposals/proposals.js")).mountProposals,
  lab: async () => (await import("../lab/lab.js")).mountLab,
  lessons: async () => (await import("../lessons/lessons.js")).mountLessons,
  methods: async () => (await import("../methods/table.js")).mountMethods,
};

/** A part with what it would be given on the page with Gradio; of several recordings a menu chooses one. */
class Part {
  #value;
  run = ""; // which of the recordings is shown
  #changed = () => {};

  /** @param {string} name @param {HTMLElement} element */
  constructor(name, element) {
    this.name = name;
    const { value, choices, words: own } = data.parts[name];
    this.#value = value;
    const place = el("div");
    if (choices) element.append(this.#menu(name, choices));
    element.append(place);
    const watch = (/** @type {() => void} */ call) => (this.#changed = call);
    this.ready = MOUNTS[name]().then((mounted) => mounted(place, {
      read: () => this.#value, watch, say, words: { ...data.words, view: data.words, ...own },
      send() {}, // there is nobody to answer
      open: (run) => (location.hash = `play/${run}`),
    }));
  }

  /** Show one of the recordings; the first where none of that name is known. @param {string} key */
  async choose(key) {
    if (!this.choices || !this.menu) return;
    const [name, , value] = this.choices.find(([one]) => one === key) ?? this.choices[0];
    this.menu.value = name;
    if (this.run === name) return;
    this.run = name;
    this.#value = !key && this.name === "play" ? opening(value) : value;
    await this.ready;
    this.#changed();
  }

  /** @param {string} name @param {[string, string, string][]} choices */
  #menu(name, choices) {
    this.choices = choices;
    this.menu = menu({ id: `sd-choice-${name}`, onchange: () => (location.hash = `${name}/${this.menu.value}`) }, choices.map(([key, title]) => [key, say(title)]));
    return el("div", { class: "sd-site-choice" }, el("label", { for: this.menu.id }, words.choices[name]), this.menu);
  }
}

/** A recorded run as the one that the page opens with: a browser's first visit is introduced to it. @param {string} line */
const opening = (line) => `${JSON.stringify({ ...JSON.parse(line), key: "opening" })}\n`;

/** Tabs; the open one, and what is chosen in it, stand in the address. */
class Site {
  /** @type {Record<string, Part>} */
  #parts = {};

  constructor() {
    const names = Object.keys(MOUNTS).filter((name) => name in data.parts);
    this.panels = Object.fromEntries(names.map((name) => [name, el("section", { id: `sd-panel-${name}`, role: "tabpanel", "aria-labelledby": `sd-tab-${name}`, hidden: true })]));
    this.tabs = Object.fromEntries(names.map((name) => {
      const tab = { type: "button", role: "tab", id: `sd-tab-${name}`, "aria-controls": `sd-panel-${name}`, onclick: () => (location.hash = name) };
      return [name, el("button", tab, data.parts[name].label)];
    }));
    const list = el("div", { class: "sd-site-tabs", role: "tablist", "aria-label": words.tabs_label, onkeydown: (event) => this.#walk(event) }, ...Object.values(this.tabs));
    frame(words, list, ...Object.values(this.panels));
    addEventListener("hashchange", () => this.show());
    this.show();
  }

  /** Show what the address names. */
  show() {
    const [wanted, chosen] = location.hash.slice(1).split("/");
    const open = wanted in this.panels ? wanted : "play";
    for (const [name, tab] of Object.entries(this.tabs)) {
      tab.setAttribute("aria-selected", String(name === open));
      tab.tabIndex = name === open ? 0 : -1;
      this.panels[name].hidden = name !== open;
    }
    const part = (this.#parts[open] ??= new Part(open, this.panels[open]));
    part.choose(chosen ?? part.run);
  }

  #walk(/** @type {KeyboardEvent} */ event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const tabs = Object.values(this.tabs);
    const at = tabs.findIndex((tab) => tab === document.activeElement);
    const next = tabs.at((at + by) % tabs.length);
    next?.focus();
    next?.click();
  }
}

if (data.lms) {
  (await import("./scorm.js")).report();
  location.hash ||= "lessons";
}
for (const name of readState(location.search).hide ?? []) document.body.classList.add(`sd-hide-${name}`);
new Site();
setTimeout(() => document.head.append(el("script", { src: "plotly.min.js" })), 500); // it is large and waits until the first words are there
