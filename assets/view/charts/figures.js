// The charts of a run by name, each in a file of its own. A new one goes into this table.

import { forecast } from "./figures/forecast.js";
import { history } from "./figures/history.js";
import { lookahead } from "./figures/lookahead.js";
import { position } from "./figures/position.js";
import { rate } from "./figures/rate.js";
import { speedup } from "./figures/speedup.js";
import { time } from "./figures/time.js";

/**
 * The charts by name: (run, words, colours) gives
 * { traces, x, y, y2, shapes, annotations }, see `layout` of axes.js, and
 *
 * looks    how each series looks, by name
 * names    the key: look -> text; note: what stands after it
 * shared   whether its horizontal axis is the one that the charts share
 * label    what is read out instead
 * empty    a sentence where there is nothing to draw, else ""
 * table()  { heads, rows } of texts
 * place(i) the stretch of the horizontal axis that step i takes, or null
 */
export const FIGURES = { lookahead, rate, speedup, position, time, forecast, history };

export const NAMES = Object.keys(FIGURES);

/** The entries of a figure's key. */
export const keyOfFigure = ({ looks, names, note }) => [
  ...Object.entries(names).map(([name, text]) => [looks[name], text]),
  ...(note ? [[null, note]] : []),
];
