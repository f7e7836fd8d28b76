// What several moments are made of: bars with a label, a text that is said and shown, and time that passes.

import { el } from "../../parts/dom.js";

/** A labelled bar: `show(sentence, share)`. @param {string} [kind] of its colour */
export function bar(kind = "") {
  const label = el("span");
  const fill = el("i", { class: `sd-lesson-bar ${kind}`.trim(), "aria-hidden": "true" });
  return {
    root: el("li", {}, label, fill),
    /** @param {string} sentence @param {number} share */
    show(sentence, share) {
      label.textContent = sentence;
      fill.style.setProperty("--share", String(Math.max(0, Math.min(1, share))));
    },
  };
}

/** @param {...{ root: HTMLElement }} all */
export const bars = (...all) => el("ul", { class: "sd-lesson-bars sd-moment-bars" }, ...all.map(({ root }) => root));

/** A slider with its label and its value. @param {string} label @param {{ min: number, max: number, value: number }} range @param {(value: number) => void} moved */
export function slider(label, { min, max, value }, moved) {
  const input = el("input", { type: "range", min, max, step: 1, value });
  const shown = el("output", {}, String(value));
  input.addEventListener("input", () => {
    shown.textContent = input.value;
    moved(Number(input.value));
  });
  return el("label", { class: "sd-moment-slider" }, el("span", {}, label), input, shown);
}

/** The end of what stands before something, on one line. @param {string} text */
export const tail = (text) => (text.length > 90 ? `… ${text.slice(-90)}` : text).replaceAll("\n", " ↵ ");

/**
 * Paint the share of the time that has passed, 0 to 1, until it is over; at once where motion is not wanted.
 * returns: a way to end it early
 * @param {number} milliseconds @param {(share: number) => void} paint
 */
export function pass(milliseconds, paint) {
  const begun = performance.now();
  let frame = 0;
  const step = () => {
    const share = Math.min(1, (performance.now() - begun) / milliseconds);
    paint(share);
    if (share < 1) frame = requestAnimationFrame(step);
  };
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) paint(1);
  else step();
  return () => cancelAnimationFrame(frame);
}
