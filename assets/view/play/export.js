// The menu to save a run: its trace, a table, and one HTML file that plays it anywhere.

import { csvTable, traceText, withRun } from "../core/forms.js";
import { el } from "../parts/dom.js";

/**
 * @import { Line, State } from "../core/state"
 * @import { Words } from "../parts/page"
 */

/**
 * A menu with the ways to save what a view shows. view: has `events` and `state`; notify: shows a sentence when it fails
 * @param {{ events: Line[], state: State }} view @param {Words} words @param {(sentence: string) => void} notify
 */
export function exportMenu(view, words, notify) {
  const menu = el("details", { class: "sd-menu" });
  const summary = el("summary", { class: "sd-button" }, words.menu);
  const list = el("div", { class: "sd-menu-list" });
  /** @param {string} name @param {() => Promise<void>} act */
  const entry = (name, act) => {
    const button = el("button", { type: "button", class: "sd-button", "data-save": "", title: words[`${name}_hint`], onclick: () => {
      menu.open = false;
      summary.focus();
      act().catch(() => notify(words.failed));
    } }, words[name]);
    list.append(button);
  };
  entry("trace", async () => save(traceText(view.events), "application/jsonl", "specdemo-trace.jsonl"));
  entry("csv", async () => save(`\uFEFF${csvTable(view.events)}`, "text/csv", "specdemo-tokens.csv"));
  // A page that was opened from a disk is such a file itself.
  if (globalThis.location?.protocol !== "file:") {
    entry("html", async () => {
      const answer = await fetch(new URL("player.html", document.baseURI));
      if (!answer.ok) throw new Error(answer.statusText);
      const run = { title: titleOf(view.state), trace: traceText(view.events) };
      save(withRun(await answer.text(), run), "text/html", "specdemo-replay.html");
    });
  }
  menu.append(summary, list);
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    menu.open = false;
    summary.focus();
  });
  menu.addEventListener("focusout", (event) => {
    if (!menu.contains(/** @type {Node | null} */ (event.relatedTarget))) menu.open = false;
  });
  return menu;
}

/** @param {State} state */
const titleOf = ({ source, lane, lanes }) => source.title || (lanes[lane ?? ""]?.header.prompt ?? "");

/** @param {string} text @param {string} type @param {string} name */
function save(text, type, name) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
