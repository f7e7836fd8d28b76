// What a lesson needs around the page: links, simplified pages, the presenter mode, the keys, and what is reported about them.

import { el } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { Presenter, keysDialog, listen, pageRoot } from "./presenter.js";
import { onApply, readState, remembered } from "../core/permalink.js";
import { ask, shownView } from "../play/runs.js";
import { Address, choose, openTab, shownRun } from "./address.js";
import { Share } from "./share.js";

/**
 * @import { PageState } from "../core/permalink"
 * @import { Given, Words } from "../parts/page"
 * @import { Server } from "./share"
 * @typedef {Given & { send(query: string): void, server: Server }} Teaching
 */

const DRAWN = ["temperature", "top_k", "top_p", "penalty"]; // what the preset of sampling stands for

/** @type {Teach | null} */
let part = null;

/** Buttons of the page. values: of the controls that a link holds, in the order of its fields @param {unknown[]} values */
export const share = (values) => part?.share(values);
export const present = () => part?.presenter.toggle();
export const keys = () => part?.keys.showModal();

/** Called by the page once the controls have taken a state. */
export const applied = () => part?.applied();

/**
 * Build it in `element`. What `read` gives at first are the fields of a link, [name, default] each, and the opening
 * run; what `send` takes is a query, what `read` gives then a JSON list of sentences.
 * @param {HTMLElement} element @param {Teaching} given
 */
export function mountTeach(element, given) {
  part = new Teach(element, given);
}

class Teach {
  /** @param {HTMLElement} element @param {Teaching} how */
  constructor(element, { read, watch, send, server, words }) {
    this.words = words;
    /** @type {PageState} */
    this.asked = {};
    /** @type {{ fields: [string, unknown][], opening: string, languages: string[] }} */
    const { fields, opening, languages } = JSON.parse(read());
    this.languages = languages;
    this.fields = fields.map(([name]) => name);
    /** @type {Record<string, unknown>} */
    const defaults = { ...Object.fromEntries(fields), tab: "play", recorded: opening };
    for (const name of ["method", "sampling"]) delete defaults[name]; // always named: the default may change
    this.presenter = new Presenter((on) => {
      document.getElementById("sd-present")?.setAttribute("aria-pressed", String(on));
      this.live.textContent = on ? words.presenter.entered : words.presenter.left;
    });
    this.keys = keysDialog(/** @type {Record<string, Words>} */ (words).keys, words.close);
    this.dialog = new Share(words.share, words.close, server, { defaults, languages, headlines: words.headline });
    this.live = el("div", { class: "sd-hidden", "aria-live": "polite" });
    this.list = el("div", { class: "sd-messages", role: "status" });
    element.replaceChildren(this.keys, this.dialog.root, this.live, this.list);
    listen({ presenter: this.presenter, list: this.keys });
    watch(() => this.#report(read()));
    const follow = (/** @type {string} */ query) => {
      this.asked = readState(query);
      this.#report(JSON.stringify(this.#here(this.asked)));
      send(query);
    };
    this.address = new Address(opening);
    this.arriving = Boolean(location.search);
    if (this.arriving) follow(location.search.slice(1)); // unread: what is wrong with it is reported
    onApply(follow);
  }

  share(/** @type {unknown[]} */ values) {
    const state = Object.fromEntries(this.fields.map((name, index) => [name, values[index]]));
    if (state.sampling !== "own") for (const name of DRAWN) delete state[name];
    const dark = document.body.classList.contains("dark");
    const theme = dark === matchMedia("(prefers-color-scheme: dark)").matches ? "" : dark ? "dark" : "light";
    const { lang } = readState(location.search);
    const recorded = shownRun() || undefined;
    const { place, events = [] } = shownView() ?? {};
    this.dialog.open({ ...state, recorded, ...place, ...remembered(), tab: openTab(), theme, lang }, events);
  }

  applied() {
    const { recorded, run, prompt } = this.asked;
    // On arrival the view itself opens the run that the address names.
    if (recorded && !this.arriving) choose("#sd-runs select", recorded);
    this.arriving = false;
    this.address.followed = true;
    this.address.soon();
    if (prompt && !recorded && !run) ask(String(prompt));
    if (run) document.getElementById("sd-run")?.click();
  }

  /** What needs no control: theme, presenter mode, parts that are left out. returns: what was not possible @param {Record<string, any>} state */
  #here({ theme, presenter, hide, lang }) {
    /** @param {string} name @param {unknown} value */
    const wrong = (name, value) => fill(this.words.unknown_value, { name, value });
    const problems = [];
    if (["dark", "light"].includes(theme)) document.body.classList.toggle("dark", theme === "dark");
    else if (theme) problems.push(wrong("theme", theme));
    if (lang && !this.languages.includes(lang)) problems.push(wrong("lang", lang));
    if (presenter !== undefined) this.presenter.set(presenter);
    for (const name of hide ?? []) {
      if (name in this.words.share.parts) pageRoot().classList.add(`sd-hide-${name}`);
      else problems.push(wrong("hide", name));
    }
    return problems;
  }

  #report(/** @type {string} */ text) {
    if (!text?.startsWith("[")) return; // the query itself
    for (const sentence of JSON.parse(text)) {
      const close = el("button", { type: "button", "aria-label": this.words.dismiss, onclick: () => block.remove() }, "\u00d7");
      const block = el("p", {}, sentence, close);
      this.list.append(block);
    }
  }
}
