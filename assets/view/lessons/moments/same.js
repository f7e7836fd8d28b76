// One text from every method: all recorded runs at temperature 0, compared token by token with plain decoding.

import { judged } from "../../core/metrics.js";
import { laneText } from "../../core/reducer.js";
import { fill } from "../../core/sentence.js";
import { el } from "../../parts/dom.js";
import { tokenIds } from "../curriculum/evidence.js";
import { button } from "../question.js";
import { bar, bars } from "./pieces.js";

/**
 * @import { Lanes, LessonRun } from "../curriculum/lesson"
 * @import { Moment } from "./moment"
 */

/** The recorded runs to compare: one of each method, without sampling, by their names. @param {Record<string, LessonRun>} known */
export function comparable(known) {
  /** @type {Map<string, string>} */
  const names = new Map();
  for (const [name, { settings }] of Object.entries(known)) {
    if (settings.method !== "nothing" && !settings.sampling?.temperature && !names.has(settings.method)) names.set(settings.method, name);
  }
  return [...names.values()];
}

/** What a run shows: its method, text, tokens and steps, and how many of its first tokens are plain decoding's. @param {Lanes} lanes */
export function likeness({ plain, fast }) {
  const [one, other] = [tokenIds(plain), tokenIds(fast)];
  const parted = other.findIndex((id, i) => id !== one[i]);
  return { method: fast.header.method, text: laneText(plain), tokens: other.length, steps: judged(fast), same: parted < 0 ? other.length : parted };
}

/** @type {Moment} */
export const same = {
  runs: [],
  show(_, { words, methods, known, lanes, from, announce }) {
    from("recorded");
    const names = comparable(known);
    const groups = el("div");
    const told = el("p", { class: "sd-moment-told" }, words.none);
    /** @type {Map<string, HTMLElement>} by text */
    const lists = new Map();
    const start = button(fill(words.compare, { count: names.length }), async () => {
      start.disabled = true;
      let equal = 0;
      for (const [i, name] of names.entries()) {
        const { method, text, tokens, steps, same: alike } = likeness(await lanes(name));
        const list = lists.get(text) ?? bars();
        if (!lists.has(text)) groups.append(el("blockquote", { class: "sd-moment-quote" }, `${text.slice(0, 90).replaceAll("\n", " ↵ ")} …`, list));
        lists.set(text, list);
        const row = bar(alike === tokens ? "sd-moment-kept" : "sd-moment-cost");
        row.show(fill(words.row, { method: methods[method] ?? method, tokens, steps, same: alike }), steps / tokens);
        list.append(row.root);
        equal += alike === tokens ? 1 : 0;
        told.textContent = fill(words.told, { count: i + 1, texts: lists.size, equal });
      }
      start.hidden = true;
      announce(told.textContent ?? "");
    }, "sd-lesson-main");
    return [start, told, groups];
  },
};
