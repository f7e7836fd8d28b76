// Where lines come from beside the server's stream: a recorded run, the one that the address asks for, or the visitor's file.

import { isTooLarge, readTrace } from "../core/lines.js";
import { readState } from "../core/permalink.js";
import { fetchFile } from "../core/recorded.js";
import { fill } from "../core/sentence.js";

/**
 * @import { Line, Notice, Open } from "../core/state"
 * @import { Words } from "../parts/page"
 */

/**
 * The lines of the recorded run of an opening line, or of the one that the address asks for.
 * @param {Open} opening @param {Words} words @returns {Promise<Line[]>}
 */
export async function fetchRun(opening, words) {
  const asked = opening.key === "opening" ? readState(location.search).recorded : "";
  const other = asked && asked !== opening.run ? await fetchFile(asked) : null;
  if (other) return [{ ...opening, run: asked, title: "" }, ...other];
  const events = await fetchFile(opening.run ?? "");
  return [opening, ...(events ?? [{ type: "notice", message: fill(words.nothing, { name: opening.run }) }])];
}

/**
 * The lines of the trace in a file, or what is wrong with it as one notice. words: `trace` of the view's
 * @param {File} file @param {Words} words @returns {Promise<Line[]>}
 */
export async function readFile(file, words) {
  const { name } = file;
  if (isTooLarge(file.size)) return [{ type: "notice", message: fill(words.large, { name }), unharmed: words.unharmed, advice: words.advice }];
  const { items, line, problem } = readTrace(await file.text());
  if (!items.length) {
    const message = fill(problem ? words.foreign : words.nothing, { name, line, problem });
    return [{ type: "notice", message, unharmed: words.unharmed, advice: words.advice }];
  }
  /** @type {Open} */
  const opening = { type: "open", source: "recorded", key: name, title: name };
  /** @type {Notice} */
  const notice = { type: "notice", message: fill(words.cut, { name, line, problem, count: items.length }) };
  return [opening, ...(problem ? [notice] : []), ...items];
}
