// What one does with pointer and keys: a token is pointed at or pinned, a step is hovered over or chosen.

import { closest } from "../parts/dom.js";

/** @import { Found } from "../parts/page" */
/** @import { Drawing } from "./drawing" */
/** @import { View } from "./view" */
export class Gestures {
  #view;
  #drawing;

  /** @param {View} view @param {Drawing} drawing */
  constructor(view, drawing) {
    this.#view = view;
    this.#drawing = drawing;
  }

  /** keys: whether the view takes the page's keys and the height of the window. @param {boolean} keys */
  listen(keys) {
    const { text, tree, strip, charts, layout, root } = this.#view;
    for (const part of [text, tree]) {
      /** @type {HTMLElement} */
      const within = part.root;
      for (const type of ["pointerover", "focusin"]) within.addEventListener(type, (event) => this.#point(part.find(event.target)));
      within.addEventListener("pointerleave", () => this.#view.moving && this.#leave());
      within.addEventListener("click", (event) => this.#pin(part.find(event.target), event.shiftKey));
      within.addEventListener("keydown", (event) => {
        const found = event.key === "Enter" && part.find(event.target);
        if (!found) return;
        event.preventDefault();
        this.#pin(found, event.shiftKey);
      });
    }
    tree.summary.id = `sd-summary-${Math.random().toString(36).slice(2)}`;
    strip.root.addEventListener("pointerover", (event) => this.#hover(strip.find(event.target)));
    strip.root.addEventListener("pointerleave", () => this.#hover(-1));
    charts.onselect = (at, chosen) => (chosen ? this.choose(at) : this.#hover(at));
    charts.onenlarge = () => layout.stage.classList.toggle("sd-charts-large");
    root.addEventListener("keydown", (event) => this.#escape(event));
    if (keys) this.#listenToPage();
  }

  #listenToPage() {
    const { layout } = this.#view;
    document.addEventListener("keydown", (event) => this.#takeKey(event));
    new ResizeObserver(() => layout.fit()).observe(document.body);
    addEventListener("resize", () => layout.fit());
  }

  #point(/** @type {Found | null} */ found) {
    if (!found) return;
    const { selection, tree } = this.#view;
    selection.pointed = selection.subject(found);
    found.token.setAttribute("aria-describedby", tree.summary.id);
    this.#drawing.inspect();
  }

  #leave() {
    this.#view.selection.pointed = null;
    this.#drawing.inspect();
  }

  #hover(/** @type {number} */ at) {
    this.#view.selection.hovered = at;
    this.#drawing.light();
  }

  /** @param {Found | null} found @param {boolean} beside */
  #pin(found, beside) {
    if (!found) return;
    const { selection, layout, inspector } = this.#view;
    selection.pin(selection.subject(found), { beside });
    const pinned = selection.pins.length > 0;
    if (pinned) layout.tab("token");
    this.#drawing.inspect();
    if (pinned) inspector.root.scrollIntoView({ block: "nearest" });
  }

  /** Compare the next token with the pinned one, or no longer. */
  arm() {
    this.#view.selection.arm();
    this.#drawing.inspect();
  }

  unpin() {
    this.#view.selection.unpin();
    this.#drawing.inspect();
  }

  /** A column of the strip: the player rests there. @param {number} at */
  choose(at) {
    const { selection, timeline } = this.#view;
    if (!this.#view.seekStep(timeline.stepAt(at))) return;
    selection.pins = [];
    this.#drawing.inspect();
  }

  /** Escape first takes off what is pinned, then, as elsewhere on the page, stops the run. @param {KeyboardEvent} event */
  #escape(event) {
    const { pins, armed } = this.#view.selection;
    if (event.key !== "Escape" || event.defaultPrevented || !(pins.length || armed)) return;
    event.preventDefault();
    this.unpin();
  }

  /** Take a key of the page. @param {KeyboardEvent} event */
  #takeKey(event) {
    const { root, transport, selection } = this.#view;
    if (event.defaultPrevented) return;
    if (event.key === "Escape" && event.target === document.body && selection.pins.length) {
      this.unpin();
      return;
    }
    runKeys(event);
    if (!root.getClientRects().length || closest(event.target, TYPING)) return;
    if (event.key.startsWith("Arrow") && closest(event.target, TABS)) return;
    if ((event.key === " " || event.key === "Enter") && closest(event.target, PRESSED)) return;
    transport.key(event);
  }
}

// ---- The keys of the view: those of the player and of the run, wherever the focus is that does not want them itself

// What has the focus wants all keys, or those that press a button.
const TYPING = "input, textarea, select, [role=slider], [role=listbox], [role=menu], [role=combobox], [contenteditable]";
const TABS = "[role=tab]"; // walked with the arrows
const PRESSED = "button, a, summary";

function runKeys(/** @type {KeyboardEvent} */ event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    // The prompt's last keys reach the server with the change event that leaving the box fires.
    setTimeout(() => document.getElementById("sd-run")?.click(), 0);
  }
  if (event.key === "Escape") document.getElementById("sd-stop")?.click();
}
