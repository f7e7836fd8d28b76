// All methods as a table: what each guesses with, needs and gains, when it pays, how it works, and the ways to try it.

import { fetchFile } from "../core/recorded.js";
import { fold } from "../core/reducer.js";
import { speedup, two } from "../core/metrics.js";
import { applyState } from "../core/permalink.js";
import { fill } from "../core/sentence.js";
import { el, firstSeen, textEl } from "../parts/dom.js";

/**
 * @import { Given, Words } from "../parts/page"
 * @typedef {{ name: string, title: string, summary: string, needs: string[], why: string, lossy: boolean, runs: string[] }} Method
 * @typedef {{ methods: Method[], live: boolean }} Data
 */

/**
 * Draw the table in `element`; `read()` gives it as JSON, `send("race NAME")` sets up a race of a method against plain decoding.
 * @param {HTMLElement} element @param {Given & { send(text: string): void }} given
 */
export function mountMethods(element, { read, watch, send, words, say = (text) => text }) {
  const root = el("div", { class: "sd-methods" });
  /** @type {Map<string, Promise<string>>} */
  const known = new Map(); // what a recorded run gained, by its name
  let seen = false;
  const draw = () => {
    if (!read().startsWith("{")) return; // what was sent
    /** @type {Data} */
    const { methods, live } = JSON.parse(read());
    const head = el("tr", {}, ...words.columns.map((name) => textEl("th", name, { scope: "col" })));
    const rows = methods.map((method) => row(method, words, { live, send, say }));
    root.replaceChildren(el("div", { class: "sd-audit-box", tabindex: "0", role: "region", "aria-label": words.label },
      el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows.map(({ node }) => node)))));
    if (seen) fillGains(rows, words, known);
  };
  element.replaceChildren(root);
  watch(draw);
  draw();
  firstSeen(root).then(() => {
    seen = true;
    draw();
  });
}

/** @param {Method} method @param {Words} words @param {{ live: boolean, send(text: string): void, say(text: string): string }} how */
function row({ name, title, summary, needs, why, lossy, runs }, words, { live, send, say }) {
  const heading = textEl("th", say(title), { scope: "row" });
  if (lossy) heading.append(" ", textEl("span", words.lossy, { class: "sd-lossy" }));
  const needed = el("td", {}, needs.length ? needs.map(say).join(", ") : words.nothing);
  if (why) needed.append(textEl("div", say(why), { class: "sd-methods-missing" }));
  const gains = runs.map((run) => ({ run, cell: el("div", {}, words.reading) }));
  /** @param {string} label @param {() => void} act */
  const button = (label, act) => el("button", { type: "button", class: "sd-button", "aria-label": fill(words.of, { label, method: say(title) }), onclick: act }, label);
  const acts = el("div", { class: "sd-methods-acts" });
  if (live && !why) {
    acts.append(button(words.try, () => applyState({ tab: "play", method: name })));
    if (name !== "nothing") acts.append(button(words.race, () => send(`race ${name}`)));
  }
  if (runs.length) acts.append(button(words.watch, () => applyState({ tab: "play", recorded: runs[0] })));
  return {
    node: el("tr", {}, heading, textEl("td", words.guesses[name] ?? words.unsaid), needed,
      el("td", {}, ...gains.map(({ cell }) => cell)), textEl("td", words.pays[name] ?? words.unsaid), textEl("td", say(summary)), el("td", {}, acts)),
    gains,
  };
}

// Each run is read once, one after the other, so that the page stays at hand.
/** @param {ReturnType<typeof row>[]} rows @param {Words} words @param {Map<string, Promise<string>>} known */
async function fillGains(rows, words, known) {
  for (const { run, cell } of rows.flatMap(({ gains }) => gains)) {
    if (!known.has(run)) known.set(run, gained(run, words));
    cell.textContent = (await known.get(run)) ?? "";
  }
}

/** What a recorded run gained, on which target. @param {string} run @param {Words} words */
async function gained(run, words) {
  const items = await fetchFile(run);
  const { plain, speculative } = fold(items ?? []).lanes;
  const ratio = speculative && speedup(plain, speculative);
  return ratio ? fill(words.gain, { speedup: two(ratio), target: speculative.header.target?.name ?? "" }) : words.unsaid;
}
