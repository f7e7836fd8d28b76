// All methods as a table: what each guesses with, needs and gains, when it pays, how it works, and the ways to try it.

import { fetchFile } from "../core/recorded.js";
import { fold } from "../core/reducer.js";
import { disturbed, repeatsItself, speedup, two } from "../core/metrics.js";
import { applyState } from "../core/permalink.js";
import { fill } from "../core/sentence.js";
import { el, firstSeen } from "../parts/dom.js";
import { lossyMark, stackable, table } from "../parts/blocks.js";
import { adviser } from "./adviser.js";

/**
 * @import { Line } from "../core/state"
 * @import { Given, Words } from "../parts/page"
 * @import { Result } from "./adviser"
 * @typedef {{ name: string, target: string }} Recorded a run and what it was recorded on
 * @typedef {{ name: string, title: string, summary: string, needs: string[], why_not: string, lossy: boolean, runs: Recorded[] }} Method
 * @typedef {{ methods: Method[], targets: string[], live: boolean, measured: Result[] }} Data targets: those with recorded runs, the largest first
 * @typedef {Given & { send(text: string): void, open?(run: string): void }} Here
 */

/**
 * Draw the table in `element`; `read()` gives it as JSON, `send("race NAME")` sets up a race of a method against plain
 * decoding, `open(run)` shows a recorded run.
 * @param {HTMLElement} element @param {Here} given
 */
export function mountMethods(element, given) {
  const methods = new MethodsTable(given);
  element.replaceChildren(methods.root);
  given.watch(() => methods.draw());
  methods.draw();
  firstSeen(methods.root).then(() => methods.fill());
}

class MethodsTable {
  #given;
  #drawn = "";
  /** @type {{ run: string, cell: HTMLElement }[]} */
  #gains = [];
  #seen = false;

  constructor(/** @type {Here} */ given) {
    this.#given = given;
    this.root = el("div", { class: "sd-methods" });
  }

  draw() {
    const { read, words } = this.#given;
    const value = read();
    if (!value.startsWith("{") || value === this.#drawn) return; // else it is what was sent
    this.#drawn = value;
    this.#gains = [];
    /** @type {Data} */
    const { methods, targets, live, measured } = JSON.parse(value);
    const [first, ...others] = [...words.columns];
    const recorded = targets.map((target) => fill(words.recorded, { target }));
    const heads = [first, ...others.slice(0, 2), ...recorded, ...others.slice(2)];
    this.root.replaceChildren(el("div", { class: "sd-audit-box", tabindex: "0", role: "region", "aria-label": words.label },
      stackable(table(heads, methods.map((method) => this.#row(method, targets, live))))));
    const titles = Object.fromEntries(methods.map(({ name, title }) => [name, (this.#given.say ?? ((text) => text))(title)]));
    const results = measured.filter(({ method }) => method in titles); // those that this page has
    if (results.length) this.root.append(adviser(results, titles, words.adviser));
    if (this.#seen) this.fill();
  }

  /** @param {Method} method @param {string[]} targets @param {boolean} live */
  #row(method, targets, live) {
    const { words, send, say = (text) => text, open = (run) => applyState({ tab: "play", recorded: run }) } = this.#given;
    const { name, summary, needs, why_not: why, lossy, runs } = method;
    const title = say(method.title);
    /** @param {string} label @param {(event: MouseEvent) => void} act */
    const button = (label, act) => el("button", { type: "button", class: "sd-button", "aria-label": fill(words.of, { label, method: title }), onclick: act }, label);
    const heading = el("th", { scope: "row" }, title, ...lossyMark(lossy, words));
    const needed = el("td", { class: "sd-detail" }, needs.length ? needs.map(say).join(", ") : words.nothing);
    if (why) needed.append(el("div", { class: "sd-methods-missing" }, say(why)));
    const gains = targets.map((target) => {
      const cells = runs.filter((run) => run.target === target).map((run) => ({ run: run.name, cell: el("div", {}, words.reading) }));
      this.#gains.push(...cells);
      return cells.length ? el("td", { class: "sd-methods-gain" }, ...cells.map(({ cell }) => cell)) : el("td", { class: "sd-unsaid" }, words.unsaid);
    });
    const acts = el("div", { class: "sd-methods-acts" });
    if (live && !why) {
      acts.append(button(words.try, () => applyState({ tab: "play", method: name })));
      if (name !== "nothing") acts.append(button(words.race, () => send(`race ${name}`)));
    }
    if (runs.length) acts.append(button(words.watch, () => open(runs[0].name)));
    const more = button(words.details, () => more.setAttribute("aria-expanded", String(heading.parentElement?.classList.toggle("sd-unfolded"))));
    more.classList.add("sd-methods-more");
    more.setAttribute("aria-expanded", "false");
    heading.append(el("div", { class: "sd-methods-acts" }, more));
    return [heading, words.guesses[name] ?? words.unsaid, needed, ...gains,
      el("td", { class: "sd-detail" }, words.pays[name] ?? words.unsaid), el("td", { class: "sd-methods-says sd-detail" }, say(summary)), el("td", { class: "sd-detail" }, acts)];
  }

  /** Read what the recorded runs gained, one after the other, so that the page stays at hand. */
  async fill() {
    this.#seen = true;
    for (const { run, cell } of this.#gains) cell.textContent = gained((await fetchFile(run)) ?? [], this.#given.words);
  }
}

/** What a recorded run gained. @param {Line[]} items @param {Words} words */
function gained(items, words) {
  const { plain, speculative } = fold(items).lanes;
  const ratio = speculative && speedup(plain, speculative);
  if (disturbed(plain, speculative)) return words.disturbed;
  return ratio ? fill(repeatsItself(speculative) ? words.gain_repeats : words.gain, { speedup: two(ratio), precision: speculative.header.target?.precision ?? "" }) : words.unsaid;
}
