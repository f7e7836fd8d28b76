// The whole of it as static files: recorded runs and their player, the lab and the lessons, without Gradio or Python.

import { el } from "./dom.js";
import { frame, given } from "./frame.js";
import { mount } from "./view.js";

const data = given("sd-data");
const words = data.words.export.page;
// A part is fetched when it is first wanted.
const PARTS = {
  play: (element) => new Play(element),
  lab: async (element) => (await import("./lab.js")).mountLab(element, fixed(data.parts.lab)),
  lessons: async (element) => (await import("./lessons.js")).mountLessons(element, fixed(data.parts.lessons)),
};

// What a part gets on the page with Gradio, without anything that changes.
const fixed = ({ value, words }) => ({ read: () => value, watch() {}, words });

/** The recorded runs: a menu and the player. */
class Play {
  #text = "";
  #changed = () => {};

  constructor(element) {
    this.menu = el("select", { id: "sd-site-runs" }, ...data.runs.map(({ name, title }) => {
      const option = el("option", { value: name });
      option.textContent = title;
      return option;
    }));
    const label = el("label", { for: "sd-site-runs" });
    label.textContent = words.runs;
    const place = el("div", { class: "sd-site-play" });
    element.append(el("div", { class: "sd-site-choice" }, label, this.menu), place);
    mount(place, { read: () => this.#text, watch: (call) => (this.#changed = call), words: data.words });
    this.menu.addEventListener("change", () => (location.hash = `play/${this.menu.value}`));
  }

  /** Play a run; the first without a name that is known. */
  async show(name) {
    const run = data.runs.find((one) => one.name === name) ?? data.runs[0];
    if (run.name === this.name) return;
    this.name = this.menu.value = run.name;
    const open = { type: "open", source: "recorded", key: run.name, title: run.title };
    let text;
    try {
      const answer = await fetch(`runs/${run.name}.jsonl`);
      if (!answer.ok) throw new Error(answer.statusText);
      text = `${JSON.stringify(open)}\n${await answer.text()}`;
    } catch {
      open.key += " missing";
      text = `${JSON.stringify(open)}\n${JSON.stringify({ type: "notice", message: words.missing })}\n`;
    }
    if (this.name !== run.name) return; // another was chosen meanwhile
    this.#text = text;
    this.#changed();
  }
}

/** Tabs whose open one, and the run in it, stand in the address. */
class Site {
  #parts = {};

  constructor() {
    const names = Object.keys(PARTS).filter((name) => name === "play" || data.parts[name]);
    this.panels = Object.fromEntries(names.map((name) => [name, el("section", { id: `sd-panel-${name}`, role: "tabpanel", "aria-labelledby": `sd-tab-${name}`, hidden: true })]));
    this.tabs = Object.fromEntries(names.map((name) => {
      const tab = el("button", { type: "button", role: "tab", id: `sd-tab-${name}`, "aria-controls": `sd-panel-${name}`, onclick: () => (location.hash = name) });
      tab.textContent = words.tabs[name];
      return [name, tab];
    }));
    const list = el("div", { class: "sd-site-tabs", role: "tablist", "aria-label": words.tabs_label, onkeydown: (event) => this.#walk(event) }, ...Object.values(this.tabs));
    frame(words, list, ...Object.values(this.panels));
    addEventListener("hashchange", () => this.show());
    this.show();
  }

  /** Show what the address names. */
  async show() {
    const [wanted, run] = location.hash.slice(1).split("/");
    const open = wanted in this.panels ? wanted : "play";
    for (const [name, tab] of Object.entries(this.tabs)) {
      tab.setAttribute("aria-selected", String(name === open));
      tab.tabIndex = name === open ? 0 : -1;
      this.panels[name].hidden = name !== open;
    }
    this.#parts[open] ??= PARTS[open](this.panels[open]);
    const part = await this.#parts[open];
    if (open === "play") await part.show(run ?? part.name);
  }

  #walk(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const tabs = Object.values(this.tabs);
    const next = tabs.at((tabs.indexOf(document.activeElement) + by) % tabs.length);
    next.focus();
    next.click();
  }
}

new Site();
