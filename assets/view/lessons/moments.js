// The moments of the lessons: what each shows of a recorded run, and the box that it is shown in.

import { judged, judgedSteps, two } from "../core/metrics.js";
import { fold, laneText } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { depthOf } from "../core/tree.js";
import { el } from "../parts/dom.js";
import { lastRun } from "../play/runs.js";
import { passSeconds, tokenIds, withPrompt } from "./evidence.js";
import { button } from "./question.js";

/** @import { Header, Lane } from "../core/state" */
/** @import { Words } from "../parts/page" */
/** @import { Lanes, LessonRun, Moment } from "./lesson" */
/** @import { Runs } from "./evidence" */

// ---- What several moments are made of: bars with a label, a text that is said and shown, and time that passes

/** A labelled bar: `show(sentence, share)`. @param {string} [kind] of its colour */
export function bar(kind = "") {
  const label = el("span");
  const filled = el("i", { class: `sd-lesson-bar ${kind}`.trim(), "aria-hidden": "true" });
  return {
    root: el("li", {}, label, filled),
    /** @param {string} sentence @param {number} share */
    show(sentence, share) {
      label.textContent = sentence;
      filled.style.setProperty("--share", String(Math.max(0, Math.min(1, share))));
    },
  };
}

/** @param {...{ root: HTMLElement }} all */
export const bars = (...all) => el("ul", { class: "sd-lesson-bars sd-moment-bars" }, ...all.map(({ root }) => root));

/** A slider with its label and its value. @param {string} label @param {{ min: number, max: number, value: number }} range @param {(value: number) => void} moved */
export function slider(label, { min, max, value }, moved) {
  const input = el("input", { type: "range", min, max, step: 1, value });
  const shown = el("output", {}, String(value));
  input.addEventListener("input", () => {
    shown.textContent = input.value;
    moved(Number(input.value));
  });
  return el("label", { class: "sd-moment-slider" }, el("span", {}, label), input, shown);
}

/** The end of what stands before something, on one line. @param {string} text */
export const tail = (text) => (text.length > 90 ? `… ${text.slice(-90).replace(/^\S{0,20}\s+/, "")}` : text).replaceAll("\n", " ↵ ");

/**
 * Paint the share of the time that has passed, 0 to 1, until it is over; at once where motion is not wanted.
 * returns: a way to end it early
 * @param {number} milliseconds @param {(share: number) => void} paint
 */
export function pass(milliseconds, paint) {
  const begun = performance.now();
  let frame = 0;
  const step = () => {
    const share = Math.min(1, (performance.now() - begun) / milliseconds);
    paint(share);
    if (share < 1) frame = requestAnimationFrame(step);
  };
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) paint(1);
  else step();
  return () => cancelAnimationFrame(frame);
}

// ---- The box of a moment: its title, where its numbers come from, and what it shows once its runs are read

/**
 * words: of all lessons; name: of the lesson; known: the recorded runs that there are
 * It is shown anew whenever it comes into view after another run was made on this page.
 * @param {Moment} moment
 * @param {{ words: Words, name: string, runs: Runs, known: Record<string, LessonRun>, announce: (sentence: string) => void }} how
 */
export function momentBox(moment, { words, name, runs, known, announce }) {
  const own = words.moments[name];
  const badge = el("span", { class: "sd-badge" });
  const stage = el("div", { class: "sd-moment-stage" });
  const root = el("section", { class: "sd-moment", "aria-label": own.title },
    el("h3", {}, own.title, " ", badge), el("p", {}, own.intro), ...moment.runs.map((run) => el("p", { class: "sd-asked" }, withPrompt(words.moments.prompt, known[run]))), stage);
  /** @type {ReturnType<typeof lastRun> | undefined} */
  let shown;
  const show = async () => {
    const events = lastRun();
    if (events === shown) return;
    shown = events;
    try {
      const lanes = await Promise.all(moment.runs.map((run) => runs.lanes(run)));
      const { plain, speculative: fast } = events ? fold(events).lanes : {};
      stage.replaceChildren(...moment.show(lanes, {
        words: own, methods: words.view.methods, last: events && { plain, fast }, known, announce,
        lanes: (run) => runs.lanes(run),
        from(origin) {
          badge.textContent = words.moments.origins[origin];
          badge.className = `sd-badge sd-badge-${origin}`;
        },
      }));
    } catch (error) {
      shown = undefined; // so that coming back asks again
      stage.replaceChildren(el("p", { class: "sd-moment-problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
    }
  };
  new IntersectionObserver(([seen]) => seen.isIntersecting && show()).observe(root);
  return root;
}

// ---- As many passes as tokens beside one pass over all of them, in the time that they take, slowed

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

// ---- A recorded run, priced as if every draft had ended sooner: what a shorter chain or a smaller tree would have given

/**
 * For drafts of at most 1, 2 ... nodes: what a step gives and costs, on average.
 *
 * tokens: kept and the target's own; cost: in plain passes; drafted, kept: tokens of all steps; speedup: tokens over cost
 * A cut draft keeps what was kept of its nodes: their order is the one in which they were drafted. A pass costs what
 * was measured for its rows, a level of the draft what it took on average. The steps begin where they were recorded.
 *
 *     nodes   0 accepted   1 accepted   2 rejected      cut at 1: keeps node 0, and the target's own token is 1's
 * @param {Lane} lane
 */
export function cuts(lane) {
  const steps = judgedSteps(lane).filter(({ nodes }) => nodes.length);
  const sum = (/** @type {(step: (typeof steps)[number]) => number} */ of) => steps.reduce((total, step) => total + of(step), 0);
  const level = sum(({ draftSeconds }) => draftSeconds) / sum(({ nodes }) => depthOf(nodes));
  const most = Math.max(...steps.map(({ nodes }) => nodes.length));
  return Array.from({ length: most }, (_, i) => {
    const limit = i + 1;
    const kept = sum(({ path }) => path.filter((node) => node < limit).length);
    const drafted = sum(({ nodes }) => Math.min(limit, nodes.length));
    const seconds = sum(({ nodes }) => level * depthOf(nodes.slice(0, limit)) + passSeconds(lane.header, 1 + Math.min(limit, nodes.length)));
    const tokens = 1 + kept / steps.length;
    const cost = seconds / steps.length / passSeconds(lane.header, 1);
    return { limit, tokens, cost, drafted, kept, speedup: tokens / cost };
  });
}

/** @param {string} run @returns {Moment} */
const cutting = (run) => ({
  runs: [run],
  show([{ fast }], { words, from }) {
    from("modelled");
    const all = cuts(fast);
    const best = all.reduce((one, other) => (other.speedup > one.speedup ? other : one));
    const most = { tokens: Math.max(...all.map(({ tokens, cost }) => Math.max(tokens, cost))), speedup: best.speedup };
    const [tokens, cost, speedup] = [bar("sd-moment-kept"), bar("sd-moment-cost"), bar()];
    const told = el("p", { class: "sd-moment-told", "aria-live": "polite" });
    const paint = (/** @type {number} */ limit) => {
      const one = all[limit - 1];
      tokens.show(fill(words.tokens, { tokens: two(one.tokens) }), one.tokens / most.tokens);
      cost.show(fill(words.cost, { cost: two(one.cost) }), one.cost / most.tokens);
      speedup.show(fill(words.speedup, { speedup: two(one.speedup) }), one.speedup / most.speedup);
      told.textContent = fill(words.told, { kept: one.kept, drafted: one.drafted, wasted: one.drafted - one.kept, best: best.limit, speedup: two(best.speedup) });
    };
    paint(all.length);
    return [slider(words.limit, { min: 1, max: all.length, value: all.length }, paint), bars(tokens, cost, speedup), told];
  },
});

export const chainCut = cutting("06-too-far");
export const treeCut = cutting("04-tree");

// ---- Where the seconds go: plain and drafted decoding on this machine, a token at a time

/** Milliseconds of a lane for each of its tokens, and what they go to. @param {Lane} lane */
export function perToken(lane) {
  const each = (/** @type {number} */ seconds) => (1000 * seconds) / lane.tokens;
  return {
    whole: each(lane.elapsed), draft: each(lane.draftSeconds), verify: each(lane.verifySeconds),
    other: each(Math.max(0, lane.elapsed - lane.draftSeconds - lane.verifySeconds)),
  };
}

const PARTS = /** @type {const} */ (["verify", "draft", "other"]);

/** @type {Moment} */
export const timeOfToken = {
  runs: ["06-too-far"],
  show([recorded], { words, methods, last, from }) {
    const own = last?.plain?.tokens && last.fast?.tokens ? { plain: last.plain, fast: last.fast } : null;
    const { plain, fast } = own ?? recorded;
    from(own ? "measured" : "recorded");
    const lanes = [plain, fast].map((lane) => ({ lane, each: perToken(lane) }));
    const most = Math.max(...lanes.map(({ each }) => each.whole));
    const rows = lanes.map(({ lane, each }) => {
      const parts = PARTS.map((part) => el("i", { class: `sd-moment-part sd-moment-${part}`, style: `width: ${(100 * each[part]) / most}%` }));
      const name = methods[lane.header.method] ?? lane.header.method;
      const numbers = Object.fromEntries(Object.entries(each).map(([key, value]) => [key, two(value)]));
      return el("li", {}, el("span", {}, fill(words.lane, { method: name, seconds: two(lane.elapsed), tokens: lane.tokens, ...numbers })),
        el("div", { class: "sd-moment-stack", "aria-hidden": "true" }, ...parts));
    });
    const key = el("p", { class: "sd-moment-key", "aria-hidden": "true" }, ...PARTS.flatMap((part) => [el("i", { class: `sd-moment-${part}` }), words.parts[part]]));
    const ratio = lanes[0].each.whole / lanes[1].each.whole;
    const told = fill(ratio >= 1 ? words.faster : words.slower, { ratio: two(ratio >= 1 ? ratio : 1 / ratio), machine: fast.header.machine ?? "–" });
    return [el("ul", { class: "sd-lesson-bars sd-moment-bars" }, ...rows), key, el("p", { class: "sd-moment-told" }, told), el("p", {}, own ? words.own : words.recorded)];
  },
};

// ---- One text from every method: all recorded runs at temperature 0, compared token by token with plain decoding

/** The recorded runs to compare: one of each method, without sampling, by their names. @param {Record<string, LessonRun>} known */
export function comparable(known) {
  /** @type {Map<string, string>} */
  const names = new Map();
  for (const [name, { settings }] of Object.entries(known)) {
    if (settings.method !== "nothing" && !settings.sampling?.temperature && !names.has(settings.method)) names.set(settings.method, name);
  }
  return [...names.values()];
}

/** What a run shows: its method, text, tokens and steps, and how many of its first tokens are plain decoding's. @param {Lanes} lanes */
export function likeness({ plain, fast }) {
  const [one, other] = [tokenIds(plain), tokenIds(fast)];
  const parted = other.findIndex((id, i) => id !== one[i]);
  return { method: fast.header.method, text: laneText(plain), tokens: other.length, steps: judged(fast), same: parted < 0 ? other.length : parted };
}

/** @type {Moment} */
export const sameText = {
  runs: [],
  show(_, { words, methods, known, lanes, from, announce }) {
    from("recorded");
    const names = comparable(known);
    const groups = el("div");
    const told = el("p", { class: "sd-moment-told" }, words.none);
    /** @type {Map<string, HTMLElement>} by text */
    const lists = new Map();
    const start = button(fill(words.compare, { count: names.length }), async () => {
      start.disabled = true;
      let equal = 0;
      for (const [i, name] of names.entries()) {
        const { method, text, tokens, steps, same: alike } = likeness(await lanes(name));
        const list = lists.get(text) ?? bars();
        if (!lists.has(text)) groups.append(el("blockquote", { class: "sd-moment-quote" }, `${text.slice(0, 90).replaceAll("\n", " ↵ ")} …`, list));
        lists.set(text, list);
        const row = bar(alike === tokens ? "sd-moment-kept" : "sd-moment-cost");
        row.show(fill(words.row, { method: methods[method] ?? method, tokens, steps, same: alike }), steps / tokens);
        list.append(row.root);
        equal += alike === tokens ? 1 : 0;
        told.textContent = fill(words.told, { count: i + 1, texts: lists.size, equal });
      }
      start.hidden = true;
      announce(told.textContent ?? "");
    }, "sd-lesson-main");
    return [start, told, groups];
  },
};

// ---- Whether a draft that learns is kept more often as it goes: shares of a run's parts, and whether its ends differ

const FIFTHS = 5;

/**
 * Shares of drafted tokens that were kept, of as many parts of a run's steps: { from, to, kept, drafted, error }.
 * error: the share's standard error, from step to step, as the tokens of one draft are kept or lost together
 * @param {Lane} lane @param {number} parts
 */
export function shares(lane, parts) {
  const steps = judgedSteps(lane).filter(({ nodes }) => nodes.length);
  return Array.from({ length: parts }, (_, i) => {
    const part = steps.slice(Math.round((i * steps.length) / parts), Math.round(((i + 1) * steps.length) / parts));
    const kept = part.reduce((sum, { path }) => sum + path.length, 0);
    const drafted = part.reduce((sum, { nodes }) => sum + nodes.length, 0);
    const squares = part.reduce((sum, { path, nodes }) => sum + (path.length - (nodes.length * kept) / drafted) ** 2, 0);
    const error = Math.sqrt((squares * part.length) / Math.max(1, part.length - 1)) / drafted;
    return { from: part[0]?.index ?? 0, to: part.at(-1)?.index ?? 0, kept, drafted, error };
  });
}

/**
 * How a run's last part differs from its first: "rises", "falls", or "unclear" within two standard errors of the difference.
 * @typedef {{ kept: number, drafted: number, error: number }} Part
 * @param {Part} first @param {Part} last
 */
export function trend(first, last) {
  const difference = last.kept / last.drafted - first.kept / first.drafted;
  const bound = 2 * Math.hypot(first.error, last.error);
  const name = Math.abs(difference) <= bound ? "unclear" : difference > 0 ? "rises" : "falls";
  return { name, bound };
}

/** @type {Moment} */
export const learning = {
  runs: ["15-online"],
  show([{ fast: recorded }], { words, last, from }) {
    const own = last?.fast?.header.method === "online" && last.fast.steps.length >= 2 * FIFTHS ? last.fast : null;
    from(own ? "measured" : "recorded");
    const all = shares(own ?? recorded, FIFTHS);
    const rows = all.map(({ from: first, to, kept, drafted }) => {
      const row = bar();
      row.show(fill(words.part, { from: first + 1, to: to + 1, kept, drafted, percent: two((100 * kept) / drafted) }), kept / drafted);
      return row;
    });
    const [early, late] = [all[0], all[FIFTHS - 1]].map(({ kept, drafted }) => kept / drafted);
    const { name, bound } = trend(all[0], all[FIFTHS - 1]);
    const told = fill(words[name], { early: two(100 * early), late: two(100 * late), bound: two(100 * bound) });
    return [bars(...rows), el("p", { class: "sd-moment-told" }, told), el("p", {}, own ? words.own : words.recorded)];
  },
};
