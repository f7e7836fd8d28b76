// The buttons that move a player, each with its icon.

import { el, svg } from "./dom.js";

/** @type {Record<string, string>} */
const ICONS = {
  start: "M3 3h2v10H3zM13 3v10L6 8z",
  back_round: "M8 3v10L2 8zM14 3v10L8 8z",
  back: "M11 3v10L4 8z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  forward: "M5 3v10l7-5z",
  round: "M2 3v10l6-5zM8 3v10l6-5z",
  rejection: "M2 3v10l6-5zM9.2 5.2l1-1L12 6l1.8-1.8 1 1L13 7l1.8 1.8-1 1L12 8l-1.8 1.8-1-1L11 7z",
  end: "M11 3h2v10h-2zM3 3v10l7-5z",
};

/** @param {string} name @param {string} label @param {() => void} act */
export function moveButton(name, label, act) {
  const icon = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
  icon.append(svg("path", { d: ICONS[name] }));
  return el("button", { type: "button", class: `sd-move sd-move-${name}`, "aria-label": label, title: label, onclick: act }, icon);
}

/** Let a button show another icon and label. @param {HTMLButtonElement} button @param {string} name @param {string} label */
export function paintMove(button, name, label) {
  if (button.title === label) return;
  button.setAttribute("aria-label", label);
  button.title = label;
  button.querySelector("path")?.setAttribute("d", ICONS[name]);
}
