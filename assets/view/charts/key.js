// The key of a chart: a small drawing of each look, and what it stands for.

import { el, svg } from "../parts/dom.js";

/** @import { Look } from "./figure" */

/** A small drawing of a look, for a key. @param {Look} look */
export function sample({ shape, colour, width, dash, symbol }) {
  const drawing = svg("svg", { width: 20, height: 10, class: "sd-sample", style: `color: var(--sd-${colour})`, "aria-hidden": "true" });
  if (shape === "line") drawing.append(svg("line", { x1: 0, x2: 20, y1: 5, y2: 5, "stroke-width": width, "stroke-dasharray": dash ?? "none" }));
  else if (shape !== "caps") drawing.append(svg("rect", { x: 5.5, y: 0.5, width: 9, height: 9, fill: shape === "bar" ? "currentColor" : "none" }));
  if (shape === "caps") drawing.append(svg("path", { d: "M0 6h8M11 7l4.5-4l4.5 4", "stroke-width": width }));
  if (shape === "hatch") drawing.append(svg("path", { d: "M6 5 L10 1 M6 9 L14 1 M10 9 L14 5" }));
  if (shape === "dots") drawing.append(svg("path", { d: "M8 3h1 M11 3h1 M8 6h1 M11 6h1", "stroke-width": 1.5 }));
  if (symbol) drawing.append(svg("path", { d: SYMBOLS[symbol], fill: "currentColor" }));
  return drawing;
}

const SYMBOLS = { circle: "M7 5a3 3 0 1 0 6 0a3 3 0 1 0-6 0", square: "M7 2h6v6h-6z", diamond: "M10 1l4 4l-4 4l-4-4z" };

/** The entries of a key, from a list of [look or null, text]. @param {[Look | null, string][]} entries */
export const keyItems = (entries) => entries.map(([look, text]) => el("li", {}, ...(look ? [sample(look)] : []), text));
