// The drawing of one step: drafted nodes in the shapes of the legend, the kept path lit, the target's own token at its end.

import { closest, el, svg } from "./dom.js";
import { fill, quote } from "../core/sentence.js";
import { two } from "../core/metrics.js";
import { keyOf } from "../core/reducer.js";
import { depthOf, layout } from "../core/tree.js";

/**
 * @import { Found, Words } from "./page"
 * @import { Lane, Node, Piece, State, Step } from "../core/state"
 * @import { Placed } from "../core/tree"
 * @typedef {{ x: number, y: number }} Point
 */

const ROW = 37; // distance between rows, and the sizes of a node, in pixels
const HEIGHT = 30;
const LETTER = 6.7; // width of one letter of the nodes' fixed-width font
const GAP = 17;
const EDGE = 6;
const LONGEST = 9; // letters of a token that are shown
const NARROWEST = 5; // letters that a node has room for, for its number
const SCALES = [0.85, 1.5]; // least and most, at which a tree is drawn to fill its panel

/** The panel beside the text. It shows the step that is pointed at, or the latest one while a run goes on. */
export class TreeView {
  #words;
  #shown = { key: "", at: -1 };
  #last = -1; // of the lane, when it was drawn
  /** @type {WeakMap<Element, { step: Step, piece: Piece, place: Placed }>} */
  #tokens = new WeakMap(); // by the element of a node

  constructor(/** @type {Words} */ words) {
    this.#words = words;
    this.caption = el("h3");
    this.box = el("div", { class: "sd-tree-box", role: "group", tabindex: "0", "aria-label": words.tree.label, onkeydown: (event) => this.#walk(event) });
    this.summary = el("p", { class: "sd-summary" }, words.tree.numbers);
    this.root = el("section", { class: "sd-tree", hidden: true }, el("header", {}, this.caption), this.box, this.summary);
    new ResizeObserver(() => this.#fit()).observe(this.box);
  }

  /** Below the tree: one line about a node, or what its numbers are. @param {string} sentence */
  describe(sentence) {
    this.summary.textContent = sentence || this.#words.tree.numbers;
  }

  /**
   * Draw the step that is pointed at, `at`; without one (-1) the latest once it is new, unless the visitor looks at this panel.
   * @param {State} state @param {number} at
   */
  render(state, at) {
    const name = state.lane ?? "";
    const lane = state.lanes[name];
    this.root.hidden = !lane?.trees;
    if (!lane?.trees) {
      this.#shown = { key: "", at: -1 };
      return;
    }
    const last = lane.steps.length - 1;
    const stays = this.#shown.at >= 0 && (last === this.#last || this.root.matches(":hover, :focus-within"));
    this.#last = last;
    this.#show(lane, name, at >= 0 && at <= last ? at : stays ? Math.min(this.#shown.at, last) : last);
  }

  /**
   * { token, step, piece, at } of a node's element, or null; `at` is the step's place in its lane.
   * @param {EventTarget | null} element @returns {Found | null}
   */
  find(element) {
    const token = closest(element, ".sd-node");
    const known = token && this.#tokens.get(token);
    return known ? { token, ...known, at: this.#shown.at } : null;
  }

  /** @param {Lane} lane @param {string} name @param {number} at */
  #show(lane, name, at) {
    const step = lane.steps[at];
    const key = step ? keyOf(name, step) : "";
    if (!step || key === this.#shown.key) return;
    const focused = this.#tokens.get(document.activeElement ?? this.box)?.place.index;
    this.#shown = { key, at };
    this.caption.textContent = fill(step.open ? this.#words.tree.open : this.#words.tree.caption, {
      step: step.index + 1,
      drafted: step.nodes.length,
      accepted: step.path.length,
      depth: depthOf(step.nodes),
    });
    const drawing = this.#draw(step);
    this.box.replaceChildren(drawing);
    this.#fit();
    this.box.scrollTop = this.box.scrollLeft = 0;
    if (focused !== undefined) (/** @type {SVGElement | null} */ (drawing.querySelector(`[data-node="${focused}"]`)) ?? this.box).focus();
  }

  #draw(/** @type {Step} */ step) {
    const { places, columns, rows } = layout(step);
    const labels = places.map((place) => label(tokenOf(step, place)));
    const widths = Array(columns).fill(0);
    places.forEach((place, i) => {
      widths[place.column] = Math.max(widths[place.column], widthOf(labels[i]));
    });
    /** @type {number[]} */
    const starts = [];
    widths.reduce((x, width, column) => (starts[column] = x) + width + GAP, EDGE + 10 + GAP);
    const width = (starts.at(-1) ?? EDGE) + (widths.at(-1) ?? 0) + EDGE;
    const height = rows * ROW + 2 * EDGE;
    const root = { x: EDGE + 5, y: middle(0) };
    const links = svg("g", { class: "sd-links" });
    const nodes = svg("g", {});
    /** @type {Map<Placed, Point>} */
    const ends = new Map(); // of each place, where its box ends
    places.forEach((place, i) => {
      const box = { x: starts[place.column], y: middle(place.row), width: widthOf(labels[i]) };
      ends.set(place, { x: box.x + box.width, y: box.y });
      links.append(link((place.from && ends.get(place.from)) ?? { x: root.x + 4, y: root.y }, box, place, tokenOf(step, place).status));
      nodes.append(this.#node(step, place, box, labels[i]));
    });
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, links, svg("circle", { cx: root.x, cy: root.y, r: 4, class: "sd-tree-root" }), nodes);
  }

  /** @param {Step} step @param {Placed} place @param {Point & { width: number }} box @param {string} text */
  #node(step, place, box, text) {
    const value = tokenOf(step, place);
    const status = value.status ?? "drafted";
    const top = box.y - HEIGHT / 2;
    const named = fill(this.#words.token_label, { status: this.#words.status[status] ?? status });
    const element = svg("g", {
      class: `sd-node sd-node-${status}`, tabindex: "-1", role: "img", "data-node": place.index, "aria-label": `${named}: ${text}`,
    }, svg("rect", { x: box.x, y: top, width: box.width, height: HEIGHT, rx: status === "correction" ? HEIGHT / 2 : 4 }));
    /** @param {string} shown @param {number} y @param {string} name */
    const line = (shown, y, name) => svg("text", { x: box.x + box.width / 2, y, "text-anchor": "middle", class: name }, shown);
    element.append(line(text, box.y - 1, "sd-node-word"));
    if (value.target_prob !== undefined) element.append(line(two(value.target_prob), box.y + 11, "sd-node-prob"));
    const rule = (/** @type {number} */ y) => svg("line", { x1: box.x + 4, x2: box.x + box.width - 4, y1: y, y2: y });
    if (status === "rejected") element.append(rule(box.y - 4.5));
    if (status === "bonus") element.append(rule(top + HEIGHT - 3));
    this.#tokens.set(element, { step, piece: { value, node: place.index, status, discarded: false }, place });
    return element;
  }

  // A tree fills its panel, but none is made too small to be read.
  #fit() {
    const drawing = /** @type {SVGSVGElement | null} */ (this.box.firstElementChild);
    if (!drawing) return;
    const { width, height } = drawing.viewBox.baseVal;
    const room = [this.box.offsetWidth - 18, this.box.offsetHeight - 10]; // scroll bars or not, else they come and go for ever
    const [least, most] = SCALES;
    const scale = Math.max(least, Math.min(most, room[0] / width, room[1] / height));
    drawing.setAttribute("width", String(width * scale));
    drawing.setAttribute("height", String(height * scale));
  }

  /** Right to the first child, left to the parent, up and down through what is drawn. @param {KeyboardEvent} event */
  #walk(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const elements = [.../** @type {NodeListOf<SVGElement>} */ (this.box.querySelectorAll(".sd-node"))];
    if (!elements.length || !/^Arrow/.test(event.key)) return;
    const at = elements.findIndex((element) => element === document.activeElement);
    const place = this.#tokens.get(elements[at])?.place;
    const placeOf = (/** @type {Element} */ element) => this.#tokens.get(element)?.place;
    const next = {
      ArrowRight: () => elements.find((element) => placeOf(element)?.from === place),
      ArrowLeft: () => elements.find((element) => placeOf(element) === place?.from),
      ArrowDown: () => elements[at + 1],
      ArrowUp: () => elements[at - 1],
    }[event.key];
    event.preventDefault();
    (place ? next?.() : elements[0])?.focus();
  }
}

const widthOf = (/** @type {string} */ text) => 12 + LETTER * Math.max(NARROWEST, letters(text));
/** @param {Step} step @param {Placed} place */
const tokenOf = (step, place) => /** @type {Node} */ (place.index < 0 ? step.next : step.nodes[place.index]);
const middle = (/** @type {number} */ row) => EDGE + row * ROW + ROW / 2;

/** @param {Point} from @param {Point} to @param {Placed} place @param {string | undefined} status */
function link(from, to, { lit }, status) {
  const half = (from.x + to.x) / 2;
  const path = `M${from.x} ${from.y} C${half} ${from.y} ${half} ${to.y} ${to.x} ${to.y}`;
  return svg("path", { d: path, class: lit ? "sd-link sd-link-lit" : `sd-link sd-link-${status ?? "drafted"}` });
}

/** A token in a few letters: without the blank before it, and cut when it is long. @param {Pick<Node, "text">} value */
function label(value) {
  const shown = [...quote(value)];
  const cut = shown.length > LONGEST ? [...shown.slice(0, LONGEST - 1), "…"] : shown;
  return cut.join("") || "·";
}

/** Letters beyond Latin, Greek and Cyrillic are about twice as wide. @param {string} text */
const letters = (text) => [...text].reduce((sum, letter) => sum + (Number(letter.codePointAt(0)) > 0x0fff && letter !== "…" && letter !== "↵" ? 1.9 : 1), 0);
