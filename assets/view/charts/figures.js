// The charts of a run by name, each in a file of its own. A new one goes into this table.

import { forecast } from "./figures/forecast.js";
import { history } from "./figures/history.js";
import { lookahead } from "./figures/lookahead.js";
import { position } from "./figures/position.js";
import { rate } from "./figures/rate.js";
import { speedup } from "./figures/speedup.js";
import { time } from "./figures/time.js";

/** @import { Figure, FigureOf, Look } from "./figure" */

/** @type {Record<string, FigureOf>} */
export const FIGURES = { lookahead, rate, speedup, position, time, forecast, history };

export const NAMES = Object.keys(FIGURES);

/** The entries of a figure's key. @param {Figure} figure @returns {[Look | null, string][]} */
export const keyOfFigure = ({ looks, names, note }) => {
  const entries = Object.entries(names).map(([name, text]) => /** @type {[Look | null, string]} */ ([looks[name], text]));
  return note ? [...entries, [null, note]] : entries;
};
