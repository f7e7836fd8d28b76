// What the target says next, and below it a row of drafted tokens for each method.

import { two } from "../core/metrics.js";
import { fold } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { isTree } from "../core/tree.js";
import { el, textEl } from "../parts/dom.js";
import { chip, place, spots } from "../parts/draft.js";

/**
 * @import { Line, Step } from "../core/state"
 * @import { Words } from "../parts/page"
 * @typedef {{ method: string, title: string, lossy: boolean, step?: Step, events?: Line[], why: string }} Row
 *   what a method drafted, as a step or as its run's events, or why it did not
 */

export class Drafts {
  #words;
  /** @type {Map<string, { key: string, root: HTMLElement }>} */
  #rows = new Map(); // by method

  /** @param {Words} words */
  constructor(words) {
    this.#words = words;
    this.chips = el("div", { class: "sd-draft-tree" });
    this.target = el("li", { class: "sd-draft sd-draft-target" }, textEl("h3", words.target), this.chips);
    this.root = el("ol", { class: "sd-drafts", "aria-label": words.rows });
  }

  /** next: the target's own tokens. @param {Row[]} rows @param {string[]} next @param {string} source */
  render(rows, next, source) {
    this.target.hidden = !next.length;
    this.chips.replaceChildren(...next.map((text) => chip(text, "plain", this.#words.target_hint)));
    this.#rows = new Map(rows.map((row) => {
      const key = JSON.stringify([row, source]);
      const known = this.#rows.get(row.method);
      return [row.method, known?.key === key ? known : { key, root: this.#row(row, source) }];
    }));
    const roots = [this.target, ...[...this.#rows.values()].map(({ root }) => root)];
    if (roots.length !== this.root.childElementCount || roots.some((root, i) => this.root.children[i] !== root)) this.root.replaceChildren(...roots);
  }

  /** @param {Row} row @param {string} source */
  #row({ title, lossy, step: recorded, events, why }, source) {
    const words = this.#words;
    const step = recorded ?? fold(events ?? []).lanes.speculative?.steps.at(-1);
    const heading = textEl("h3", title);
    if (lossy) heading.append(" ", textEl("span", words.lossy, { class: "sd-lossy" }));
    if (why || !step || step.open) return el("li", { class: "sd-draft sd-draft-missing" }, heading, textEl("p", why, { class: "sd-draft-why" }));
    const milliseconds = two(step.draftSeconds * 1000);
    const counts = { kept: step.path.length, drafted: step.nodes.length, milliseconds };
    const facts = textEl("p", step.nodes.length ? fill(isTree(step.nodes) ? words.facts_tree : words.facts, counts) : `${milliseconds} ms`, {
      class: "sd-draft-facts", title: fill(words.facts_hint, { origin: words.source[source] }),
    });
    const reason = step.reason ? fill(words.nothing, { reason: step.reason }) : words.nothing_alone;
    const body = step.nodes.length ? this.#tokens(step) : textEl("p", reason, { class: "sd-draft-why" });
    return el("li", { class: "sd-draft" }, el("div", {}, heading, facts), body);
  }

  // A chain is one line, the target's own token at its end; in a tree a line begins below its parent for each further sibling.
  /** @param {Step} step */
  #tokens(step) {
    const words = this.#words.view;
    const box = el("div", { class: "sd-draft-tree", tabindex: "0", role: "group", "aria-label": fill(this.#words.tree_caption, { drafted: step.nodes.length, accepted: step.path.length }) });
    for (const spot of spots(step)) {
      const { token } = spot;
      const status = token.status ?? "drafted";
      const probs = Object.entries({ target_prob: token.target_prob, draft_prob: token.draft_prob ?? token.confidence })
        .flatMap(([name, prob]) => (typeof prob === "number" ? [`${words[name]} ${two(100 * prob)} %`] : []));
      box.append(place(chip(token.text ?? "", status, [words.status[status], ...probs].join(" · ")), spot));
    }
    return box;
  }
}
