// The inspector: for one token, or for two side by side, why it was kept or refused, and what the models thought.

import { decide } from "../core/decision.js";
import { button, el } from "./dom.js";
import { fill } from "../core/sentence.js";
import { decimals, two } from "../core/metrics.js";
import { keyOf } from "../core/reducer.js";

/** @import { Subject, Words } from "./page" */
/** @import { Origin } from "../core/state" */

/** @typedef {ReturnType<typeof decide>} Decided */

const COLUMNS = /** @type {const} */ (["target", "draft", "residual"]);

/** Shows subjects, see `View`; `act.unpin()` and `act.compare()` are called by its buttons. */
export class InspectorView {
  #words;
  #shown = "";

  /** @param {Words} words @param {{ compare(): void, unpin(): void }} act */
  constructor(words, act) {
    this.#words = words;
    const { inspector } = words;
    this.origin = el("span", { class: "sd-origin" });
    this.compare = button(inspector.compare, act.compare, { title: inspector.compare_hint });
    this.unpin = button(inspector.unpin, act.unpin);
    this.why = el("span", { class: "sd-why-shown" });
    this.hint = el("p", { class: "sd-inspector-hint" });
    this.cards = el("div", { class: "sd-cards" });
    this.root = el("section", { class: "sd-inspector", "aria-label": inspector.label },
      el("header", {}, this.why, this.origin, this.compare, this.unpin), el("div", { class: "sd-inspector-box", tabindex: "0", role: "group", "aria-label": inspector.label }, this.cards, this.hint));
  }

  /**
   * subjects: at most two; why: a name in the words, of how they were chosen; armed: a second one is waited for
   * @param {Subject[]} subjects @param {{ why: string, armed: boolean, source: Origin }} how
   */
  render(subjects, { why, armed, source }) {
    const drawn = subjects.map(({ lane, step, node, count, header }) => [keyOf(lane ?? "", step), step.places?.length, node, count, header.method].join(" "));
    const key = [why, armed, source, ...drawn].join("|");
    if (key === this.#shown) return;
    this.#shown = key;
    const words = this.#words.inspector;
    const pinned = why === "pinned";
    this.why.textContent = subjects.length ? words[why] : "";
    this.origin.textContent = subjects.length ? this.#words.source[source] : "";
    this.origin.className = `sd-origin sd-origin-${source}`;
    this.compare.hidden = this.unpin.hidden = !pinned;
    this.compare.setAttribute("aria-pressed", String(armed));
    this.hint.textContent = armed && subjects.length < 2 ? words.second : pinned ? "" : words.hint;
    this.cards.classList.toggle("sd-two", subjects.length > 1);
    this.cards.replaceChildren(...subjects.map((subject) => this.#card(decide(this.#words, subject))));
  }

  /** One line about a subject. @param {Subject} subject */
  summary(subject) {
    const { token, status, place, why } = decide(this.#words, subject);
    return fill(this.#words.inspector.summary, { token, status: this.#words.status[status] ?? status, place, why });
  }

  #card(/** @type {Decided} */ decision) {
    const words = this.#words.inspector;
    const title = el("h3", {}, span("sd-inspected", decision.token), span(`sd-verdict sd-key-${decision.status}`, this.#words.status[decision.status] ?? decision.status), span("sd-where", decision.place));
    const card = el("article", { class: "sd-decision" }, title, el("p", { class: "sd-why" }, decision.why));
    if (decision.formula) card.append(el("p", { class: "sd-formula" }, decision.formula));
    if (decision.branch.length) card.append(el("p", { class: "sd-branch" }, `${words.branch}: `, ...decision.branch.flatMap((token, i) => [i ? " › " : "", span("sd-word", token)])));
    if (decision.rows.length) card.append(this.#table(decision));
    if (decision.notes.length) card.append(el("p", { class: "sd-notes" }, decision.notes.join(" ")));
    return card;
  }

  // Paired bars: what is drafted and committed has its state in words and a shape, the inspected token a mark of its own.
  /** @param {Decided} decision */
  #table({ rows, residual }) {
    const words = this.#words.inspector;
    const columns = COLUMNS.filter((name) => (name === "residual" ? residual : rows.some((row) => row[name] !== null)));
    const head = el("tr", {}, ...["token", ...columns].map((name) => el("th", { scope: "col" }, words.columns[name])));
    const body = rows.map((row) => {
      const state = row.status ? [" ", span(`sd-verdict sd-key-${row.status}`, this.#words.status[row.status])] : [];
      const name = el("th", { scope: "row" }, span("sd-word", row.text || this.#words.part_of_character), ...state);
      return el("tr", { class: row.self ? "sd-self" : "", "aria-current": row.self ? "true" : null }, name, ...columns.map((column) => bar(row[column], column)));
    });
    return el("table", { "aria-label": words.thoughts }, el("thead", {}, head), el("tbody", {}, ...body));
  }
}

const LEAST = 1e-5; // probabilities below it are not told apart
/** @param {number | null} value @param {string} name */
function bar(value, name) {
  const cell = el("td", {}, span("", value && value < LEAST ? `< ${decimals(LEAST, 5)}` : two(value)));
  if (value !== null) cell.append(el("i", { class: `sd-bar sd-bar-${name}`, style: `--share:${value.toFixed(4)}` }));
  return cell;
}

/** A string child is a text node: what a model said never becomes markup. @param {string} name @param {string} text */
const span = (name, text) => el("span", { class: name }, text);
