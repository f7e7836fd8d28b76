// What would each have drafted here? A text, a position in it, and what each method drafted, those that agree together.
//
// `read()` gives JSON: { source, key, methods: [{ name, title, lossy }], prompt, ... } and either, for a text that was just
// written, { tokens, position, rows: [{ method, title, events, why }], phase, asking, waiting, machine, error }, or { runs }:
// recorded runs of one text, which are fetched. A position that is chosen in a live text is sent as { position }.

import { fetchFile } from "../core/recorded.js";
import { fold, tokensOf } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { Head } from "../parts/blocks.js";
import { button as anyButton, closest, el, firstSeen, follow, setText } from "../parts/dom.js";
import { append } from "../parts/text.js";
import { Drafts } from "./drafts.js";

/**
 * @import { JudgedStep, Lane, Line, Piece } from "../core/state"
 * @import { Given, Words } from "../parts/page"
 * @import { Row } from "./drafts"
 * @typedef {{
 *   source: string, key: string, methods: { name: string, title: string, lossy: boolean }[], prompt?: string,
 *   tokens: string[], position: number, rows: Omit<Row, "lossy">[], phase: string, asking?: string, waiting?: string,
 *   machine?: string, error?: string, runs?: string[],
 * }} Data
 * @typedef {{ tokens: string[], position: number, known: Map<number, unknown> | null, writing: boolean }} Spotted
 *   known: of a recorded text, the positions that can be shown; writing: whether the text still grows
 * @typedef {{ method: string, step: JudgedStep }} Draft
 */
const AHEAD = 12; // tokens of the target's own that are shown
const PLAIN = "nothing"; // the method that writes the text
/** @type {Data} */
const NOTHING = { source: "live", key: "", methods: [], tokens: [], position: 0, rows: [], phase: "empty" };

/** Build the part in `element`; `words` are its own and the view's as `view`. @param {HTMLElement} element @param {Given & { send(text: string): void }} given */
export function mountProposals(element, { read, watch, send, words, say = (text) => text }) {
  const view = new ProposalsView(words, (position) => send(JSON.stringify({ position })));
  element.replaceChildren(view.root);
  follow({ read, watch }, (data) => data.source && view.take(said(data, say))); // else it is what was sent
  return view;
}

/** What Python calls the methods, and why one drafted nothing, in the page's language. @param {Data} data @param {(text: string) => string} say */
export function said(data, say) {
  const methods = (data.methods ?? []).map((method) => ({ ...method, title: say(method.title) }));
  const rows = (data.rows ?? []).map((row) => ({ ...row, title: say(row.title), why: say(row.why) }));
  return { ...data, methods, rows, asking: say(data.asking ?? "") };
}

class ProposalsView {
  #words;
  #send;
  #data = NOTHING;
  /** @type {Map<number, Draft[]> | null} */
  #positions = null; // of a recorded text: what was drafted at each

  /** @param {Words} words @param {(position: number) => void} send */
  constructor(words, send) {
    this.#words = words;
    this.#send = send;
    this.head = new Head();
    this.error = el("p", { class: "sd-problem", role: "alert", hidden: true });
    this.spots = new Spots(words, { choose: (position) => this.#choose(position), step: (by) => this.#step(by) });
    this.drafts = new Drafts(words);
    this.note = el("p", { class: "sd-spot-note" }, words.note);
    this.root = el("section", { class: "sd-race sd-proposals", "aria-label": words.label }, this.head.root, this.error,
      el("div", { class: "sd-spot-box" }, this.head.prompt, this.spots.text, this.spots.bar), this.drafts.root, this.note);
    this.#paint();
    this.seen = firstSeen(this.root);
  }

  async take(/** @type {Partial<Data>} */ data) {
    this.#data = { ...NOTHING, ...data };
    this.#positions = null;
    if (data.runs) this.#data.phase = "fetching";
    this.#paint();
    if (!data.runs) return;
    await this.seen;
    const runs = await Promise.all(data.runs.map(fetchFile));
    if (this.#data.key !== data.key) return;
    const whole = runs.flatMap((run) => (run ? [run] : []));
    if (whole.length === runs.length) this.#recorded(whole);
    else this.#data.phase = "missing";
    this.#paint();
  }

  #recorded(/** @type {Line[][]} */ runs) {
    const { tokens, header, positions } = sharedPositions(runs);
    const machine = [header?.target?.name, header?.target?.precision, header?.machine].filter(Boolean).join(", ");
    this.#positions = positions;
    Object.assign(this.#data, { machine, tokens: tokens.map((token) => token.text ?? ""), phase: positions.size ? "done" : "alone" });
    this.#look(bestPosition(positions));
  }

  #look(/** @type {number} */ position) {
    const { methods } = this.#data;
    const order = methods.map((method) => method.name);
    const drafts = this.#positions?.get(position) ?? [];
    /** A recorded run may be of a method that this page cannot run. @param {string} method */
    const title = (method) => methods.find(({ name }) => name === method)?.title ?? this.#words.view.methods[method] ?? method;
    const rows = drafts.map(({ method, step }) => ({ method, title: title(method), step, why: "" }));
    this.#data.position = position;
    this.#data.rows = rows.sort((one, other) => order.indexOf(one.method) - order.indexOf(other.method));
  }

  /** Look at a position: of a recorded text the nearest that is known, of a live one whatever was chosen. @param {number} position */
  #choose(position) {
    const { length } = this.#data.tokens;
    if (!length) return;
    if (!this.#positions) {
      this.#send(Math.max(0, Math.min(length, position)));
      return;
    }
    if (!this.#positions.size) return;
    const far = (/** @type {number} */ other) => Math.abs(other - position);
    this.#look([...this.#positions.keys()].reduce((best, other) => (far(other) < far(best) ? other : best)));
    this.#paint();
  }

  /** One position on or back: of a recorded text to the next that is known. @param {number} by */
  #step(by) {
    const { position } = this.#data;
    const beyond = [...(this.#positions?.keys() ?? [position + by])].filter((other) => (other - position) * by > 0);
    const next = by > 0 ? beyond[0] : beyond.at(-1);
    if (next !== undefined) this.#choose(next);
  }

  #paint() {
    const words = this.#words;
    const { source, methods, tokens, position, phase, asking, waiting, rows, error, machine, prompt, runs } = this.#data;
    const going = fill(words.phase[phase] ?? "", { tokens: tokens.length, method: asking ?? "", position, count: rows.filter((row) => !row.why).length, all: rows.length });
    this.head.render({
      kind: source, badge: tokens.length ? words.view.source[source] : "", phase: waiting || going, prompt: prompt ?? "",
      about: machine ? (runs ? fill(words.recorded_about, { machine }) : machine) : "",
    });
    setText(this.error, error ?? "");
    this.error.hidden = !error;
    const writing = phase === "writing";
    this.spots.render({ tokens, position, known: this.#positions, writing });
    const lossy = new Set(methods.filter((method) => method.lossy).map(({ name }) => name));
    const next = writing || !rows.length ? [] : tokens.slice(position, position + AHEAD);
    const here = new Set(rows.map((row) => row.method));
    const unrecorded = runs && rows.length ? methods.filter(({ name }) => !here.has(name) && name !== PLAIN).map(({ title }) => title) : [];
    this.drafts.render(rows.map((row) => ({ ...row, lossy: lossy.has(row.method) })), next, source, unrecorded);
    this.note.hidden = !rows.length || Boolean(runs);
  }
}

// ---- A text in which a position is chosen: by a click on a token, with the slider, or one on or back

class Spots {
  #words;
  /** @type {Spotted} */
  #shown = { tokens: [], position: 0, known: null, writing: false };
  #drawn = ""; // what the text shows

  /** @param {Words} words @param {{ choose(position: number): void, step(by: number): void }} act */
  constructor(words, { choose, step }) {
    this.#words = words;
    this.text = el("div", { class: "sd-spots", role: "group", tabindex: "0", "aria-label": words.text });
    this.text.addEventListener("click", (event) => {
      const clicked = closest(event.target, ".sd-spot");
      if (clicked && !this.#shown.writing) choose(Number(clicked.dataset.position));
    });
    /** @param {string} name @param {string} sign @param {number} by */
    const button = (name, sign, by) => anyButton(sign, () => step(by), { "aria-label": words[name], title: words[name] });
    this.slider = el("input", { type: "range", class: "sd-scrub", min: 0, max: 0, step: 1, value: 0, "aria-label": words.place });
    // What is drafted at a position of a live text is asked of the server, once the slider is let go.
    this.slider.addEventListener("input", () => (this.#shown.known ? choose : (/** @type {number} */ at) => this.#name(at))(Number(this.slider.value)));
    this.slider.addEventListener("change", () => choose(Number(this.slider.value)));
    this.position = el("span", { class: "sd-place" });
    this.bar = el("div", { class: "sd-spot-bar", role: "group", "aria-label": words.place }, button("earlier", "‹", -1), this.slider, button("later", "›", 1), this.position);
  }

  render(/** @type {Spotted} */ shown) {
    this.#shown = shown;
    const { tokens, position, known, writing } = shown;
    const key = JSON.stringify([tokens, Boolean(known)]);
    if (key !== this.#drawn) this.text.replaceChildren(...tokens.map((text, i) => spot(text, i, Boolean(known?.has(i)))));
    this.#drawn = key;
    this.text.hidden = !tokens.length;
    [...this.text.children].forEach((token, i) => {
      token.classList.toggle("sd-spot-here", i === position && !writing);
      token.classList.toggle("sd-spot-after", i >= position && !writing);
    });
    this.bar.hidden = !tokens.length || writing;
    this.slider.max = String(tokens.length);
    this.slider.value = String(position);
    this.#name(position);
  }

  #name(/** @type {number} */ position) {
    const sentence = fill(this.#words.place_of, { position, tokens: this.#shown.tokens.length });
    setText(this.position, sentence);
    this.slider.setAttribute("aria-valuetext", sentence);
  }
}

/** @param {string} text @param {number} i @param {boolean} known */
function spot(text, i, known) {
  const token = el("span", { class: known ? "sd-spot sd-spot-known" : "sd-spot", "data-position": i });
  append(token, text);
  return token;
}

// ---- The same position in several recorded runs of one text: who drafted there, and what. Pure

/**
 * runs: the events of each. returns: { tokens, header, positions }: the text of the first run's plain lane, and by position
 * (how many tokens stand before it) the steps that began there. A run counts as long as its text is the same, and of a
 * method's runs the first that drafted there.
 * @param {Line[][]} runs
 */
export function sharedPositions(runs) {
  const lanes = runs.map((items) => fold(items).lanes);
  const plain = lanes.find((lane) => lane.plain)?.plain;
  const tokens = plain ? tokensOf(plain) : [];
  /** @type {Map<number, Draft[]>} */
  const all = new Map();
  for (const { speculative } of lanes) {
    if (!speculative) continue;
    for (const [position, step] of stepsOn(tokens, speculative)) {
      const { method } = speculative.header;
      const here = all.get(position) ?? [];
      if (here.every((draft) => draft.method !== method)) all.set(position, [...here, { method, step }]);
    }
  }
  const shared = [...all].filter(([, steps]) => steps.length > 1).sort(([one], [other]) => one - other);
  return { tokens, header: plain?.header ?? null, positions: new Map(shared) };
}

/** [position, step] of each step that drafted, up to the first token that is not the text's. @param {Piece["value"][]} tokens @param {Lane} lane */
function stepsOn(tokens, lane) {
  /** @type {[number, JudgedStep][]} */
  const out = [];
  let position = 0;
  for (const step of lane.steps) {
    if (step.open) break;
    if (step.nodes.length) out.push([position, step]);
    const own = tokensOf({ steps: [step] });
    if (own.some((token, i) => token.token_id !== tokens[position + i]?.token_id)) break;
    position += own.length;
  }
  return out;
}

/**
 * Where one looks first: the position at which most drafted, the earliest of those behind the start; -1 for none.
 * @param {Map<number, unknown[]>} positions
 */
export function bestPosition(positions) {
  let best = -1;
  let most = 0;
  for (const [position, { length }] of positions) {
    if (length < most || (length === most && best !== 0)) continue;
    best = position;
    most = length;
  }
  return best;
}
