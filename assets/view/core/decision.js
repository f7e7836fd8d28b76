// Why a token of a step was kept or refused: the decision in one sentence, its formula with the numbers filled in, and
// what both models thought of the place. Pure: a step in, sentences and rows out.

import { decimals, two } from "./metrics.js";
import { fill, quote } from "./sentence.js";
import { depths, isTree } from "./tree.js";

/** @import { Words } from "../parts/page" */
/** @import { Header, Node, Step } from "./state" */
/**
 * node: index among the step's nodes, -1 for the target's own token; count: tokens of a folded piece instead, or 0
 * rows: { token_id, text, target, draft, residual, status, self }; the probabilities are null where the trace has none
 * @param {Record<string, any>} words @param {{ header: Header, step: Step, node: number, count?: number }} subject
 */
export function decide(words, { header, step, node, count = 0 }) {
  if (count) return { token: `+${count}`, status: "unreached", place: "", why: fill(words.explain.folded, { count }), formula: "", branch: [], rows: [], residual: false, notes: [] };
  const at = new Decision(words, header, step, node);
  return {
    token: quote(at.value) || words.part_of_character,
    status: at.status,
    place: at.place(),
    why: at.why(),
    formula: at.formula(),
    branch: at.branch(),
    rows: at.rows(),
    residual: Boolean(at.thoughts?.residual?.length),
    notes: at.notes(),
  };
}

class Decision {
  /** @param {Record<string, any>} words @param {Header} header @param {Step} step @param {number} node */
  constructor(words, header, step, node) {
    this.words = words;
    this.header = header;
    this.step = step;
    this.node = node;
    this.value = /** @type {Node} */ (node < 0 ? step.next : step.nodes[node]);
    this.status = this.value.status ?? "drafted";
    this.parent = node < 0 ? (step.path.at(-1) ?? -1) : (this.value.parent ?? -1);
    this.reached = this.parent === (step.path.at(-1) ?? -1); // whether the walk of the target came as far as its place
    this.thoughts = step.places?.find((place) => place.after === this.parent);
    this.siblings = step.nodes.map((value, index) => ({ ...value, index })).filter((value) => (value.parent ?? -1) === this.parent);
    // Refused at this place before this token was tested, or before the target's own was drawn.
    this.refused = this.siblings.filter((value) => value.status === "rejected" && (node < 0 || value.index < node));
    this.kept = this.siblings.find((value) => step.path.includes(value.index)) ?? (this.reached ? step.next : null);
    this.lossy = Boolean(header.lossy);
    this.drawn = this.value.draw !== undefined && this.value.accept_prob !== undefined;
    this.sampled = step.nodes.some((value) => value.draw !== undefined);
    this.coupled = [...step.nodes, step.next].some((value) => value?.ticket !== undefined);
    this.block = step.nodes.some((value) => value.block_prob !== undefined) ? blockOf(step.nodes) : null;
  }

  place() {
    const { words, step, node } = this;
    const sentence = node < 0 ? words.place_next : isTree(step.nodes) ? words.place_tree : words.place_draft;
    return fill(sentence, { step: step.index + 1, node: node + 1, depth: depths(step.nodes)[node] });
  }

  why() {
    const { words, value, status } = this;
    if (this.lossy && words.explain_lossy[status]) return words.explain_lossy[status];
    const tested = this.coupled ? "coupled" : this.drawn ? "drawn" : "greedy";
    // Servers of other programs do not report the target's probabilities.
    if (tested === "greedy" && (value.target_prob ?? null) === null && JUDGED.has(status)) return words.explain[status];
    /** @type {Partial<Record<string, () => string>>} */
    const names = {
      accepted: () => (this.block ? "accepted_block" : `accepted_${tested}`),
      rejected: () => (this.block ? "rejected_block" : this.drawn || this.kept ? `rejected_${tested}` : "rejected"),
      unreached: () => (this.block ? "unreached_block" : this.#unreached()),
      plain: () => (this.coupled ? "plain_coupled" : "plain"),
      correction: () => (this.coupled ? "correction_coupled" : !this.sampled ? "correction_greedy" : this.#residualProb === null ? "correction_drawn" : "correction_listed"),
      bonus: () => `bonus_${this.coupled ? "coupled" : this.sampled ? "drawn" : "greedy"}`,
    };
    const name = names[status]?.() ?? status;
    const [draw, accept] = apart(value.draw, value.accept_prob);
    return fill(words.explain[name] ?? words.explain[status] ?? "", {
      token: quote(value), draw, accept, target: two(value.target_prob), draft: two(value.draft_prob ?? value.confidence),
      best: quote(this.kept), best_prob: two(this.kept?.target_prob), refused: this.refused.map(quote).join(", "),
      before: quote(this.#before()), residual: two(this.#residualProb), count: this.step.path.length, drafted: this.step.nodes.length,
    });
  }

  get #residualProb() {
    return this.#row(this.value.token_id).residual;
  }

  // Of an untested token: whether a token before it was refused, or another was kept in the place of one.
  #unreached() {
    const { status } = this.#before();
    return status === "rejected" ? "unreached_refused" : status === "unreached" ? "unreached" : "unreached_kept";
  }

  #before() {
    const { nodes, path } = this.step;
    let node = this.node;
    const parentOf = (/** @type {number} */ index) => nodes[index].parent ?? -1;
    while (node >= 0 && parentOf(node) >= 0 && !path.includes(parentOf(node))) node = parentOf(node);
    if (node < 0 || nodes[node].status === "rejected") return nodes[node] ?? this.value;
    return nodes.find((value, i) => path.includes(i) && (value.parent ?? -1) === parentOf(node)) ?? nodes[node];
  }

  formula() {
    const words = this.words.formula;
    const { value, status } = this;
    if (this.lossy) return "";
    if (this.block && this.node >= 0) return [...this.#blockLines(this.block), this.drawn ? this.#test() : ""].filter(Boolean).join("\n");
    if (this.drawn) return [this.#accept(), this.#test()].filter(Boolean).join("\n");
    if (this.coupled) return this.#scores();
    const tested = status === "accepted" || status === "rejected";
    if (tested && this.kept && !this.sampled) {
      const values = { best: quote(this.kept), best_prob: two(this.kept.target_prob), token: quote(value) };
      return fill(status === "accepted" ? words.greedy_kept : words.greedy_refused, values);
    }
    return status === "correction" && this.sampled ? this.#residual() : "";
  }

  /** Log probability + ticket of a token under both models, and of the target's winner if it is another. */
  #scores() {
    const words = this.words.formula;
    const { value, kept } = this;
    const scored = (/** @type {number | undefined} */ prob, /** @type {number | undefined} */ ticket) =>
      prob && ticket !== undefined ? { ticket: two(ticket), score: two(Math.log(prob) + ticket) } : null;
    const own = scored(value.target_prob, value.ticket);
    const drafted = scored(value.draft_prob, value.ticket);
    const best = kept && kept.token_id !== value.token_id ? scored(kept.target_prob, kept.ticket) : null;
    return [
      own && fill(words.coupled_target, { target: two(value.target_prob), ...own }),
      drafted && fill(words.coupled_draft, { draft: two(value.draft_prob), ...drafted }),
      best && fill(words.coupled_best, { token: quote(kept), target: two(kept?.target_prob), ...best }),
    ].filter(Boolean).join("\n");
  }

  #accept() {
    const words = this.words.formula;
    const { value } = this;
    if (!value.origin) return ""; // unknown in some recordings
    // Probability that the target still had to give this token when it was tested: exact below 1, else a bound.
    const left = (value.accept_prob ?? NaN) * (value.draft_prob ?? 1);
    const later = this.refused.length > 0;
    const whole = later && value.origin === "drawn" && (value.accept_prob ?? 0) >= 1;
    const name = `${later ? "left" : "target"}_${value.origin}${whole ? "_whole" : ""}`;
    return fill(words[name], {
      target: two(value.target_prob), draft: two(value.draft_prob), left: two(left), count: this.refused.length,
      accept: apart(value.accept_prob, value.draw)[0],
    });
  }

  /** A token of a block: how likely it is kept before and after the rest of the draft is known, and its share of that. @param {Block} block */
  #blockLines({ prefix, keep, ends }) {
    const words = this.words.formula;
    const { node, value } = this;
    const last = node === keep.length - 1;
    const values = {
      before: two(prefix[node]), target: two(value.target_prob), draft: two(value.draft_prob ?? 1), prefix: two(prefix[node + 1]),
      ends: two(ends[node]), next: two(keep[node + 1]), keep: two(keep[node]), keep_before: two(keep[node - 1]),
      accept: apart(value.accept_prob, value.draw)[0],
    };
    return [
      fill(node ? words.block_prefix : words.block_prefix_first, values),
      fill(last ? words.block_keep_last : words.block_keep, values),
      node && this.drawn ? fill(words.block_accept, values) : "", // before the first token nothing had to be kept
    ];
  }

  #test() {
    const [draw, accept] = apart(this.value.draw, this.value.accept_prob);
    return fill(this.words.formula[this.status === "rejected" ? "draw_refused" : "draw_kept"], { draw, accept });
  }

  // With one refused sibling everything that the residual is made of is known.
  #residual() {
    const words = this.words.formula;
    const own = this.#row(this.value.token_id);
    const [only] = this.refused;
    if (this.refused.length !== 1 || !only.origin || own.residual === null) return "";
    if (only.origin === "chosen") return fill(words.residual_chosen, { target: two(own.target), refused: two(only.target_prob), residual: two(own.residual) });
    const draft = own.draft ?? 0;
    const prefix = this.block ? this.block.prefix[this.step.path.length] : 1;
    const rest = (prefix * (own.target ?? 0) - draft) / own.residual;
    const name = `${own.draft === null ? "residual_unlisted" : "residual"}${this.block ? "_block" : ""}`;
    return fill(words[name], {
      target: two(own.target), draft: two(draft), rest: two(rest), residual: two(own.residual), prefix: two(prefix),
    });
  }

  /** Texts of the tokens from the root to this one; empty for a chain, where the text shows them. */
  branch() {
    const { step } = this;
    if (!isTree(step.nodes)) return [];
    /** @type {Node[]} */
    const path = [];
    for (let node = this.node < 0 ? this.parent : this.node; node >= 0; node = step.nodes[node].parent ?? -1) path.unshift(step.nodes[node]);
    return [...path, ...(this.node < 0 ? [this.value] : [])].map(quote);
  }

  /** What both models thought of this place, likeliest for the target first, with what was drafted and committed there. */
  rows() {
    /** @type {Set<number | undefined>} */
    const ids = new Set();
    for (const list of [this.siblings, this.#own, ...LISTS.map((name) => this.thoughts?.[name] ?? [])]) {
      for (const { token_id } of list) ids.add(token_id);
    }
    const rows = [...ids].map((id) => this.#row(id));
    // What was rejected and what stands in its place first; then as the target thinks.
    return rows.sort((one, other) => rank(other) - rank(one) || (other.target ?? -1) - (one.target ?? -1) || (other.draft ?? -1) - (one.draft ?? -1));
  }

  // The target's own token, where it stands at this place.
  get #own() {
    return this.step.next && this.reached ? [this.step.next] : [];
  }

  #row(/** @type {number | undefined} */ id) {
    /** @param {"target" | "draft" | "residual"} name */
    const listed = (name) => this.thoughts?.[name]?.find((choice) => choice.token_id === id);
    const node = this.siblings.find((value) => value.token_id === id);
    const own = this.#own.find((value) => value.token_id === id);
    const token = node ?? own;
    return {
      token_id: id,
      text: quote([token, ...LISTS.map(listed)].find((value) => value?.text) ?? token),
      target: listed("target")?.prob ?? node?.target_prob ?? own?.target_prob ?? null,
      draft: listed("draft")?.prob ?? node?.draft_prob ?? node?.confidence ?? null,
      residual: listed("residual")?.prob ?? null,
      status: token?.status ?? "",
      self: id === this.value.token_id,
    };
  }

  notes() {
    const { words, step, thoughts } = this;
    const notes = [];
    if (this.block && this.node >= 0) notes.push(words.notes.block);
    if (this.coupled) notes.push(words.notes.coupled);
    if (this.refused.length && this.drawn) notes.push(fill(words.notes.left, { count: this.refused.length }));
    if (this.value.survival !== undefined) notes.push(fill(words.notes.foreseen, { chance: two(this.value.survival) }));
    if (step.open) return notes;
    if (!step.places?.length) notes.push(words.notes.no_detail);
    else if (!thoughts) notes.push(words.notes.not_there);
    if (this.siblings.length && thoughts && !thoughts.draft?.length) notes.push(words.notes.no_draft);
    if (thoughts && !this.sampled && this.header.settings?.sampling?.temperature === 0) notes.push(words.notes.greedy);
    return notes;
  }
}

/**
 * What a chain is judged by as a block, see `verify_block` in specdemo/engine/verify.py.
 *
 * prefix[i]: probability to keep the first i tokens, whatever follows them
 * keep[i]: probability to keep token i with all before it, given the whole draft
 * ends[i]: probability that the draft ends after token i when it is not kept further
 * @typedef {{ prefix: number[], keep: number[], ends: number[] }} Block
 * @param {Node[]} nodes @returns {Block}
 */
function blockOf(nodes) {
  const prefix = [1];
  for (const { target_prob: target = 0, draft_prob: draft = 1 } of nodes) prefix.push(Math.min(1, ((prefix.at(-1) ?? 1) * target) / draft));
  const keep = nodes.map(({ block_prob: prob = 0 }) => prob);
  prefix[nodes.length] = keep.at(-1) ?? 1; // the same number, as the verifier rounded it
  const ends = keep.map((prob, i) => {
    const next = keep[i + 1] ?? 0;
    return next < 1 ? Math.max(0, (prob - next) / (1 - next)) : 1;
  });
  return { prefix, keep, ends };
}

/** @type {("target" | "draft" | "residual")[]} */
const LISTS = ["target", "draft", "residual"];

/**
 * Two numbers with as many digits, from two significant on, as it takes to see which is larger.
 * @param {number | undefined} one @param {number | undefined} other
 */
export function apart(one, other) {
  if (one === undefined || other === undefined) return [two(one), two(other)];
  if (one === other || two(one) !== two(other)) return [two(one), two(other)];
  for (let digits = 3; digits < 9; digits += 1) {
    const shown = [one, other].map((value) => decimals(value, digits));
    if (shown[0] !== shown[1]) return shown;
  }
  return [two(one), two(other)];
}

// Statuses whose explanation needs no probability.
const JUDGED = new Set(["accepted", "rejected", "correction", "bonus"]);

/** @param {{ status: string | null | undefined, self: boolean }} row */
const rank = ({ status, self }) => (status === "correction" ? 2 : status === "rejected" && self ? 1 : 0);

// ---- Why a step drafted what it did: codes with numbers, or a sentence in recordings made before there were codes

/** The numbers in the English sentences of those recordings. @type {Record<string, RegExp>} */
const SENTENCES = {
  position: /token (\d+) would give/,
  gain: /would give ([\d.]+) tokens/,
  cost: /the time of ([\d.]+)/,
};

/**
 * Return a number of a step's reasons by its name, or undefined if they do not contain it.
 * @param {Pick<Step, "reason" | "reasons">} step @param {string} name
 */
export function reasonValue({ reason, reasons }, name) {
  const found = reasons.find(({ values = {} }) => name in values)?.values?.[name];
  const match = SENTENCES[name]?.exec(reason)?.[1];
  return found ?? (match === undefined ? undefined : Number(match));
}

/**
 * Return a step's reasons as one text. words: their strings by code
 * @param {Pick<Step, "reason" | "reasons" | "source">} step @param {Words} words
 */
export function reasonText({ reason, reasons, source }, words) {
  const texts = reasons.map(({ code, values = {} }) => {
    const rates = Object.entries(values).map(([name, rate]) => `${name} ${decimals(rate, 0)}`).join(", ");
    const shown = Object.entries(values).map(([name, value]) => [name, inWords(name, value)]);
    return fill(words[code] ?? code, { source, rates, ...Object.fromEntries(shown) });
  });
  return texts.join("; ") || reason;
}

/** @param {string} name @param {number} value */
function inWords(name, value) {
  if (name === "survival") return `${decimals(100 * value, 0)} %`;
  if (name.endsWith("_seconds")) return `${decimals(1000 * value, 0)} ms`;
  return Number.isInteger(value) ? value : decimals(value, 2);
}
