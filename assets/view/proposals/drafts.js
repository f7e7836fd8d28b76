// What the target says next, and below it what was drafted: methods that guess the same stand together.

import { reasonText } from "../core/decision.js";
import { two } from "../core/metrics.js";
import { fold } from "../core/reducer.js";
import { fill, quote } from "../core/sentence.js";
import { isTree, layout } from "../core/tree.js";
import { lossyMark } from "../parts/blocks.js";
import { el } from "../parts/dom.js";

/**
 * @import { JudgedStep, Line, Node as Token, Step } from "../core/state"
 * @import { Words } from "../parts/page"
 * @typedef {{ method: string, title: string, lossy: boolean, step?: Step, events?: Line[], why: string }} Row
 *   what a method drafted, as a step or as its run's events, or why it did not
 * @typedef {{ token: Token, count: number, drafts: number[][] }} Group
 *   token: the first that all of them bet on; count: how many they are; drafts: the rows of each draft, those that are alike together
 */
export class Drafts {
  #words;
  #shown = "";

  constructor(/** @type {Words} */ words) {
    this.#words = words;
    this.root = el("ol", { class: "sd-drafts", "aria-label": words.rows });
  }

  /** next: the target's own tokens; unrecorded: titles of methods that no run shows here @param {Row[]} rows @param {string[]} next @param {string} source @param {string[]} unrecorded */
  render(rows, next, source, unrecorded) {
    const shown = JSON.stringify([rows, next, source, unrecorded]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const steps = rows.map(stepOf);
    const groups = agreement(steps);
    const drafted = groups.reduce((sum, { count }) => sum + count, 0);
    const silent = rows.flatMap((row, i) => (steps[i]?.nodes.length ? [] : [this.#silent(row, steps[i])]));
    const missing = unrecorded.length ? [el("li", { class: "sd-draft sd-draft-missing sd-draft-unrecorded" }, el("p", { class: "sd-draft-why" }, fill(this.#words.unrecorded, { methods: unrecorded.join(" · ") })))] : [];
    const rest = [...silent, ...missing];
    this.root.replaceChildren(
      ...(next.length ? [this.#target(next)] : []),
      ...groups.map((group) => this.#group(group, rows, steps, drafted, next[0], source)),
      ...(rest.length ? [part(silent.length ? fill(this.#words.silent, { count: silent.length }) : "", rest)] : []));
  }

  #target(/** @type {string[]} */ next) {
    const { target, target_hint } = this.#words;
    return el("li", { class: "sd-draft sd-draft-target" }, el("h3", {}, target),
      el("div", { class: "sd-draft-tree" }, ...next.map((text) => chip(text, "plain", target_hint))));
  }

  /** @param {Group} group @param {Row[]} rows @param {(JudgedStep | null)[]} steps @param {number} drafted @param {string | undefined} own @param {string} source */
  #group({ token, count, drafts }, rows, steps, drafted, own, source) {
    const words = this.#words;
    const verdict = own === undefined ? words.agree : own === token.text ? words.agree_right : words.agree_wrong;
    const title = fill(verdict, { count, all: drafted, word: quote(token), own: quote({ text: own }) });
    const cards = drafts.map((alike) => this.#draft(alike.map((row) => rows[row]), alike.map((row) => /** @type {JudgedStep} */ (steps[row])), source));
    return part(title, cards, own === token.text);
  }

  /** Methods with one and the same draft. @param {Row[]} rows @param {JudgedStep[]} steps @param {string} source */
  #draft(rows, steps, source) {
    const words = this.#words;
    const [step] = steps;
    const times = steps.map(({ draftSeconds }, i) => (steps.length > 1 ? `${rows[i].title} ` : "") + two(draftSeconds * 1000));
    const milliseconds = times.join(", ");
    const counts = { kept: step.path.length, drafted: step.nodes.length, milliseconds };
    const facts = el("p", {
      class: "sd-draft-facts", title: fill(words.facts_hint, { origin: words.view.source[source] }),
    }, fill(isTree(step.nodes) ? words.facts_tree : words.facts, counts));
    return el("li", { class: "sd-draft" }, el("div", {}, ...rows.map((row) => this.#heading(row)), facts), this.#tokens(step));
  }

  /** @param {Row} row @param {JudgedStep | null} step */
  #silent(row, step) {
    const words = this.#words;
    const reason = step ? reasonText(step, words.view.charts.reasons) : "";
    const why = row.why || (reason ? fill(words.nothing, { reason }) : words.nothing_alone);
    return el("li", { class: "sd-draft sd-draft-missing" }, this.#heading(row), el("p", { class: "sd-draft-why" }, why));
  }

  /** @param {Row} row */
  #heading({ title, lossy }) {
    return el("h4", {}, title, ...lossyMark(lossy, this.#words.view));
  }

  /** A chain is one line, the target's own token at its end; in a tree a line begins below its parent for each further sibling. @param {Step} step */
  #tokens(step) {
    const words = this.#words.view;
    const box = el("div", { class: "sd-draft-tree", tabindex: "0", role: "group", "aria-label": fill(this.#words.tree_caption, { drafted: step.nodes.length, accepted: step.path.length }) });
    for (const { index, column, row, from } of spots(step)) {
      const token = /** @type {Token} */ (index < 0 ? step.next : step.nodes[index]);
      const status = token.status ?? "drafted";
      const probs = Object.entries({ target_prob: token.target_prob, draft_prob: token.draft_prob ?? token.confidence })
        .flatMap(([name, prob]) => (typeof prob === "number" ? [`${words[name]} ${two(100 * prob)} %`] : []));
      const shown = chip(token.text ?? "", status, [words.status[status], ...probs].join(" · "));
      shown.classList.toggle("sd-chip-below", row !== (from?.row ?? 0));
      shown.style.gridArea = `${row + 1} / ${column + 1}`;
      box.append(shown);
    }
    return box;
  }
}

/** Where each token of a step stands, -1 for the target's own, behind what was kept. @param {Step} step */
const spots = (step) => (isTree(step.nodes) ? layout(step).places : inLine(step));

/** @param {Step} step */
const inLine = ({ nodes, next }) => [...nodes.keys(), ...(next ? [-1] : [])].map((index, column) => ({ index, column, row: 0, from: null }));

/** @param {string} text @param {string} status @param {string} title */
const chip = (text, status, title) =>
  el("span", { class: `sd-token sd-${status}`, title }, el("span", { class: "sd-mark" }, quote({ text }) || "·"));

/** @param {Row} row @returns {JudgedStep | null} */
function stepOf({ step, events, why }) {
  const last = why ? null : (step ?? fold(events ?? []).lanes.speculative?.steps.at(-1));
  return last && !last.open ? last : null;
}

/** @param {string} title @param {Node[]} cards @param {boolean} [right] */
const part = (title, cards, right = false) =>
  el("li", { class: right ? "sd-draft-group sd-draft-right" : "sd-draft-group" }, ...(title ? [el("h3", {}, title)] : []), el("ol", {}, ...cards));

// ---- Which methods guess the same: by the first token that each would bet on, and within that by the whole draft. Pure

/**
 * Rows by what they bet on, the largest group first. steps: of each row, null where it drafted nothing
 * @param {(JudgedStep | null)[]} steps @returns {Group[]}
 */
export function agreement(steps) {
  /** @type {Map<number | undefined, { token: Token, count: number, drafts: Map<string, number[]> }>} */
  const groups = new Map();
  steps.forEach((step, row) => {
    const token = step && bet(step);
    if (!token) return;
    const group = groups.get(token.token_id) ?? { token, count: 0, drafts: new Map() };
    groups.set(token.token_id, group);
    group.count += 1;
    const key = JSON.stringify(step.nodes.map((node) => [node.token_id, node.parent ?? -1]));
    group.drafts.set(key, [...(group.drafts.get(key) ?? []), row]);
  });
  return [...groups.values()].sort((one, other) => other.count - one.count).map(({ token, count, drafts }) => ({
    token, count, drafts: [...drafts.values()].sort((one, other) => other.length - one.length),
  }));
}

/** The token that a draft holds most likely to come first; null for an empty one. @param {JudgedStep} step */
export function bet({ nodes }) {
  const chance = (/** @type {Token} */ node) => node.draft_prob ?? node.confidence ?? 0;
  const first = nodes.filter((node) => (node.parent ?? -1) < 0);
  return first.reduce((/** @type {Token | null} */ best, node) => (best && chance(best) >= chance(node) ? best : node), null);
}
