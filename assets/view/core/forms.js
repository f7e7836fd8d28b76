// A run in other forms: its trace, a table, and one HTML file that plays it anywhere.

/**
 * @import { Line, Node, Verified } from "./state"
 */

export const COLUMNS = [
  "lane", "step", "node", "parent", "token_id", "text", "status",
  "target_prob", "draft_prob", "accept_prob", "draw", "survival",
  "confidence", "origin",
  "draft_seconds", "verify_seconds", "overhead_seconds", "elapsed_seconds",
];

/** The events as JSON lines. @param {Line[]} events */
export const traceText = (events) => events.map((item) => `${JSON.stringify(item)}\n`).join("");

/**
 * One row for each token, refused ones included; the target's own has no node (RFC 4180). See `csv_table` in specdemo/trace/tables.py.
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
  return rows.map((cells) => `${cells.map(cell).join(",")}\r\n`).join("");
}

/** @param {Verified} event @param {Node} node @param {number | null} place @param {number | null} parent */
const row = (event, node, place, parent) => [
  event.lane, event.step, place, parent, node.token_id, harmless(node.text ?? ""), node.status ?? "drafted",
  node.target_prob, node.draft_prob, node.accept_prob, node.draw, node.survival,
  node.confidence, node.origin,
  event.draft_seconds, event.verify_seconds, event.overhead_seconds, event.elapsed_seconds,
];

/** A spreadsheet takes such a text for a formula, and a model may say anything. @param {string} text */
const harmless = (text) => (/^[=+\-@\t\r\n＝＋－＠]/.test(text) ? `'${text}` : text);

/** @param {unknown} value */
function cell(value) {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const EMPTY = '<script type="application/json" id="sd-run">null</script>';

/**
 * The player page with a run in it. page: what `player_page` of specdemo/trace/tables.py wrote
 * @param {string} page @param {{ title: string, trace: string }} run
 */
export function withRun(page, run) {
  const data = JSON.stringify(run).replace(/[<\u2028\u2029]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const at = page.indexOf(EMPTY);
  if (at < 0) throw new Error("this is not the player's page");
  return page.slice(0, at) + EMPTY.replace("null", () => data) + page.slice(at + EMPTY.length);
}
