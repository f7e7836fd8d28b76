// JSON lines: the wire format of a live run and the saved trace are the same text.

export const SCHEMA = 1;
const EVENTS = new Set(["started", "drafted", "verified", "finished", "failed"]);
const PAGE = new Set(["open", "earlier", "notice", "lane", "raced"]);

/** One line as an object. Throws an Error that says why it is not a line of this schema. */
export function parseLine(line) {
  const data = JSON.parse(line);
  if (data === null || typeof data !== "object") throw new Error("not an object");
  if (data.type === "started" && (data.schema ?? SCHEMA) !== SCHEMA) {
    throw new Error(`schema ${data.schema} is not schema ${SCHEMA}`);
  }
  if (!EVENTS.has(data.type) && !PAGE.has(data.type)) throw new Error(`unknown type ${data.type}`);
  return data;
}

/** Whether a parsed line is an event of the run, not a remark of the page. */
export const isEvent = (item) => EVENTS.has(item.type);

/**
 * The whole lines of a growing text, each once.
 * A text that does not begin as before is another stream: `restarted` is then true.
 */
export class LineReader {
  #head = "";
  #offset = 0;

  read(text) {
    const end = text.indexOf("\n");
    const head = end < 0 ? "" : text.slice(0, end);
    const restarted = head !== this.#head || text.length < this.#offset;
    if (restarted) {
      this.#head = head;
      this.#offset = 0;
    }
    const items = [];
    for (;;) {
      const stop = text.indexOf("\n", this.#offset);
      if (stop < 0) return { restarted, items };
      const line = text.slice(this.#offset, stop);
      this.#offset = stop + 1;
      if (line.trim()) items.push(parseLine(line));
    }
  }
}

/** The events of a saved trace up to the first broken line, and what is wrong with that line. */
export function readTrace(text) {
  const items = [];
  let number = 0;
  for (const line of text.split("\n")) {
    number += 1;
    if (!line.trim()) continue;
    try {
      const item = parseLine(line);
      if (isEvent(item)) items.push(item);
    } catch (error) {
      return { items, line: number, problem: String(error.message ?? error) };
    }
  }
  return { items, line: 0, problem: "" };
}
