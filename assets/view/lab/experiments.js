// What was tried on the real model: a perfect draft, a random one, and taking tokens back. The measured points go to the lab's chart.

import { decimals, two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { problemBlock, table } from "../parts/blocks.js";
import { el, follow, setText } from "../parts/dom.js";

/**
 * @import { Given, Words } from "../parts/page"
 * @import { RealCase, Tried, TriedLane, TriedPoints } from "./types"
 * @typedef {ReturnType<typeof byLookahead>[number]} TriedRow
 */
// DSpark's two words, as in wrong_rules.py, which runs them.
const TARGET = [0.7, 0.3];
const DRAFT = [0.5, 0.5];
const UNLIKELY = 0.8;
const STEADY = 1.15; // plain decoding before and after may differ by this factor

/**
 * Draw the experiments in `element`; `read()` gives them as one JSON object, see `specdemo/ui/lab.py`.
 * @param {HTMLElement} element @param {Given} given
 */
export function mountExperiments(element, given) {
  const words = given.words.tried;
  const live = el("div", { class: "sd-hidden", "aria-live": "polite" });
  const cards = el("div", { class: "sd-tried-cards" });
  element.replaceChildren(el("div", { class: "sd-lab sd-tried" }, cards, live));
  follow(given, (/** @type {Record<string, Tried | undefined>} */ tried) => {
    cards.replaceChildren(chainCard("perfect", tried.perfect, words), chainCard("random", tried.random, words), lookBackCard(tried.look_back, words));
    const running = Object.values(tried).find((one) => one?.state === "running" || one?.state === "waiting");
    setText(live, running ? standing(running, words) : "");
    document.dispatchEvent(new CustomEvent("sd-lab-tried", { detail: ["perfect", "random"].flatMap((name) => pointsOf(name, tried[name])) }));
  });
}

/** @param {string} name @param {Tried | undefined} tried @returns {TriedPoints[]} */
function pointsOf(name, tried) {
  const points = byLookahead(tried?.lanes ?? []).flatMap(({ lookahead, speedup }) => (speedup === null ? [] : [{ lookahead, speedup }]));
  return tried?.lanes?.length ? [{ name, verify: tried.verify, points }] : [];
}

/** Runs with a draft, each beside plain decoding: `lanes` of lookahead 0 are plain runs, and count together. @param {TriedLane[]} lanes */
export function byLookahead(lanes) {
  const plain = lanes.filter((lane) => !lane.lookahead);
  const sum = (/** @type {"seconds" | "tokens"} */ name) => plain.reduce((total, lane) => total + lane[name], 0);
  const rate = sum("seconds") ? sum("tokens") / sum("seconds") : null;
  return lanes.filter((lane) => lane.lookahead).map((lane) => ({
    ...lane,
    perStep: lane.tokens / lane.steps,
    rate: lane.tokens / lane.seconds,
    speedup: rate && lane.tokens / lane.seconds / rate,
    cost: rate && (lane.verify_seconds / lane.steps) * rate,
    plain: rate,
  }));
}

/** @param {"perfect" | "random"} name @param {Tried | undefined} tried @param {Words} words */
function chainCard(name, tried, words) {
  const own = words[name];
  const rows = byLookahead(tried?.lanes ?? []);
  const parts = [...head(own, tried, words)];
  if (tried && rows.length) parts.push(laneTable(rows, words.table), ...sentences(name, tried, rows, words).map(hint));
  return el("section", { class: `sd-lab-card sd-tried-${name}` }, ...parts);
}

/** @param {TriedRow[]} rows @param {Words} words */
function laneTable(rows, words) {
  const heads = ["lookahead", "kept", "tokens", "rate", "speedup"].map((name) => words[name]);
  const body = rows.map((row) => [String(row.lookahead), `${row.accepted} / ${row.drafted}`, two(row.perStep), two(row.rate), `${two(row.speedup)}×`]);
  return table(heads, [[words.plain, "–", "1", two(rows[0].plain), "1×"], ...body], { class: "sd-lab-table", "aria-label": words.label });
}

/** @param {"perfect" | "random"} name @param {Tried} tried @param {TriedRow[]} rows @param {Words} words */
function sentences(name, { lanes = [], precision, state }, rows, words) {
  const own = words[name];
  const out = [];
  if (state === "done" || state === "stopped") {
    const row = name === "perfect" ? rows.reduce((one, other) => (Number(other.speedup) > Number(one.speedup) ? other : one)) : rows[rows.length - 1];
    out.push(fill(own.done, { speedup: two(row.speedup), lookahead: row.lookahead, tokens: two(row.perStep), cost: two(row.cost), plain: two(row.plain) }));
  }
  if (name === "perfect") {
    const drafted = rows.reduce((total, row) => total + row.drafted, 0);
    const refused = drafted - rows.reduce((total, row) => total + row.accepted, 0);
    const relearned = rows.filter((row) => row.retold).map((row) => row.lookahead);
    if (relearned.length) out.push(fill(own.retold, { lookaheads: relearned.join(", ") }));
    out.push(refused ? fill(own.refused, { refused, drafted, precision }) : own.kept);
  } else {
    const worst = rows.reduce((one, other) => (other.same / other.tokens < one.same / one.tokens ? other : one));
    out.push(worst.same === worst.tokens ? own.same : fill(own.differs, { same: worst.same, all: worst.tokens, precision }));
  }
  const [first, last] = lanes.filter((lane) => !lane.lookahead).map((lane) => lane.tokens / lane.seconds);
  if (last && Math.max(first / last, last / first) > STEADY) out.push(fill(words.unsteady, { first: two(first), last: two(last) }));
  const runs = Math.max(...lanes.map((lane) => lane.runs));
  if (runs > 1) out.push(fill(words.shared, { runs }));
  return out;
}

/** @param {Tried | undefined} tried @param {Words} words */
function lookBackCard(tried, words) {
  const own = words.look_back;
  const parts = [...head(own, tried, words), hint(fill(own.toy, { target: two(TARGET[0]), draft: two(DRAFT[0]) }))];
  const exact = {
    target: TARGET,
    stop: firstWord(TARGET, DRAFT, UNLIKELY, { looksBack: false }),
    back: firstWord(TARGET, DRAFT, UNLIKELY, { looksBack: true }),
  };
  parts.push(el("div", { class: "sd-toy" }, ...Object.entries(exact).map(([name, [share]]) => bar(own, name, share, tried?.toy?.[name]))));
  if (tried?.real) parts.push(...real(tried.real, own));
  else if (tried?.state === "done") parts.push(hint(own.no_draft));
  return el("section", { class: "sd-lab-card sd-tried-look_back" }, ...parts);
}

// One scheduler: how often the first word comes, exactly and by running, against the target's own share.
/** @param {Words} own @param {string} name @param {number} share @param {{ share: number, runs: number, p: number } | undefined} run */
function bar(own, name, share, run) {
  const parts = [fill(own.exact, { share: decimals(share, 2) })];
  if (run) parts.push(fill(own.measured, { share: decimals(run.share, 2), runs: run.runs }), fill(own.p, { p: run.p < 1e-6 ? "< 0.000001" : `= ${two(run.p)}` }));
  return el("div", { class: `sd-toy-row sd-toy-${name}` },
    el("span", { class: "sd-toy-name" }, own.rows[name]),
    el("span", { class: "sd-toy-bar", style: `--share: ${share}; --target: ${TARGET[0]}` }),
    el("span", { class: "sd-toy-text" }, parts.join(" · ")));
}

/** @param {RealCase} how @param {Words} own */
function* real({ positions, threshold, moved, most, kept, before, tokens }, own) {
  yield hint(fill(own.real, { positions, threshold: two(threshold), moved: two(100 * moved), most: two(100 * most), kept: kept < 1e-4 ? own.nothing : `${two(100 * kept)} %` }));
  yield el("p", { class: "sd-toy-where" }, own.worst, " ", el("q", {}, `…${before}`));
  yield table(own.columns, tokens.map(({ text, target, taken }) => [el("span", { class: "sd-toy-token" }, text), two(target), two(taken)]), { class: "sd-lab-table" });
}

/** @param {Words} own @param {Tried | undefined} tried @param {Words} words */
function* head(own, tried, words) {
  yield el("h3", {}, own.title, " ", tried?.state ? el("span", { class: "sd-tag sd-tag-measured" }, words.tag) : "");
  yield hint(own.why);
  if (!tried) return;
  const sentence = standing(tried, words);
  if (sentence) yield el("p", { class: `sd-waits sd-tried-state sd-tried-${tried.state}` }, sentence);
  if (tried.state === "running") yield el("progress", { max: 1, value: tried.done, "aria-label": sentence });
  if (tried.error) yield problemBlock(tried.error);
}

/** @param {Tried} tried @param {Words} words */
function standing({ state, said, place }, words) {
  if (place) return place;
  const what = said ? fill(words.said[said.name] ?? "", { ...said }) : "";
  return fill(words.state[state] ?? "", { said: what });
}

const hint = (/** @type {string} */ text) => el("p", { class: "sd-lab-hint" }, text);

// ---- What taking tokens back does to the distribution of the first word, exactly. Pure

/**
 * The exact distribution of the first word when drafting stops after an unlikely word, and when that word is then
 * taken back. A word is unlikely when the chance that it survives the target's test is below the threshold.
 * @param {number[]} target @param {number[]} draft @param {number} threshold @param {{ looksBack: boolean }} how
 */
export function firstWord(target, draft, threshold, { looksBack }) {
  const survival = target.map((p, word) => (draft[word] ? Math.min(1, p / draft[word]) : 1));
  const left = target.map((p, word) => Math.max(0, p - draft[word]));
  const rest = left.reduce((total, share) => total + share, 0);
  const shares = target.map(() => 0);
  draft.forEach((chance, word) => {
    const dropped = looksBack && survival[word] < threshold;
    const refused = chance * (1 - survival[word]);
    if (!dropped) shares[word] += chance * survival[word];
    shares.forEach((_, other) => {
      shares[other] += dropped ? chance * target[other] : refused && (refused * left[other]) / rest;
    });
  });
  return shares;
}
