// Plotly's layout of a figure: on the page, where its titles stand beside it, and as a picture on paper.

import { CLEAR } from "./pen.js";

/** @import { Axis, Figure, Palette } from "./figure" */

const TICK = 12; // pixels of a tick's letters, where the style sheet says nothing

/** Pixels around the plotting area, for the ticks' letters; the horizontal title stands below it. @param {Palette} colours */
export function margins({ tick }) {
  const letters = Number(tick) || TICK;
  return { l: 3 * letters + 6, r: 10, t: 7, b: letters + 8 };
}

/**
 * Plotly's layout of a figure, in the colours of the theme and without motion.
 * figure: { x, y } and perhaps y2, which stands below y: Plotly's axes, { title, range, ... }; shapes, annotations
 * The titles are left to the page: to measure texts is most of what a drawing costs.
 * @param {Palette} colours @param {Pick<Figure, "x" | "y" | "y2" | "shapes" | "annotations">} figure
 */
export function layout(colours, { x, y, y2, shapes = [], annotations = [] }) {
  const size = Number(colours.tick) || TICK;
  /** @param {Axis} axis */
  const axis = ({ title: _, ...rest }) => ({
    gridcolor: colours.grid, linecolor: colours.line, zeroline: false, fixedrange: true,
    tickfont: { size }, tickangle: 0, ticklabeloverflow: "allow", ...rest,
  });
  return {
    margin: margins(colours),
    paper_bgcolor: CLEAR,
    plot_bgcolor: CLEAR,
    font: { family: colours.font, size, color: colours.soft },
    hovermode: "x",
    hoverdistance: 40,
    hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { family: colours.font, color: colours.ink, size: 12 }, align: "left" },
    xaxis: { ...axis(x), showgrid: false, ...(y2 ? { anchor: "y2" } : {}) },
    yaxis: { ...axis(y), ...(y2 ? { domain: [0.56, 1] } : {}) },
    ...(y2 ? { yaxis2: { ...axis(y2), domain: [0, 0.44] } } : {}),
    showlegend: false,
    shapes,
    annotations,
  };
}

/**
 * A figure with its traces as it stands on paper: with a title, a legend and the names of its axes.
 * @param {Palette} colours @param {Figure} figure @param {string} title
 */
export function picture(colours, figure, title) {
  const drawn = layout(colours, figure);
  /** @param {"xaxis" | "yaxis" | "yaxis2"} name @param {Axis} axis */
  const titled = (name, { title: text }) => ({ [name]: { ...drawn[name], title: { text, font: { size: 12 } } } });
  return {
    data: figure.traces,
    layout: {
      ...drawn,
      ...titled("xaxis", figure.x),
      ...titled("yaxis", figure.y),
      ...(figure.y2 ? titled("yaxis2", figure.y2) : {}),
      title: { text: title, font: { size: 16, color: colours.ink }, x: 0.03, xanchor: "left", y: 0.97, yanchor: "top" },
      margin: { l: 62, r: 24, t: 84, b: 54 },
      paper_bgcolor: colours.card,
      showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    },
  };
}
