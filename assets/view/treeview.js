// The drawing of one step: drafted nodes in the shapes of the legend, the kept path lit, the target's own token at its end.

import { el, fill, svg } from "./dom.js";
import { spell } from "./symbols.js";
import { depthOf, layout } from "./tree.js";

const ROW = 29; // distance between rows, and the sizes of a node, in pixels
const HEIGHT = 21;
const LETTER = 6.7; // width of one letter of the nodes' fixed-width font
const GAP = 17;
const EDGE = 6;
const LONGEST = 9; // letters of a token that are shown

/** The panel beside the text. It shows the step it is told to, or the latest one while a run goes on. */
export class TreeView {
  #words;
  #status; // names of the states
  #label;
  #shown = { lane: null, at: -1, step: null };
  #tokens = new WeakMap(); // element of a node -> { step, piece, place }

  constructor(words) {
    this.#words = words.tree;
    this.#status = words.status;
    this.#label = words.token_label;
    this.caption = el("h3");
    this.box = el("div", { class: "sd-tree-box", role: "group", tabindex: "0", "aria-label": this.#words.label });
    this.root = el("section", { class: "sd-tree" }, this.caption, this.box);
    this.root.hidden = true;
    this.box.addEventListener("keydown", (event) => this.#walk(event));
  }

  /** Draw the step that is pointed at, `at`; without one (-1) the latest, unless the visitor is looking at this panel. */
  render(state, at) {
    const lane = state.lane ? state.lanes[state.lane] : null;
    this.root.hidden = !lane?.trees;
    if (this.root.hidden) {
      this.#shown = { lane: null, at: -1, step: null };
      return;
    }
    const stays = lane === this.#shown.lane && (lane.end !== null || this.root.matches(":hover, :focus-within"));
    const held = stays && this.#shown.at >= 0 ? this.#shown.at : lane.steps.length - 1;
    this.#show(lane, at >= 0 ? at : held);
  }

  /** Place of the shown step in its lane, or -1. */
  get at() {
    return this.#shown.at;
  }

  /** { token, step, piece } of a node's element, or null. */
  find(element) {
    const token = element.closest?.(".sd-node");
    return token ? { token, ...this.#tokens.get(token) } : null;
  }

  #show(lane, at) {
    const step = lane.steps[at];
    if (!step || step === this.#shown.step) return;
    const focused = this.#tokens.get(document.activeElement)?.place.index;
    this.#shown = { lane, at, step };
    this.caption.textContent = fill(step.open ? this.#words.open : this.#words.caption, {
      step: step.index + 1,
      drafted: step.nodes.length,
      accepted: step.path.length,
      depth: depthOf(step.nodes),
    });
    const drawing = this.#draw(step);
    this.box.replaceChildren(drawing);
    this.box.scrollTop = this.box.scrollLeft = 0;
    if (focused !== undefined) (drawing.querySelector(`[data-node="${focused}"]`) ?? this.box).focus();
  }

  #draw(step) {
    const { places, columns, rows } = layout(step);
    const labels = places.map((place) => label(tokenOf(step, place)));
    const widths = Array(columns).fill(0);
    places.forEach((place, i) => {
      widths[place.column] = Math.max(widths[place.column], 12 + LETTER * letters(labels[i]));
    });
    const starts = [];
    widths.reduce((x, width, column) => (starts[column] = x) + width + GAP, EDGE + 10 + GAP);
    const width = (starts.at(-1) ?? EDGE) + (widths.at(-1) ?? 0) + EDGE;
    const height = rows * ROW + 2 * EDGE;
    const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    const root = { x: EDGE + 5, y: middle(0) };
    const links = svg("g", { class: "sd-links" });
    const nodes = svg("g", {});
    places.forEach((place, i) => {
      const box = { x: starts[place.column], y: middle(place.row), width: 12 + LETTER * letters(labels[i]) };
      place.end = { x: box.x + box.width, y: box.y };
      links.append(link(place.from?.end ?? { x: root.x + 4, y: root.y }, box, place, tokenOf(step, place).status));
      nodes.append(this.#node(step, place, box, labels[i]));
    });
    drawing.append(links, svg("circle", { cx: root.x, cy: root.y, r: 4, class: "sd-tree-root" }), nodes);
    return drawing;
  }

  #node(step, place, box, text) {
    const value = tokenOf(step, place);
    const status = value.status ?? "drafted";
    const top = box.y - HEIGHT / 2;
    const named = fill(this.#label, { status: this.#status[status] ?? status });
    const element = svg("g", {
      class: `sd-node sd-node-${status}`, tabindex: "-1", role: "img", "data-node": place.index, "aria-label": `${named}: ${text}`,
    });
    element.append(svg("rect", { x: box.x, y: top, width: box.width, height: HEIGHT, rx: status === "correction" ? HEIGHT / 2 : 4 }));
    const word = svg("text", { x: box.x + box.width / 2, y: box.y + 4, "text-anchor": "middle" });
    word.textContent = text;
    element.append(word);
    const line = (y) => svg("line", { x1: box.x + 4, x2: box.x + box.width - 4, y1: y, y2: y });
    if (status === "rejected") element.append(line(box.y));
    if (status === "bonus") element.append(line(top + HEIGHT - 3));
    this.#tokens.set(element, { step, piece: { value, node: place.index, status, discarded: false }, place });
    return element;
  }

  // Right to the first child, left to the parent, up and down through what is drawn.
  #walk(event) {
    const elements = [...this.box.querySelectorAll(".sd-node")];
    if (!elements.length || !/^Arrow/.test(event.key)) return;
    const at = elements.indexOf(document.activeElement);
    const place = this.#tokens.get(elements[at])?.place;
    const placeOf = (element) => this.#tokens.get(element).place;
    const next = {
      ArrowRight: () => elements.find((element) => placeOf(element).from === place),
      ArrowLeft: () => elements.find((element) => placeOf(element) === place.from),
      ArrowDown: () => elements[at + 1],
      ArrowUp: () => elements[at - 1],
    }[event.key];
    event.preventDefault();
    (place ? next?.() : elements[0])?.focus();
  }
}

const tokenOf = (step, place) => (place.index < 0 ? step.next : step.nodes[place.index]);
const middle = (row) => EDGE + row * ROW + ROW / 2;

function link(from, to, { lit }, status) {
  const half = (from.x + to.x) / 2;
  const path = `M${from.x} ${from.y} C${half} ${from.y} ${half} ${to.y} ${to.x} ${to.y}`;
  return svg("path", { d: path, class: lit ? "sd-link sd-link-lit" : `sd-link sd-link-${status ?? "drafted"}` });
}

/** A token in a few letters: without the blank before it, and cut when it is long. */
function label(value) {
  const text = value.text ?? "";
  const shown = [...spell(text.trim() ? text.trim() : text)];
  const cut = shown.length > LONGEST ? [...shown.slice(0, LONGEST - 1), "…"] : shown;
  return cut.join("") || "·";
}

// Letters beyond Latin, Greek and Cyrillic are about twice as wide.
const letters = (text) => [...text].reduce((sum, letter) => sum + (letter.codePointAt(0) > 0x0fff && letter !== "…" && letter !== "↵" ? 1.9 : 1), 0);
