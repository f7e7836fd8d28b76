// The menu to save a run: its trace, a table, and one HTML file that plays it anywhere.

import { el } from "../parts/dom.js";

/** @import { Line, Node as Token, State, Verified } from "../core/state" */
/** @import { Words } from "../parts/page" */
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
    list.append(el("button", { type: "button", class: "sd-button", "data-save": "", title: words[`${name}_hint`], onclick: () => {
      menu.open = false;
      summary.focus();
      act().catch(() => notify(words.failed));
    } }, words[name]));
  };
  entry("trace", async () => save(traceText(view.events), "application/jsonl", "specdemo-trace.jsonl"));
  entry("csv", async () => save(`\uFEFF${csvTable(view.events)}`, "text/csv", "specdemo-tokens.csv"));
  // A page that was opened from a disk is such a file itself.
  if (globalThis.location?.protocol !== "file:") {
    entry("html", async () => {
      const answer = await fetch(new URL("player.html", document.baseURI));
      if (!answer.ok) throw new Error(answer.statusText);
      const { source, lane, lanes } = view.state;
      const run = { title: source.title || (lanes[lane ?? ""]?.header.prompt ?? ""), trace: traceText(view.events) };
      save(withRun(await answer.text(), run), "text/html", "specdemo-replay.html");
    });
  }
  list.append(el("p", { class: "sd-menu-wait" }, words.wait));
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

/** Save a file. @param {BlobPart} content @param {string} type @param {string} name */
export function save(content, type, name) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// ---- A run in other forms: its trace, a table, and one HTML file that plays it anywhere

const COLUMNS = [
  "lane", "step", "node", "parent", "token_id", "text", "status",
  "target_prob", "draft_prob", "accept_prob", "draw", "survival",
  "confidence", "origin", "ticket",
  "draft_seconds", "verify_seconds", "overhead_seconds", "elapsed_seconds",
];

/** The events as JSON lines. @param {Line[]} events */
export const traceText = (events) => events.map((item) => `${JSON.stringify(item)}\n`).join("");

/**
 * One row for each token, refused ones included; the target's own has no node (RFC 4180). See `csv_table` in specdemo/trace/replay.py.
 * @param {Line[]} events
 */
export function csvTable(events) {
  /** @type {unknown[][]} */
  const rows = [COLUMNS];
  for (const event of events) {
    if (event.type !== "verified") continue;
    event.nodes.forEach((node, place) => rows.push(row(event, node, place, node.parent ?? -1)));
    if (event.next) rows.push(row(event, event.next, null, null));
  }
  return csv(rows);
}

/** Rows as a table of comma-separated values. @param {readonly (readonly unknown[])[]} rows */
export const csv = (rows) => rows.map((cells) => `${cells.map(cell).join(",")}\r\n`).join("");

/** @param {Verified} event @param {Token} node @param {number | null} place @param {number | null} parent */
const row = (event, node, place, parent) => [
  event.lane, event.step, place, parent, node.token_id, harmless(node.text ?? ""), node.status ?? "drafted",
  node.target_prob, node.draft_prob, node.accept_prob, node.draw, node.survival,
  node.confidence, node.origin, node.ticket,
  event.draft_seconds, event.verify_seconds, event.overhead_seconds, event.elapsed_seconds,
];

/** A spreadsheet takes such a text for a formula, and a model may say anything. @param {string} text */
const harmless = (text) => (/^[=+\-@\t\r\n＝＋－＠]/.test(text) ? `'${text}` : text);

function cell(/** @type {unknown} */ value) {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const EMPTY = '<script type="application/json" id="sd-run">null</script>';

/**
 * The player page with a run in it. page: what `player_page` of specdemo/ui/player.py wrote
 * @param {string} page @param {{ title: string, trace: string }} run
 */
export function withRun(page, run) {
  const data = JSON.stringify(run).replace(/[<\u2028\u2029]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const at = page.indexOf(EMPTY);
  if (at < 0) throw new Error("this is not the player's page");
  return page.slice(0, at) + EMPTY.replace("null", () => data) + page.slice(at + EMPTY.length);
}
