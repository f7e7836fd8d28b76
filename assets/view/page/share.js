// The dialog that makes links: the page as it stands, or simplified for a class; copied, or as a QR code.

import { dialog } from "../parts/dialog.js";
import { calm, el, svg, textEl } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { writeState } from "../core/permalink.js";
import { pageRoot } from "./presenter.js";

/**
 * @import { Words } from "../parts/page"
 * @import { PageState } from "../core/permalink"
 * @typedef {{ size: number, path: string }} Code a QR code as a drawing
 * @typedef {{ qr(address: string): Promise<Code>, reach(origin: string): Promise<{ sentence: string, address: string }> }} Server
 */

export class Share {
  /**
   * server: answers `qr(address)` and `reach(origin)`; defaults: values that a link need not name
   * @param {Words} words @param {string} close @param {Server} server @param {Record<string, unknown>} defaults
   */
  constructor(words, close, server, defaults) {
    this.words = words;
    this.server = server;
    this.defaults = defaults;
    this.origin = location.origin;
    this.link = el("input", { type: "text", readonly: true, class: "sd-address", "aria-label": words.link });
    this.copy = textEl("button", words.copy, { type: "button", class: "sd-copy", onclick: () => this.#copy() });
    this.note = el("p", { class: "sd-dialog-note", role: "status" });
    this.reach = el("p", { class: "sd-reach", hidden: true });
    this.code = el("div", { class: "sd-qr" });
    /** @type {Record<string, HTMLInputElement>} */
    this.choices = {};
    const parts = Object.entries(words.parts).map(([name, label]) => this.#choice(name, label));
    const legend = textEl("legend", words.hide);
    const own = [this.#choice("run", words.start), this.#choice("presenter", words.presenter)];
    const form = el("div", { class: "sd-share-form" },
      el("div", { class: "sd-share-row" }, this.link, this.copy), this.note, this.reach,
      textEl("h3", words.class), ...own, el("fieldset", {}, legend, ...parts));
    this.root = dialog("share", words.title, close, el("div", { class: "sd-share" }, form, this.code));
    this.drawCode = calm(150, () => this.#drawCode());
  }

  /** Open for a state of the page, see permalink.js. @param {PageState} state */
  async open(state) {
    this.state = state;
    const { classList } = pageRoot();
    for (const name of Object.keys(this.words.parts)) this.choices[name].checked = classList.contains(`sd-hide-${name}`);
    this.choices.presenter.checked = classList.contains("sd-presenter");
    this.#update();
    this.root.showModal();
    this.link.focus();
    const { sentence, address } = await this.server.reach(location.origin);
    this.reach.hidden = !sentence;
    this.reach.textContent = sentence;
    if (address) this.reach.append(" ", textEl("button", fill(this.words.use, { address }), { type: "button", onclick: () => this.#use(address) }));
  }

  /** @param {string} name @param {string} text */
  #choice(name, text) {
    const box = el("input", { type: "checkbox", onchange: () => this.#update() });
    this.choices[name] = box;
    return el("label", { class: "sd-choice" }, box, " ", text);
  }

  get #address() {
    /** @param {string} name */
    const chosen = (name) => this.choices[name].checked;
    const hide = Object.keys(this.words.parts).filter(chosen).join(",");
    const state = { ...this.state, hide, presenter: chosen("presenter"), run: chosen("run") };
    const query = writeState(state, { ...this.defaults, presenter: false, run: false });
    return `${this.origin}${location.pathname}${query && `?${query}`}`;
  }

  /** @param {string} origin */
  #use(origin) {
    this.origin = origin;
    this.#update();
  }

  #update() {
    this.link.value = this.#address;
    this.note.textContent = "";
    this.drawCode();
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText(this.link.value);
      this.note.textContent = this.words.copied;
    } catch {
      this.link.select();
      this.note.textContent = this.words.select;
    }
  }

  async #drawCode() {
    const address = this.link.value;
    const { size, path } = await this.server.qr(address);
    if (address !== this.link.value) return;
    if (!size) {
      this.code.replaceChildren(textEl("p", this.words.qr_failed));
      return;
    }
    const drawing = svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": this.words.qr, "shape-rendering": "crispEdges" });
    drawing.append(svg("path", { d: path }));
    this.code.replaceChildren(drawing);
  }
}
