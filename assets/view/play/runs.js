// Recorded runs: their menu, the lines that one of them or a file gives, and the visitor's last run.

import { isTooLarge, readTrace } from "../core/lines.js";
import { readState } from "../core/permalink.js";
import { fetchFile } from "../core/recorded.js";
import { readRun } from "../core/runlink.js";
import { fill } from "../core/sentence.js";
import { dialog, table } from "../parts/blocks.js";
import { el } from "../parts/dom.js";

/** @import { Line, Notice, Open } from "../core/state" */
/** @import { Words } from "../parts/page" */
/** @import { Mounted } from "./view" */
/**
 * Draw the menu in `element`; words.runs lists [name, title, prompt, method, group].
 * @param {HTMLElement} element @param {{ send(name: string): void, words: Words }} how
 */
export function mountRuns(element, { send, words }) {
  const menu = el("select", { class: "sd-runs", "aria-label": words.label });
  menu.append(el("option", { value: "" }, words.label), ...Object.entries(words.groups).map(([group, label]) => el("optgroup", { label },
    ...words.runs.filter((run) => run[4] === group).map(([value, title, prompt, method]) => el("option", { value, "data-prompt": prompt, "data-method": method }, title)))));
  menu.addEventListener("change", () => menu.value && send(menu.value));
  document.addEventListener("specdemo-shown", (event) => {
    menu.value = /** @type {CustomEvent<string>} */ (event).detail;
    if (menu.selectedIndex < 0) menu.value = "";
  });
  document.addEventListener("input", (event) => {
    const box = event.target instanceof HTMLTextAreaElement && event.target.closest("#sd-prompt") ? event.target : null;
    if (box) ask(box.value);
  });
  element.replaceChildren(menu);
}

/** An example was chosen: its recording is played; without one, what is shown is no longer its answer. @param {string} prompt */
export function example(prompt) {
  const menu = /** @type {HTMLSelectElement | null} */ (document.querySelector("#sd-runs select"));
  const recorded = [...menu?.options ?? []].filter((option) => option.dataset.prompt === prompt);
  const [chosen] = [...recorded.filter((option) => option.dataset.method !== "nothing"), ...recorded];
  if (!menu || !chosen) return ask(prompt);
  menu.value = chosen.value;
  menu.dispatchEvent(new Event("change"));
}

/** Another question is asked than the one that is answered. @param {string} prompt */
export function ask(prompt) {
  shownView()?.ask(prompt);
}

// ---- Where lines come from beside the server's stream: a recorded run, the one that the address asks for, or the visitor's file

/**
 * The lines of the recorded run of an opening line, or of the one that the address asks for.
 * @param {Open} opening @param {Words} words @returns {Promise<Line[]>}
 */
export async function fetchRun(opening, words) {
  const own = opening.key === "opening" ? globalThis.history?.state?.trace : null;
  if (own) return opened(readTrace(own), words.yours, words);
  const sent = opening.key === "opening" ? await readRun(globalThis.location?.hash ?? "") : null;
  const received = sent && opened(sent, words.shared, words);
  if (sent?.items.length && received) return received;
  const asked = opening.key === "opening" ? readState(location.search).recorded : "";
  const other = asked && asked !== opening.run ? await fetchFile(asked) : null;
  if (other) return [{ ...opening, run: asked, title: "" }, ...other];
  const events = await fetchFile(opening.run ?? "");
  return [opening, ...(received ?? []), ...(events ?? [{ type: "notice", message: fill(words.nothing, { name: opening.run }) }])];
}

/**
 * The lines of the trace in a file, of this program or of another one's log, or what is wrong with it as one notice.
 * words: `trace` of the view's
 * @param {File} file @param {Words} words @returns {Promise<Line[]>}
 */
export async function readFile(file, words) {
  const { name } = file;
  if (isTooLarge(file.size)) return [{ type: "notice", message: fill(words.large, { name }), unharmed: words.unharmed, advice: words.advice, aside: true }];
  const text = await file.text();
  const trace = readTrace(text);
  return (trace.items.length ? null : await imported(text, name, words)) ?? opened(trace, name, words);
}

/**
 * The lines of the first request in a log or table of another program, which the page's server reads; the table of all requests
 * is shown too. Null if the server finds nothing in it, or if there is no server.
 * @param {string} text @param {string} name @param {Words} words @returns {Promise<Line[] | null>}
 */
async function imported(text, name, words) {
  const answer = await fetch("pasted", { method: "POST", body: text }).catch(() => null);
  if (!answer?.ok) return null;
  const { rows, trace } = await answer.json().catch(() => ({}));
  if (!rows?.length) return null;
  const shown = dialog("table", fill(words.table, { name }), words.close, table(words.columns, rows));
  shown.addEventListener("close", () => shown.remove());
  document.body.append(shown);
  shown.showModal();
  return trace ? opened(readTrace(trace), name, words) : [];
}

/**
 * A trace that somebody sent, as lines of the view; what is wrong with it as a notice. name: of the file, or of what it is
 * @param {{ items: Line[], line: number, problem: string }} trace @param {string} name @param {Words} words @returns {Line[]}
 */
export function opened({ items, line, problem }, name, words) {
  if (!items.length) {
    const message = fill(line ? words.foreign : problem ? words.damaged : words.nothing, { name, line, problem });
    return [{ type: "notice", message, unharmed: words.unharmed, advice: words.advice, aside: true }];
  }
  /** @type {Open} */
  const opening = { type: "open", source: "recorded", key: name, title: name };
  /** @type {Notice} */
  const notice = { type: "notice", message: fill(words.cut, { name, line, problem, count: items.length }) };
  return [opening, ...(problem ? [notice] : []), ...items];
}

// ---- The visitor's last run on this page, for parts that look at it

/** The view of the first tab. */
export const shownView = () => /** @type {Mounted | null} */ (document.querySelector("#sd-view .sd-mount"))?.view;

/** Its events; null while nothing was run here, and where a recorded run is shown. */
export function lastRun() {
  const { events, recorded } = shownView() ?? {};
  return events?.length && !recorded ? events : null;
}
