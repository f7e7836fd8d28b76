// How a race came out: the order, whether all wrote the same, and the table of it. Pure.

import { acceptRate, disturbed, secondsFor, speedup, tokensPerSecond, tokensPerStep, two } from "../core/metrics.js";
import { tokensOf } from "../core/reducer.js";
import { fill } from "../core/sentence.js";

/**
 * @import { Lane } from "../core/state"
 * @import { Words } from "../parts/page"
 * @typedef {ReturnType<typeof standings>} Standings
 * @typedef {Standings["rows"][number]} Standing
 * @typedef {{ title: string, lane: Lane }} Ran a lane that ran
 * @typedef {{ head: string[], body: string[][] }} Table
 */

/** @param {Lane | null | undefined} lane */
const whole = (lane) => (lane?.tokens && (lane.end === "stop" || lane.end === "length") ? lane : null);
/** @param {Lane | null | undefined} lane */
const isPlain = (lane) => lane?.header.method === "nothing";

/**
 * How a race came out. lanes: folded, null for one that did not run
 * The finish line is the last token that every lane has which ran to its end; rank and finish are null for the others.
 * @param {(Lane | null | undefined)[]} lanes
 */
export function standings(lanes) {
  const ran = lanes.map(whole);
  const lengths = ran.flatMap((lane) => lane?.tokens ?? []);
  const goal = lengths.length ? Math.min(...lengths) : null;
  const plain = lanes.find((lane) => isPlain(lane) && lane?.tokens) ?? null;
  const finishes = ran.map((lane) => (lane && goal !== null ? secondsFor(lane, goal) : null));
  /** @param {number | null} seconds */
  const rank = (seconds) => (seconds === null ? null : 1 + finishes.filter((other) => other !== null && other < seconds).length);
  const rows = lanes.map((lane, index) => ({
    index,
    plain: isPlain(lane),
    finish: finishes[index],
    rank: rank(finishes[index]),
    rate: tokensPerSecond(lane),
    speedup: plain ? speedup(plain, lane) : null,
    disturbed: lane !== plain && lane?.header.target?.precision === plain?.header.target?.precision && disturbed(plain, lane),
    perPass: lane ? tokensPerStep(lane) : null,
    kept: lane ? acceptRate(lane) : null,
    seconds: lane?.tokens ? lane.elapsed : null,
    tokens: lane?.tokens ?? 0,
  }));
  return { goal, plain: Boolean(plain), most: Math.max(0, ...rows.map((row) => row.tokens)), rows };
}

/**
 * By how much the first lane won, as a sentence: before plain decoding where that ran, else before the next lane.
 * Empty where nobody was behind. words: of the part
 * @param {string[]} titles @param {Pick<Standings, "rows">} standings @param {Words} words
 */
export function margin(titles, { rows }, words) {
  const ended = rows.flatMap(({ index, plain, finish }) => (finish === null ? [] : [{ title: titles[index], plain, finish }]));
  const [first, ...rest] = ended.sort((one, other) => one.finish - other.finish);
  const other = rest.find(({ plain }) => plain) ?? rest[0];
  const seconds = other ? other.finish - first.finish : 0;
  return seconds > 0 ? fill(words.margin, { first: first.title, other: other.title, seconds: two(seconds) }) : "";
}

/**
 * Index of the first token in which two lists differ, as far as both go; null when there is none.
 * @param {{ token_id: number }[]} one @param {{ token_id: number }[]} other
 */
export function parting(one, other) {
  const common = Math.min(one.length, other.length);
  for (let i = 0; i < common; i += 1) if (one[i].token_id !== other[i].token_id) return i;
  return null;
}

/**
 * Whether all wrote the same, and where not, as sentences. entries: { title, lane } of each lane that wrote something
 * @param {Ran[]} entries @param {Words} words
 */
export function compared(entries, words) {
  if (entries.length < 2) return [];
  const reference = entries.find(({ lane }) => isPlain(lane)) ?? entries[0];
  const right = tokensOf(reference.lane);
  const out = [];
  let parted = false;
  let equal = true;
  for (const entry of entries) {
    if (entry === reference) continue;
    const own = tokensOf(entry.lane);
    const place = parting(own, right);
    const named = { lane: entry.title, reference: reference.title };
    if (place !== null) {
      out.push(fill(words.parts, { ...named, place: place + 1, own: shown(own[place]), other: shown(right[place]) }));
      parted = true;
    } else if (own.length !== right.length) {
      out.push(fill(words.longer, { ...named, tokens: Math.min(own.length, right.length) }));
    } else continue;
    equal = false;
  }
  if (equal) return [fill(words.all, { tokens: right.length })];
  for (const { title, lane } of entries) if (lane.header.lossy) out.push(fill(words.lossy, { lane: title }));
  const precisions = new Set(entries.map(({ lane }) => lane.header.target?.precision));
  const sampled = (reference.lane.header.settings?.sampling?.temperature ?? 0) > 0;
  if (parted && precisions.size > 1) out.push(words.precisions);
  else if (parted && sampled) out.push(words.sampled);
  else if (parted && !precisions.has("fp32")) out.push(fill(words.greedy, { kernel: reference.lane.header.target?.kernel || "–" }));
  return out;
}

/** @param {{ text?: string }} token */
const shown = (token) => (token.text ?? "").replaceAll("\n", "↵") || "·";

/**
 * The cells of the table: a head and a row for each lane, the fastest first. words: of the part
 * @param {string[]} titles @param {Standings} standings @param {string} origin @param {Words} words
 */
export function tableOf(titles, { rows, plain }, origin, words) {
  const names = words.table;
  const order = [...rows].sort((one, other) => (one.rank ?? 9) - (other.rank ?? 9) || one.index - other.index);
  /** @param {number | null} share */
  const percent = (share) => (share === null ? "–" : fill(words.percent, { percent: two(100 * share) }));
  const head = [names.rank, names.lane, fill(names.rate, { origin }), names.speedup, names.per_pass, names.kept, names.seconds, names.tokens];
  const body = order.map((row) => [
    words.rank[row.rank ?? ""] ?? "–",
    titles[row.index],
    two(row.rate),
    row.disturbed ? words.disturbed : plain && row.speedup !== null ? fill(words.times, { speedup: two(row.speedup) }) : "–",
    two(row.perPass),
    percent(row.kept),
    two(row.seconds),
    String(row.tokens),
  ]);
  return { head, body };
}

/** A table as Markdown. @param {Table} table */
export function markdown({ head, body }) {
  /** @param {string[]} cells */
  const line = (cells) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  const rule = `|${head.map((_, i) => (i === 1 ? " --- " : " ---: ")).join("|")}|`;
  return [line(head), rule, ...body.map(line)].join("\n");
}
