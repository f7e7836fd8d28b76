// Where the labels of the lab's chart stand clear of its lines and points. Pure.

/**
 * @import { Point, Priced, Shown } from "./types"
 * @typedef {{ left: number, right: number, top: number, bottom: number }} Box
 * @typedef {{ x: number, y: number, anchor: "start" | "middle" | "end", box: Box }} Place of a label: its base line, and what it covers
 * @typedef {{ x(drafted: number): number, y(value: number): number, frame: Box }} Scale
 */

const WIDE = 0.58; // of a letter, in its size
const SPARE = 3; // pixels around a mark

/** @param {Box} one @param {Box} other */
export const meets = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

/** @param {number} x @param {number} y @param {number} radius @returns {Box} */
const around = (x, y, radius) => ({ left: x - radius, right: x + radius, top: y - radius, bottom: y + radius });

/** Boxes along a line through some points. @param {number[][]} points */
export const along = (points) => points.slice(1).flatMap(([x, y], i) => {
  const [from, above] = points[i];
  const count = Math.max(1, Math.ceil(Math.hypot(x - from, y - above) / SPARE));
  return Array.from({ length: count + 1 }, (_, at) => around(from + ((x - from) * at) / count, above + ((y - above) * at) / count, SPARE));
});

/** What a chart's lines, points, star and handle cover. @param {Pick<Shown, "lines" | "points" | "chosen" | "best" | "most">} shown @param {Scale} scale */
export function marksOf({ lines, points, chosen, best, most }, { x, y, frame }) {
  const here = [x(chosen.drafted), y(chosen.speedup)];
  return [
    ...lines.flatMap(({ steps }) => along(steps.filter((one) => one.drafted <= most).map((one) => [x(one.drafted), y(one.speedup)]))),
    ...points.filter((one) => one.x <= most).map((one) => around(x(one.x), y(one.y), one.size + SPARE)),
    ...(best ? [around(x(best.drafted), y(best.speedup), 11), around(here[0], here[1], 8), ...along([here, [here[0], frame.bottom]])] : []),
  ];
}

/** The first place that meets no mark; where each meets some, the one that meets fewest. @param {Place[]} places @param {Box[]} marks */
export function freePlace(places, marks) {
  const met = places.map(({ box }) => marks.filter((mark) => meets(box, mark)).length);
  return places[met.indexOf(Math.min(...met))];
}

/** A label at a place. @param {string} text @param {number} size @param {{ x: number, y: number, anchor: Place["anchor"] }} at @returns {Place} */
function placed(text, size, { x, y, anchor }) {
  const width = WIDE * size * text.length;
  const left = x - { start: 0, middle: width / 2, end: width }[anchor];
  return { x, y, anchor, box: { left, right: left + width, top: y - 0.8 * size, bottom: y + 0.25 * size } };
}

/**
 * Places of two labels: of the line of plain decoding, below or above it, and of the best step, around it.
 * size: of their letters, in pixels
 * @param {Pick<Shown, "lines" | "points" | "chosen" | "best" | "most">} shown @param {Scale} scale
 * @param {{ even: string, best: string, size: number }} texts
 */
export function placeLabels(shown, scale, { even, best, size }) {
  const { x, y, frame } = scale;
  const marks = marksOf(shown, scale);
  const ends = Array.from({ length: 24 }, (_, i) => frame.right - (i * (frame.right - frame.left)) / 24);
  const inside = (/** @type {Place} */ { box }) => box.left >= frame.left && box.right <= frame.right + 12 && box.top >= 0 && box.bottom <= frame.bottom;
  const beside = [y(1) + size + 2, y(1) - 5, y(1) + 2.5 * size, y(1) - 1.7 * size, y(1) + 4 * size].flatMap((base) => ends.map((end) => placed(even, size, { x: end, y: base, anchor: "end" })));
  const line = freePlace(kept(beside, inside), marks);
  if (!shown.best) return { even: line, best: null };
  const [left, above] = [x(shown.best.drafted), y(shown.best.speedup)];
  /** @type {[Place["anchor"], number][]} */
  const anchors = [["middle", 0], ["end", -14], ["start", 14], ["start", -6], ["end", 6]];
  const rows = [-17, -33, 4, -49, 30, 46, 62, -65, 78, 94, 110];
  const near = rows.flatMap((by) => anchors.map(([anchor, aside]) => placed(best, size + 1, { x: left + aside, y: above + by, anchor })));
  return { even: line, best: freePlace(kept(near, inside), [...marks, line.box]) };
}

/** Those that are wanted, or all where none is. @template T @param {T[]} items @param {(item: T) => boolean} wanted */
const kept = (items, wanted) => (items.some(wanted) ? items.filter(wanted) : items);
