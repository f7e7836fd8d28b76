// What would each have drafted here? A text, a place in it, and a row of drafted tokens for each method.
//
// `read()` gives JSON: { source, key, methods: [{ name, title, lossy }], prompt, ... } and either, for a text that was just
// written, { tokens, position, rows: [{ method, title, events, why }], phase, asking, waiting, machine, error }, or { runs }:
// recorded runs of one text, which are fetched. A place that is chosen in a live text is sent as { position }.

import { el, firstSeen, textEl } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { two } from "../core/metrics.js";
import { bestPlace, sharedPlaces } from "./places.js";
import { fold } from "../core/reducer.js";
import { fetchFile } from "../core/recorded.js";
import { spell } from "../core/symbols.js";
import { append } from "../parts/characters.js";
import { isTree, layout } from "../core/tree.js";

const AHEAD = 12; // tokens of the target's own that are shown

/** Build the part in `element`; `words` are its own and the view's as `view`. */
export function mountProposals(element, { read, watch, send, words }) {
  const view = new ProposalsView(element, words, (position) => send(JSON.stringify({ position })));
  const take = () => {
    const data = JSON.parse(read() || "{}");
    if (data.source) view.take(data); // else it is what was sent
  };
  watch(take);
  take();
  return view;
}

class ProposalsView {
  #words;
  #send;
  /** @type {Record<string, any>} */
  #data = { methods: [], tokens: [] };
  /** @type {Map<number, any[]> | null} */
  #places = null; // of a recorded text: place -> steps
  #drawn = ""; // what the text shows
  #rows = new Map(); // method -> { key, root }

  constructor(element, words, send) {
    this.#words = words;
    this.#send = send;
    this.#build(element);
    this.seen = firstSeen(this.root);
  }

  async take(data) {
    this.#data = { tokens: [], rows: [], position: 0, ...data };
    this.#places = null;
    if (!data.runs) {
      this.#paint();
      return;
    }
    this.#data.phase = "fetching";
    this.#paint();
    await this.seen;
    const runs = await Promise.all(data.runs.map(fetchFile));
    if (this.#data.key !== data.key) return;
    this.#take(runs);
    this.#paint();
  }

  #take(runs) {
    if (runs.includes(null)) {
      this.#data.phase = "missing";
      return;
    }
    const { tokens, header, places } = sharedPlaces(runs);
    const target = header?.target ?? {};
    const machine = [target.name, target.precision, header?.machine].filter(Boolean).join(", ");
    Object.assign(this.#data, { machine, tokens: tokens.map((token) => token.text ?? ""), position: bestPlace(places) });
    this.#places = places;
    this.#data.phase = places.size ? "done" : "alone";
    this.#recordedRows();
  }

  #recordedRows() {
    const steps = this.#places?.get(this.#data.position) ?? [];
    const order = this.#data.methods.map((method) => method.name);
    this.#data.rows = steps
      .map(({ method, step }) => ({ method, title: this.#title(method), step, why: "" }))
      .sort((one, other) => order.indexOf(one.method) - order.indexOf(other.method));
  }

  #title = (name) => this.#data.methods.find((method) => method.name === name)?.title ?? name;

  /** Look at a place: of a recorded text the nearest that is known, of a live one whatever was chosen. */
  #choose(position) {
    if (!this.#data.tokens.length) return;
    if (!this.#places) {
      this.#send(Math.max(0, Math.min(this.#data.tokens.length, position)));
      return;
    }
    if (!this.#places.size) return;
    const far = (place) => Math.abs(place - position);
    this.#data.position = [...this.#places.keys()].reduce((best, place) => (far(place) < far(best) ? place : best));
    this.#recordedRows();
    this.#paint();
  }

  // One place on or back: of a recorded text to the next that is known.
  #step(by) {
    const { position } = this.#data;
    if (!this.#places) {
      this.#choose(position + by);
      return;
    }
    const beyond = [...this.#places.keys()].filter((place) => (place - position) * by > 0);
    if (beyond.length) this.#choose(by > 0 ? beyond[0] : beyond.at(-1));
  }

  #paint() {
    const words = this.#words;
    const { source, tokens, position, phase = "empty", asking, waiting, rows, error, machine, prompt, runs } = this.#data;
    this.badge.textContent = tokens.length ? words.source[source] : "";
    this.badge.className = `sd-badge sd-badge-${source}`;
    const told = fill(words.phase[phase] ?? "", { tokens: tokens.length, method: asking ?? "", position, count: rows.filter((row) => !row.why).length, all: rows.length });
    const sentence = waiting || told;
    if (this.phase.textContent !== sentence) this.phase.textContent = sentence;
    this.about.textContent = machine ? (runs ? fill(words.recorded_about, { machine }) : machine) : "";
    this.error.textContent = error ?? "";
    this.error.hidden = !error;
    this.prompt.textContent = prompt ?? "";
    this.prompt.hidden = !prompt;
    this.#paintText();
    this.bar.hidden = !tokens.length || phase === "writing";
    this.note.hidden = !rows.length || Boolean(runs);
    this.slider.max = tokens.length;
    this.slider.value = position;
    this.#tell(position);
    this.#paintTarget();
    this.#paintRows();
  }

  #tell(position) {
    const said = fill(this.#words.place_of, { position, tokens: this.#data.tokens.length });
    this.place.textContent = said;
    this.slider.setAttribute("aria-valuetext", said);
  }

  #paintText() {
    const { tokens, position, phase } = this.#data;
    const key = JSON.stringify([tokens, Boolean(this.#places)]);
    if (key !== this.#drawn) {
      this.#drawn = key;
      this.text.replaceChildren(...tokens.map((text, i) => {
        const token = el("span", { class: "sd-spot", "data-place": i });
        append(token, text);
        token.classList.toggle("sd-spot-known", Boolean(this.#places?.has(i)));
        return token;
      }));
    }
    this.text.hidden = !tokens.length;
    [...this.text.children].forEach((token, i) => {
      token.classList.toggle("sd-spot-here", i === position && phase !== "writing");
      token.classList.toggle("sd-spot-after", i >= position && phase !== "writing");
    });
  }

  #paintTarget() {
    const { tokens, position, phase } = this.#data;
    const next = tokens.slice(position, position + AHEAD);
    this.target.hidden = !next.length || phase === "writing" || !this.#data.rows.length;
    this.targetChips.replaceChildren(...next.map((text) => chip(text, "plain", this.#words.target_hint)));
  }

  #paintRows() {
    const kept = new Map();
    for (const row of this.#data.rows) {
      const key = JSON.stringify([row, this.#data.source]);
      const known = this.#rows.get(row.method);
      kept.set(row.method, known?.key === key ? known : { key, root: this.#row(row) });
    }
    this.#rows = kept;
    const roots = [this.target, ...[...kept.values()].map(({ root }) => root)];
    if (roots.length !== this.list.childElementCount || roots.some((root, i) => this.list.children[i] !== root)) this.list.replaceChildren(...roots);
  }

  #row({ method, title, step: recorded, events, why }) {
    const words = this.#words;
    const step = recorded ?? fold(events).lanes.speculative?.steps.at(-1) ?? null;
    const lossy = this.#data.methods.some((one) => one.name === method && one.lossy);
    const heading = textEl("h3", title);
    if (lossy) heading.append(" ", textEl("span", words.lossy, { class: "sd-lossy" }));
    if (why || !step) return el("li", { class: "sd-draft sd-draft-missing" }, heading, textEl("p", why, { class: "sd-draft-why" }));
    const milliseconds = two(step.draftSeconds * 1000);
    const counts = { kept: step.path.length, drafted: step.nodes.length, milliseconds };
    const facts = textEl("p", step.nodes.length ? fill(isTree(step.nodes) ? words.facts_tree : words.facts, counts) : `${milliseconds} ms`, {
      class: "sd-draft-facts", title: fill(words.facts_hint, { origin: words.source[this.#data.source] }),
    });
    const reason = step.reason ? fill(words.nothing, { reason: step.reason }) : words.nothing_alone;
    const body = step.nodes.length ? this.#chips(step) : textEl("p", reason, { class: "sd-draft-why" });
    return el("li", { class: "sd-draft" }, el("div", {}, heading, facts), body);
  }

  // A chain is one line, the target's own token at its end; in a tree a line begins below its parent for each further sibling.
  #chips(step) {
    const words = this.#words.view;
    const places = isTree(step.nodes) ? layout(step).places : inLine(step);
    const box = el("div", { class: "sd-draft-tree", tabindex: "0", role: "group", "aria-label": fill(this.#words.tree_caption, { drafted: step.nodes.length, accepted: step.path.length }) });
    for (const place of places) {
      const token = place.index < 0 ? step.next : step.nodes[place.index];
      const status = token.status ?? "drafted";
      const probs = [["target_prob", token.target_prob], ["draft_prob", token.draft_prob ?? token.confidence]]
        .flatMap(([name, value]) => (typeof value === "number" ? [`${words[name]} ${two(100 * value)} %`] : []));
      const mark = chip(token.text ?? "", status, [words.status[status], ...probs].join(" · "));
      const hangs = place.row !== (place.from?.row ?? 0);
      mark.classList.toggle("sd-chip-below", hangs);
      mark.style.gridColumn = place.column + 1;
      mark.style.gridRow = place.row + 1;
      box.append(mark);
    }
    return box;
  }

  #build(element) {
    const words = this.#words;
    this.badge = el("span", { class: "sd-badge" });
    this.phase = el("span", { class: "sd-race-phase", role: "status" });
    this.about = el("span", { class: "sd-about" });
    this.error = el("p", { class: "sd-problem", role: "alert", hidden: true });
    this.prompt = el("p", { class: "sd-asked" });
    this.text = el("div", { class: "sd-spots", role: "group", tabindex: "0", "aria-label": words.text });
    this.text.addEventListener("click", (event) => {
      const spot = event.target.closest(".sd-spot");
      if (spot && this.#data.phase !== "writing") this.#choose(Number(spot.dataset.place));
    });
    const button = (name, sign, by) => textEl("button", sign, { type: "button", class: "sd-button", "aria-label": words[name], title: words[name], onclick: () => this.#step(by) });
    this.slider = el("input", { type: "range", class: "sd-scrub", min: 0, max: 0, step: 1, value: 0, "aria-label": words.place });
    this.slider.addEventListener("input", () => (this.#places ? this.#choose(Number(this.slider.value)) : this.#tell(Number(this.slider.value))));
    this.slider.addEventListener("change", () => this.#choose(Number(this.slider.value)));
    this.place = el("span", { class: "sd-place" });
    this.bar = el("div", { class: "sd-spot-bar", role: "group", "aria-label": words.place }, button("earlier", "‹", -1), this.slider, button("later", "›", 1), this.place);
    this.targetChips = el("div", { class: "sd-draft-tree" });
    this.target = el("li", { class: "sd-draft sd-draft-target" }, textEl("h3", words.target), this.targetChips);
    this.list = el("ol", { class: "sd-drafts", "aria-label": words.rows });
    this.note = textEl("p", words.note, { class: "sd-spot-note" });
    this.root = el("section", { class: "sd-race sd-proposals", "aria-label": words.label },
      el("div", { class: "sd-race-status" }, this.badge, this.phase, this.about),
      this.error, el("div", { class: "sd-spot-box" }, this.prompt, this.text, this.bar), this.list, this.note);
    element.replaceChildren(this.root);
  }
}

const inLine = ({ nodes, next }) => [...nodes.map((_, index) => index), ...(next ? [-1] : [])].map((index, column) => ({ index, column, row: 0, from: null }));

function chip(text, status, title) {
  const token = el("span", { class: `sd-token sd-${status}`, title });
  const mark = el("span", { class: "sd-mark" });
  mark.textContent = spell(text.trim() ? text.trim() : text) || "·";
  token.append(mark);
  return token;
}
