// The status of the model: a bar that fills while it loads, then a sentence.

import { el, follow } from "../parts/dom.js";

/** @import { Given } from "../parts/page" */
/** Draw the status in `element`. @param {HTMLElement} element @param {Given} given */
export function mountStatus(element, given) {
  const dot = el("span", { class: "sd-model-dot" });
  const text = el("span", { class: "sd-model-text" });
  const bar = el("span", { class: "sd-model-fill" });
  const track = el("span", { class: "sd-model-track", role: "progressbar", "aria-label": given.words.loading, "aria-valuemin": 0, "aria-valuemax": 100 }, bar);
  element.replaceChildren(el("div", { class: "sd-model", role: "status" }, dot, text, track));
  follow(given, (status) => {
    const loading = status.state === "loading";
    const known = typeof status.done === "number";
    const parts = [status.text, ...status.more ?? []].filter(Boolean);
    text.replaceChildren(...parts.flatMap((part, index) => [index ? ", " : "", el("span", {}, part)]));
    text.title = parts.join(", ");
    dot.hidden = loading;
    dot.style.display = loading ? "none" : "";
    dot.classList.toggle("sd-off", status.state === "failed");
    track.style.display = loading ? "" : "none";
    track.classList.toggle("sd-unknown", !known);
    if (known) {
      track.setAttribute("aria-valuenow", String(Math.round(100 * status.done)));
      bar.style.setProperty("--done", String(status.done));
    } else track.removeAttribute("aria-valuenow");
  });
}

// ---- The note under the menu of methods: a sentence or more, each of a kind that has its own look

/** Draw the note in `element`, a list of [kind, sentence]. @param {HTMLElement} element @param {Omit<Given, "words">} given */
export function mountNote(element, given) {
  const note = el("div", { class: "sd-note", "aria-live": "polite" });
  element.replaceChildren(note);
  /** @param {[string, string][]} parts */
  const draw = (parts) => note.replaceChildren(...parts.map(([kind, sentence]) => el("p", { class: `sd-note-${kind}` }, sentence)));
  follow(given, draw, "[]");
}
