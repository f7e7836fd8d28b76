// As many passes as tokens beside one pass over all of them, in the time that they take, slowed.

import { two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { el } from "../../parts/dom.js";
import { passSeconds } from "../curriculum/evidence.js";
import { button } from "../question.js";
import { bar, bars, pass, slider } from "./pieces.js";

/**
 * @import { Header } from "../../core/state"
 * @import { Moment } from "./moment"
 */

const SLOWED = 10;

/** Milliseconds of so many passes over one row, and of one over so many rows. @param {Header} header @param {number} rows */
export const passTimes = (header, rows) => ({ apart: 1000 * rows * passSeconds(header, 1), together: 1000 * passSeconds(header, rows) });

/** @type {Moment} */
export const passes = {
  runs: ["05-plain"],
  show([{ plain: recorded }], { words, last, from, announce }) {
    const own = last?.fast ?? last?.plain;
    const { header } = own?.header.verify_costs?.length ? own : recorded;
    from(header === recorded.header ? "recorded" : "measured");
    const most = Math.max(...(header.verify_costs ?? []).map(([rows]) => rows));
    const [apart, together] = [bar(), bar("sd-moment-kept")];
    const told = el("p", { class: "sd-moment-told" });
    let rows = Math.min(8, most);
    let stop = () => {};
    const paint = (share = 1) => {
      const times = passTimes(header, rows);
      const now = share * times.apart;
      const read = now >= times.together ? rows : 0; // one pass judges all of them at its end
      apart.show(fill(words.apart, { rows, done: Math.floor(rows * share), milliseconds: two(times.apart) }), share);
      together.show(fill(words.together, { rows, done: read, milliseconds: two(times.together) }), Math.min(now, times.together) / times.apart);
      told.textContent = share < 1 ? "" : fill(words.told, { rows, ratio: two(times.apart / times.together) });
      if (share === 1) announce(told.textContent);
    };
    const run = () => {
      stop();
      stop = pass(SLOWED * passTimes(header, rows).apart, paint);
    };
    const choose = slider(words.rows, { min: 1, max: most, value: rows }, (value) => {
      stop();
      rows = value;
      paint();
    });
    paint();
    return [choose, bars(apart, together), button(fill(words.run, { slowed: SLOWED }), run, "sd-lesson-main"), told];
  },
};
