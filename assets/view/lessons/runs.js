// The recorded runs of the lessons, each fetched once.

import { fetchFile } from "../core/recorded.js";
import { fold } from "../core/reducer.js";
import { fill } from "../core/sentence.js";

/**
 * @import { Line } from "../core/state"
 * @import { Words } from "../parts/page"
 * @import { Lanes } from "./curriculum/lesson"
 */

export class Runs {
  #words;
  #known;
  /** @type {Map<string, Promise<Line[]>>} */
  #fetched = new Map();

  /** known: by the names of the runs that there are. @param {Words} words @param {object} known */
  constructor(words, known) {
    this.#words = words;
    this.#known = known;
  }

  /** The events of a run; rejected with an Error whose message is a sentence. @param {string} name */
  items(name) {
    const items = this.#fetched.get(name) ?? this.#fetch(name);
    this.#fetched.set(name, items);
    items.catch(() => this.#fetched.delete(name)); // so that the next attempt asks again
    return items;
  }

  /** Its two lanes. @param {string} name @returns {Promise<Lanes>} */
  async lanes(name) {
    const { plain, speculative } = fold(await this.items(name)).lanes;
    return /** @type {Lanes} */ ({ plain, fast: speculative });
  }

  /** @param {string} name */
  async #fetch(name) {
    const items = name in this.#known ? await fetchFile(name) : null;
    if (!items) throw new Error(fill(this.#words.missing, { name }));
    return items;
  }
}
