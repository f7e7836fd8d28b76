// The dialog that makes links: the page as it stands, or simplified for a class; copied, or as a QR code.

import { dialog } from "../parts/blocks.js";
import { button, calm, copyText, el, menu, qrCode } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { writeState } from "../core/permalink.js";
import { writeRun } from "../core/runlink.js";
import { save } from "../play/export.js";
import { Card } from "./card.js";
import { pageRoot } from "./presenter.js";

/**
 * @import { Line } from "../core/state"
 * @import { Words } from "../parts/page"
 * @import { PageState } from "../core/permalink"
 * @typedef {{ size: number, path: string }} Code a QR code as a drawing
 * @typedef {{ qr(address: string): Promise<Code>, reach(origin: string): Promise<{ sentence: string, address: string }> }} Server
 */

const CLASSROOM = ["prompt", "controls", "examples", "runs", "batch", "tabs"]; // what a class need not see

export class Share {
  /**
   * server: answers `qr(address)` and `reach(origin)`; defaults: values that a link need not name; languages: of the page
   * headlines: sentences of the view
   * @param {Words} words @param {string} close @param {Server} server @param {{ defaults: Record<string, unknown>, languages: string[], headlines: Record<string, string> }} how
   */
  constructor(words, close, server, { defaults, languages, headlines }) {
    this.words = words;
    this.server = server;
    this.defaults = defaults;
    this.origin = location.origin;
    this.link = el("input", { type: "text", readonly: true, class: "sd-address", "aria-label": words.link });
    this.copy = button(words.copy, () => this.#copy(), { class: "sd-copy" });
    this.note = el("p", { class: "sd-dialog-note", role: "status" });
    this.reach = el("p", { class: "sd-reach", hidden: true });
    this.long = el("p", { class: "sd-dialog-note", hidden: true }, words.long_run);
    this.run = ""; // the run on show as the end of an address
    this.code = el("div", { class: "sd-qr" });
    /** @type {Record<string, HTMLInputElement>} */
    this.choices = {};
    const parts = Object.entries(words.parts).map(([name, label]) => this.#choice(name, label));
    const legend = el("legend", {}, words.hide);
    const own = [this.#choice("run", words.start), this.#choice("presenter", words.presenter)];
    const named = languages.map((name) => /** @type {const} */ ([name, new Intl.DisplayNames([name], { type: "language" }).of(name) ?? name]));
    this.language = menu({ onchange: () => this.#update() }, [["", words.any_language], ...named]);
    this.site = el("input", { type: "url", class: "sd-site-address", placeholder: "https://", oninput: () => this.#update() });
    const classroom = button(words.classroom, () => this.#forClass());
    own.push(el("label", { class: "sd-choice" }, words.language, " ", this.language), el("label", { class: "sd-choice sd-choice-site" }, words.site, " ", this.site));
    const form = el("div", { class: "sd-share-form" },
      el("div", { class: "sd-share-row" }, this.link, this.copy), this.note, this.long, this.reach,
      el("h3", {}, words.class), classroom, ...own, el("fieldset", {}, legend, ...parts));
    this.card = new Card(words, headlines);
    this.picture = el("div", { class: "sd-share-picture" }, this.card.canvas,
      button(words.card, () => this.#save(this.card.picture()), { class: "sd-copy" }),
      button(words.animation, () => this.#record(), { class: "sd-copy" }));
    this.root = dialog("share", words.title, close, el("div", { class: "sd-share" }, form, el("div", {}, this.picture, this.code)));
    this.drawCode = calm(150, () => this.#drawCode());
  }

  /** Open for a state of the page, see permalink.js. events: of the run on show @param {PageState} state @param {Line[]} events */
  async open(state, events) {
    this.state = state;
    const sent = state.recorded ? [] : events; // a recorded run has a name
    this.run = sent.length ? await writeRun(sent) : "";
    this.long.hidden = !sent.length || Boolean(this.run);
    this.picture.hidden = !events.length;
    this.card.show(events);
    const { classList } = pageRoot();
    for (const name of Object.keys(this.words.parts)) this.choices[name].checked = classList.contains(`sd-hide-${name}`);
    this.choices.presenter.checked = classList.contains("sd-presenter");
    this.language.value = state.lang ?? "";
    this.#update();
    this.root.showModal();
    this.link.focus();
    const { sentence, address } = await this.server.reach(location.origin);
    this.reach.hidden = !sentence;
    this.reach.textContent = sentence;
    if (address) this.reach.append(" ", button(fill(this.words.use, { address }), () => {
      this.origin = address;
      this.#update();
    }, { class: "" }));
  }

  /** @param {string} name @param {string} text */
  #choice(name, text) {
    const box = el("input", { type: "checkbox", onchange: () => this.#update() });
    this.choices[name] = box;
    return el("label", { class: "sd-choice" }, box, " ", text);
  }

  get #address() {
    const chosen = (/** @type {string} */ name) => this.choices[name].checked;
    const hide = Object.keys(this.words.parts).filter(chosen).join(",");
    const lang = this.language.value;
    const { tab, recorded } = this.state ?? {};
    const site = this.site.value.trim().replace(/[?#].*$/, "");
    if (site) {
      // A static site plays what is recorded: prompt, method, seed and all.
      const query = writeState({ lang, hide });
      return `${site}${query && `?${query}`}#${tab === "lessons" || tab === "lab" ? tab : `play/${recorded ?? ""}`}`;
    }
    const state = { ...this.state, lang, hide, presenter: chosen("presenter"), run: chosen("run") };
    // Where settings cannot be seen, all are named: the page's defaults may change.
    const left = { ...(chosen("controls") ? {} : this.defaults), presenter: false, run: false };
    const query = writeState(state, left);
    return `${this.origin}${location.pathname}${query && `?${query}`}${chosen("run") ? "" : this.run}`;
  }

  // What thirty learners should all see: the run and nothing to set, in one language.
  #forClass() {
    for (const name of CLASSROOM) this.choices[name].checked = true;
    this.language.value = document.documentElement.lang || "en";
    this.#update();
  }

  /** returns: the file; null if there is none @param {Promise<Blob | null>} file */
  async #save(file) {
    const content = await file;
    if (content) save(content, content.type, `specdemo.${content.type.split("/")[1]}`);
    return content;
  }

  async #record() {
    this.note.textContent = this.words.recording;
    const film = await this.#save(this.card.animation());
    this.note.textContent = film ? this.words.recorded : this.words.no_recording;
  }

  #update() {
    this.link.value = this.#address;
    this.note.textContent = "";
    this.drawCode();
  }

  async #copy() {
    const copied = await copyText(this.link.value, this.note, this.words.copied, this.words.select);
    if (!copied) this.link.select();
  }

  async #drawCode() {
    const address = this.link.value;
    const code = await this.server.qr(address);
    if (address !== this.link.value) return;
    this.code.replaceChildren(code.size ? qrCode(code, this.words.qr) : el("p", {}, this.words.qr_failed));
  }
}
