// JSON lines: the wire format of a live run and the saved trace are the same text.

import { checked } from "./check.js";
import { RULES } from "./rules.js";

/** @import { Line } from "./state" */
/** @import { Event } from "../types" */

/** Whether a parsed line is an event of the run, not a remark of the page. @param {Line} item @returns {item is Event} */
export const isEvent = (item) => Object.hasOwn(RULES.events, item.type);

/**
 * Hand the whole lines of a growing text to a part, each once, now and whenever there are more. A text that does not begin
 * as before is another stream: `restarted` is then true. Values of a live stream that another one has replaced may still arrive when
 * the browser is busy; they are ignored.
 * @param {{ read(): string, watch(call: () => void): void }} given @param {(items: Line[], restarted: boolean) => void} take
 */
export function readLines({ read, watch }, take) {
  let head = "";
  let offset = 0;
  /** @type {Set<string>} first lines of live streams before this one */
  const replaced = new Set();
  const consume = () => {
    const text = read() ?? "";
    const first = text.slice(0, Math.max(0, text.indexOf("\n")));
    if (replaced.has(first)) return;
    if (first !== head && isLive(head)) replaced.add(head);
    const restarted = first !== head || text.length < offset;
    if (restarted) offset = 0;
    head = first;
    const whole = text.slice(offset, text.lastIndexOf("\n") + 1);
    offset += whole.length;
    take(whole.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line)), restarted);
  };
  watch(consume);
  consume();
}

/** Whether a first line opens a live stream, whose key no other stream has. @param {string} first */
const isLive = (first) => first !== "" && JSON.parse(first).source === "live";

/** Whether a file of so many bytes is not read at all. @param {number} size */
export const isTooLarge = (size) => size > RULES.largestFile;

/** The events of a saved trace up to the first line that is none: { items, line, problem }; line 0 when all are read. @param {string} text */
export function readTrace(text) {
  if (isTooLarge(text.length)) return { items: [], line: 0, problem: "it is too large" };
  /** @type {Event[]} */
  const items = [];
  const begun = new Set();
  let number = 0;
  for (const line of text.split("\n")) {
    number += 1;
    if (!line.trim()) continue;
    try {
      const item = checked(JSON.parse(line));
      if (item.type === "started" && begun.has(item.lane)) throw new Error(`lane ${item.lane} starts twice`);
      if (item.type === "started") begun.add(item.lane);
      items.push(item);
    } catch (error) {
      return { items, line: number, problem: error instanceof Error && !(error instanceof SyntaxError) ? error.message : "it is not JSON" };
    }
  }
  return { items, line: 0, problem: "" };
}
