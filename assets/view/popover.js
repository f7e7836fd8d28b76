// What was thought of one token: shown while the pointer or the focus rests on it.

import { el, fill } from "./dom.js";
import { spell } from "./symbols.js";
import { depths, isTree } from "./tree.js";

const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;

export class Popover {
  #words;

  constructor(words) {
    this.#words = words;
    this.root = el("div", { class: "sd-popover", role: "tooltip", id: `sd-pop-${Math.random().toString(36).slice(2)}` });
    this.root.hidden = true;
  }

  hide() {
    this.root.hidden = true;
    this.owner?.removeAttribute("aria-describedby");
    this.owner = null;
  }

  /**
   * Show for a token's element, inside `frame`.
   * lossy: the method keeps more than the target would say; clear: an element that must not be covered, or null
   */
  show(token, step, piece, frame, { lossy, clear }) {
    if (this.owner === token) return;
    this.hide();
    this.owner = token;
    token.setAttribute("aria-describedby", this.root.id);
    this.root.replaceChildren(...this.#content(step, piece, lossy));
    this.root.hidden = false;
    place(this.root, token, frame, clear);
  }

  #content(step, { value, status, node, count }, lossy) {
    const words = this.#words;
    const title = el("p", { class: "sd-pop-title" });
    const shown = el("span", { class: "sd-pop-token" });
    shown.textContent = count ? value.text.trim() : spell(value.text ?? "") || words.part_of_character;
    const state = el("span", { class: `sd-pop-status sd-key-${status}` });
    state.textContent = words.status[status] ?? status;
    title.append(shown, state);
    const sentence = el("p", { class: "sd-pop-why" });
    sentence.textContent = count ? fill(words.explain.folded, { count }) : explain(words, value, status, lossy);
    if (count) return [title, sentence];
    const rows = el("dl", { class: "sd-pop-rows" });
    const add = (name, number, bar) => {
      const label = el("dt");
      label.textContent = name;
      const cell = el("dd");
      const text = el("span");
      text.textContent = number;
      cell.append(text);
      if (bar !== undefined) cell.append(el("i", { class: `sd-bar ${bar.kind}`, style: `--share:${bar.share}` }));
      rows.append(label, cell);
    };
    const share = (name, number, kind) => {
      if (number !== undefined && number !== null) add(name, percent(number), { share: number, kind });
    };
    share(words.target_prob, value.target_prob, "sd-bar-target");
    share(words.draft_prob, value.draft_prob, "sd-bar-draft");
    share(words.accept_prob, value.accept_prob, "sd-bar-accept");
    if (value.draw !== undefined && value.draw !== null) add(words.draw, value.draw.toFixed(3), undefined);
    const place = node < 0 ? words.place_next : isTree(step.nodes) ? words.place_tree : words.place_draft;
    add(words.place, fill(place, { step: step.index + 1, node: node + 1, depth: depths(step.nodes)[node] }));
    return [title, sentence, rows];
  }
}

function explain(words, value, status, lossy) {
  if (lossy && words.explain_lossy[status]) return words.explain_lossy[status];
  const known = value.draw !== undefined && value.accept_prob !== undefined;
  const sentence = words.explain[known ? `${status}_drawn` : status] ?? words.explain[status] ?? "";
  return fill(sentence, { draw: value.draw?.toFixed(2), accept: value.accept_prob?.toFixed(2) });
}

function place(box, token, frame, clear) {
  const outer = frame.getBoundingClientRect();
  const rects = token.getClientRects();
  const inner = rects[rects.length - 1] ?? token.getBoundingClientRect();
  const { width, height } = box.getBoundingClientRect();
  const free = clear?.getBoundingClientRect();
  const beside = free && free.left - outer.left > width + 8;
  const wanted = beside ? free.left - outer.left - width - 8 : inner.left - outer.left;
  const left = Math.min(Math.max(4, wanted), Math.max(4, outer.width - width - 4));
  const below = inner.bottom - outer.top + 6;
  const above = (beside || !free ? inner : free).top - outer.top - height - 6;
  const roomBelow = innerHeight - inner.bottom > height + 12 && (beside || !free);
  box.style.left = `${left}px`;
  box.style.top = `${beside ? Math.max(4, Math.min(inner.top - outer.top, outer.height - height - 4)) : roomBelow || above < 0 ? below : above}px`;
}
