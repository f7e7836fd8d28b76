// The charts of the lessons' runs as pictures for slides and paper: black on white, told apart by line and shape alone.

import { picture } from "../../charts/axes.js";
import { FIGURES, NAMES } from "../../charts/figures.js";
import { readRun } from "../../charts/run.js";
import { fold } from "../../core/reducer.js";

/**
 * @import { Palette } from "../../charts/figure"
 * @import { Line, State } from "../../core/state"
 * @import { Words } from "../../parts/page"
 * @typedef {{ name: string, chart: string, title: string, svg: string, png: Uint8Array | null }} Picture
 */

/** @type {Palette} */
const INK = {
  font: "system-ui, sans-serif", ink: "#000", soft: "#222", line: "#666", grid: "#ddd", card: "#fff",
  accepted: "#000", rejected: "#666", correction: "#333", bonus: "#888", drafted: "#999",
};
const SIZE = { width: 900, height: 440 }; // pixels
const SLIDE = 2; // of a PNG

/** A recorded run as the charts take it. @param {Line[]} items @param {string} title @returns {State} */
export const recordedState = (items, title) => fold([{ type: "open", source: "recorded", key: "pack", title }, ...items]);

/**
 * All charts that have something to show of a run. png: as pixels too
 * @param {string} name @param {State} state @param {Words} view @param {{ png: boolean }} how @returns {Promise<Picture[]>}
 */
export async function pictures(name, state, view, { png }) {
  const Plotly = await loaded();
  const lane = state.lanes.speculative ?? state.lanes.plain;
  const run = readRun(state, "steps", { steps: (lane?.steps.at(-1)?.index ?? 0) + 1, seconds: lane?.elapsed ?? 0 });
  /** @type {Picture[]} */
  const out = [];
  for (const chart of NAMES) {
    const figure = FIGURES[chart](run, view.charts, INK, view.methods);
    if (figure.empty) continue;
    const title = `${view.charts.titles[chart]}: ${state.source.title} (${view.charts.origin.recorded})`;
    const drawn = picture(INK, figure, title);
    const svg = decodeURIComponent((await Plotly.toImage(drawn, { ...SIZE, format: "svg" })).replace(/^[^,]*,/, ""));
    out.push({ name, chart, title, svg, png: png ? bytes(await Plotly.toImage(drawn, { ...SIZE, format: "png", scale: SLIDE })) : null });
  }
  return out;
}

/** @param {string} address a data URL with base64 */
const bytes = (address) => Uint8Array.from(atob(address.replace(/^[^,]*,/, "")), (sign) => sign.charCodeAt(0));

// It is large and comes after the page.
async function loaded() {
  while (!globalThis.Plotly) await new Promise((next) => setTimeout(next, 50));
  return globalThis.Plotly;
}
