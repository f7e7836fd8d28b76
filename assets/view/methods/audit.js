// The last audit as a table, one row a method; what it lacks is left out.

import { el, follow } from "../parts/dom.js";
import { lossyMark, stackable, table } from "../parts/blocks.js";
import { fill } from "../core/sentence.js";
import { two } from "../core/metrics.js";

/**
 * @import { Given, Words } from "../parts/page"
 * @typedef {{ held: boolean | null, text: string }} Verdict null where nothing is judged
 * @typedef {{
 *   name: string, title?: string, lossy?: boolean, available?: boolean, why_not?: string, problem?: string,
 *   greedy?: { equal: number, outputs: number, required?: boolean, same_share?: number | null, median_margin?: number | null },
 *   sampling?: { held?: boolean | null, p_uniform?: number | null, p_independent?: number | null, p_draft?: number | null }[],
 * }} Audited
 * @typedef {{ methods: Audited[], model?: string, precision?: string, machine?: string, date?: string, limit?: number | null, recorded?: boolean }} Audit
 */

/** Draw the audit in `element`; null when there is none. @param {HTMLElement} element @param {Given} given */
export function mountAudit(element, given) {
  const root = el("div", { class: "sd-audit" });
  element.replaceChildren(root);
  follow(given, (audit) => root.replaceChildren(...content(audit, given.words.audit, given.say)), "null");
}

/** @param {Audit | null} audit @param {Words} words @param {(text: string) => string} [say] */
function content(audit, words, say) {
  if (!audit?.methods?.length) return [el("p", {}, words.none)];
  const about = [audit.model, audit.precision, audit.machine, (audit.date ?? "").slice(0, 10)].filter(Boolean).join(" · ");
  const origin = audit.recorded ? [el("p", {}, words.recorded)] : [];
  const rows = audit.methods.map((method) => [
    el("th", { scope: "row" }, method.title ?? method.name, ...lossyMark(method.lossy, words)), ...verdicts(method, words, say).map(cell),
  ]);
  const meaning = has(audit.limit) ? fill(words.meaning, { limit: two(audit.limit) }) : "";
  const box = el("div", { class: "sd-audit-box", tabindex: "0", role: "region", "aria-label": words.label }, stackable(table(words.columns, rows)));
  const fold = el("details", { class: "sd-audit-fold", open: !matchMedia("(max-width: 700px)").matches }, el("summary", {}, words.label), box);
  return [...origin, el("p", {}, about), fold, el("p", {}, meaning)];
}

/**
 * What to say of a method under each heading: greedy and sampling, a list of { held, text } each; held null judges nothing.
 * @param {Audited} method @param {Words} words @param {(text: string) => string} say @returns {Verdict[][]}
 */
export function verdicts(method, words, say = (text) => text) {
  if (method.available === false) return [[{ held: null, text: say(method.why_not || words.missing) }], []];
  if (method.problem) return [[{ held: false, text: method.problem }], []];
  const { greedy } = method;
  const parts = greedy ? [fill(words.greedy, greedy)] : [];
  if (greedy && greedy.equal < greedy.outputs) {
    if (has(greedy.same_share)) parts.push(fill(words.same, { share: two(100 * greedy.same_share) }));
    if (has(greedy.median_margin)) parts.push(fill(words.margin, { margin: two(greedy.median_margin) }));
  }
  const one = greedy && { held: greedy.equal === greedy.outputs || (greedy.required ? false : null), text: parts.join("; ") };
  const many = (method.sampling ?? []).map((test) => ({
    held: test.held ?? null,
    text: fill(words.sampling, {
      ...test,
      ps: [test.p_uniform, test.p_independent, test.p_draft].filter(has).map(two).join(", "),
    }),
  }));
  return [one ? [one] : [], many];
}

/** @param {number | null | undefined} value @returns {value is number} */
const has = (value) => value !== null && value !== undefined;

function cell(/** @type {Verdict[]} */ list) {
  return el("td", {}, ...list.map(({ held, text }) => {
    const mark = held === null ? "" : held ? "✓ " : "✗ ";
    return el("div", { class: held === false ? "sd-audit-not" : "" }, mark + text);
  }));
}
