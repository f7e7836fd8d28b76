// What a teacher takes home, made in the browser from what the page shows: worksheets, questions for an LMS, pictures for slides.

import { csv, save } from "../play/export.js";
import { FIGURES, NAMES, readRun } from "../charts/figures.js";
import { picture } from "../charts/plot.js";
import { judgedSteps, two } from "../core/metrics.js";
import { fold, pieces } from "../core/reducer.js";
import { fill, marked } from "../core/sentence.js";
import { LESSONS, runsOf } from "./curriculum.js";
import { Runs } from "./evidence.js";
import { Markup, qti21, tag, zipped } from "./qti.js";
import { CLOSE } from "./question.js";

/**
 * @import { Palette } from "../charts/figure"
 * @import { Line, State } from "../core/state"
 * @import { Words } from "../parts/page"
 * @import { Lanes, Lesson } from "./lesson"
 * @import { Child, Entry } from "./qti"
 * @typedef {{ runs: Record<string, unknown>, language: string, png?: boolean }} Given
 * @typedef {{ id: string, text: string }} Option
 * @typedef {{ min: number, max: number, low: number, high: number, value: number }} Range a number, and the answers that count as right
 * @typedef {{ id: string, ask: string, options: Option[], range: Range | null, answer: string, told: string, evidence: string, bars: string[] }} Asked
 * @typedef {{ id: string, place: number, lesson: Lesson, title: string, aim: string, text: string[], takeaway: string, questions: Asked[] }} Quiz
 * @typedef {{ chart: string, title: string, svg: string, png: Uint8Array | null }} Picture
 * @typedef {{ state: State, chart: Picture | undefined }} Shown what a lesson's sheet shows of its first run
 */
/**
 * All files of the pack that the lessons give. words: of all lessons; runs: those that are there, by name
 * Rejected with an Error whose message is a sentence where a recorded run cannot be read.
 * @param {Words} words @param {Given} given @returns {Promise<Entry[]>}
 */
export async function packFiles(words, { runs: known, language, png = true }) {
  const runs = new Runs(words, known);
  const quizzes = await readQuizzes(words, (name) => runs.lanes(name));
  /** @type {Record<string, Shown>} */
  const shown = {};
  /** @type {Entry[]} */
  const drawn = [];
  for (const { id, place, lesson } of quizzes) {
    const [name] = lesson.runs;
    const state = recordedState(await runs.items(name), String(words.lessons[id].runs[name].title));
    const all = await pictures(state, words.view, { png });
    for (const { chart, svg, png: pixels } of all) {
      drawn.push([`figures/${place}-${id}-${chart}.svg`, svg]);
      if (pixels) drawn.push([`figures/${place}-${id}-${chart}.png`, pixels]);
    }
    shown[id] = { state, chart: all.find(({ chart }) => chart === lesson.figure) };
  }
  const title = fill(words.pack.title, {});
  return [
    ["worksheets.html", sheets(quizzes, words, shown, { answers: false, language })],
    ["answers.html", sheets(quizzes, words, shown, { answers: true, language })],
    ["questions.csv", `\ufeff${quizTable(quizzes)}`],
    ["questions-qti-2.1.zip", zipped(qti21(quizzes, title, language))],
    ...drawn,
  ];
}

// What the page's server adds; a static site has no such server.
const SERVED = ["lessons-scorm-1.2.zip", "speculative_decoding.ipynb"];
const ROOT = /\/files\/\w+\/view\//.test(import.meta.url) ? new URL("../../../../../", import.meta.url) : null;

/** Save the pack as one file. @param {Words} words @param {Given} given @returns {Promise<number>} how many files */
export async function savePack(words, given) {
  const own = await packFiles(words, given);
  const added = await Promise.all((ROOT ? SERVED : []).map(async (name) => {
    const answer = await fetch(new URL(`class/${given.language}/${name}`, ROOT ?? undefined)).catch(() => null);
    return answer?.ok ? [/** @type {Entry} */ ([name, new Uint8Array(await answer.arrayBuffer())])] : [];
  }));
  const files = [...own, ...added.flat()];
  save(zipped(files), "application/zip", "specdemo-class-pack.zip");
  return files.length;
}

// ---- The lessons' questions with the answers that the recorded runs give: what worksheets, tests of an LMS and tables are made of

/**
 * All lessons. words: of all lessons; lanes: the two lanes of a recorded run; rejected where one cannot be read
 * @param {Words} words @param {(run: string) => Promise<Lanes>} lanes @returns {Promise<Quiz[]>}
 */
export function readQuizzes(words, lanes) {
  return Promise.all(LESSONS.map(async (lesson, place) => {
    const own = words.lessons[lesson.id];
    const questions = await Promise.all(lesson.questions.map(async (question) => {
      const runs = await Promise.all(runsOf(lesson, question).map(lanes));
      const said = own.questions[question.id];
      const { answer, values, bars = [] } = question.reveal(runs);
      const { scale, options = [] } = question;
      const number = scale ? Number(two(Number(answer))) : 0;
      const room = scale ? CLOSE * (scale.max - scale.min) : 0;
      return {
        id: `${lesson.id}-${question.id}`,
        ask: String(said.ask),
        options: options.map((id) => ({ id, text: String(said.options[id]) })),
        range: scale ? { min: scale.min, max: scale.max, low: rounded(Math.max(scale.min, number - room)), high: rounded(Math.min(scale.max, number + room)), value: number } : null,
        answer: scale ? String(number) : String(answer),
        told: scale ? fill(said.value, { value: two(Number(answer)) }) : String(said.options[String(answer)]),
        evidence: fill(said.evidence, values),
        bars: bars.map(({ values: each, option }) => fill(said.bar, { ...each, option: said.options?.[option ?? ""] })),
      };
    }));
    return { id: lesson.id, place: place + 1, lesson, title: String(own.title), aim: String(own.aim), text: [...own.text].map(String), takeaway: String(own.takeaway), questions };
  }));
}

const rounded = (/** @type {number} */ value) => Number(value.toFixed(3));

/** A table for a spreadsheet (RFC 4180), a line a question. @param {Quiz[]} quizzes */
export function quizTable(quizzes) {
  const heads = ["lesson", "title", "id", "question", "options", "answer", "from", "to", "evidence"];
  const rows = quizzes.flatMap(({ place, title, questions }) => questions.map(({ id, ask, options, range, told, evidence }) =>
    [place, title, id, ask, options.map(({ text }) => text).join(" | "), told, range?.low ?? "", range?.high ?? "", evidence]));
  return csv([heads, ...rows]);
}

// ---- The charts of the lessons' runs as pictures for slides and paper: black on white, told apart by line and shape alone

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
 * @param {State} state @param {Words} view @param {{ png: boolean }} how @returns {Promise<Picture[]>}
 */
async function pictures(state, view, { png }) {
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
    out.push({ chart, title, svg, png: png ? bytes(await Plotly.toImage(drawn, { ...SIZE, format: "png", scale: SLIDE })) : null });
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

// ---- Worksheets to print, without answers or with them: one HTML file that needs nothing else, in black on white

const TOKENS = 70; // of the run that a sheet shows
// What happened to a token is told by lines and boxes, so that a copier keeps it.
const STYLE = `
@page { size: A4; margin: 16mm 18mm; }
@media screen { body { max-width: 180mm; padding: 10mm; } }
body { font: 10.5pt/1.45 "IBM Plex Sans", system-ui, sans-serif; color: #000; background: #fff; margin: 0; }
section { break-before: page; } section:first-of-type { break-before: auto; }
h1 { font-size: 17pt; margin: 0 0 2mm; } h2 { font-size: 12pt; margin: 5mm 0 2mm; } p { margin: 0 0 2mm; }
.head { display: flex; justify-content: space-between; border-bottom: 1px solid #000; padding-bottom: 2mm; margin-bottom: 4mm; font-size: 9pt; }
.aim { font-style: italic; } dfn { font-style: italic; font-weight: 600; }
figure { margin: 3mm 0; break-inside: avoid; } figcaption { font-size: 8.5pt; } figure svg { width: 100%; height: auto; }
.text { border: 1px solid #666; padding: 3mm; white-space: pre-wrap; line-height: 1.9; }
.accepted { text-decoration: underline; text-underline-offset: 3px; } .rejected, .unreached { text-decoration: line-through; color: #555; }
.unreached { text-decoration-style: dotted; } .correction { border: 1.5px solid #000; padding: 0 2px; } .bonus { border: 3px double #000; padding: 0 2px; }
.question { break-inside: avoid; margin: 0 0 4mm; } ol { padding-left: 6mm; } .options { list-style: none; padding: 0; margin: 1mm 0; } .options li { margin: 1mm 0; }
.line { border-bottom: 1px solid #000; height: 7mm; } .answer { border-left: 3px solid #000; padding-left: 3mm; }
.foot { margin-top: 5mm; font-size: 8pt; } .takeaway { border: 1.5px solid #000; padding: 2mm 3mm; break-inside: avoid; }
`;

/**
 * words: of all lessons; shown: by lesson
 * @param {Quiz[]} quizzes @param {Words} words @param {Record<string, Shown>} shown @param {{ answers: boolean, language: string }} how
 */
export function sheets(quizzes, words, shown, { answers, language }) {
  const { pack } = words;
  const title = `specdemo: ${answers ? pack.answers : pack.worksheets}`;
  const head = tag("head", {}, tag("meta", { charset: "utf-8" }), tag("title", {}, title), tag("style", {}, new Markup(STYLE)));
  const body = tag("body", {}, ...quizzes.map((quiz) => sheet(quiz, words, shown[quiz.id], answers)));
  return `<!doctype html>\n${tag("html", { lang: language }, head, body).text}\n`;
}

/** @param {Quiz} quiz @param {Words} words @param {Shown} shown @param {boolean} answers */
function sheet({ place, title, aim, text, takeaway, questions }, words, { state, chart: shown }, answers) {
  const { pack } = words;
  const lane = state.lanes.speculative ?? state.lanes.plain;
  const { header } = /** @type {NonNullable<typeof lane>} */ (lane);
  const [left, right] = answers ? [pack.answers, ""] : [`${pack.name}: ${"_".repeat(28)}`, `${pack.date}: ${"_".repeat(12)}`];
  const run = tag("figure", {}, tag("div", { class: "text" }, ...tokens(state)),
    tag("figcaption", {}, `${fill(pack.run, { title: state.source.title, prompt: header.prompt })} ${pack.marks}`));
  const chart = shown ? [tag("figure", {}, new Markup(shown.svg.replace(/^<\?xml[^>]*>/, "")), tag("figcaption", {}, shown.title))] : [];
  return tag("section", {},
    tag("div", { class: "head" }, tag("span", {}, left), tag("span", {}, `specdemo · ${fill(words.place, { place, count: 8 })}   ${right}`)),
    tag("h1", {}, title), tag("p", { class: "aim" }, aim), ...(answers ? [] : text.map(paragraph)), run, ...chart,
    tag("h2", {}, pack.questions), tag("ol", {}, ...questions.map((question) => tag("li", { class: "question" }, ...asked(question, pack, answers)))),
    ...(answers ? [tag("div", { class: "takeaway" }, tag("b", {}, words.takeaway), tag("p", {}, takeaway))] : []),
    tag("p", { class: "foot" }, fill(pack.made, { machine: header.machine ?? "–", date: (header.started_at ?? "").slice(0, 10) })));
}

/** @param {Asked} question @param {Words} pack @param {boolean} answers @returns {Child[]} */
function asked({ ask, options, range, answer, told, evidence, bars }, pack, answers) {
  const choices = options.map((option) => tag("li", {}, `${answers && option.id === answer ? "☒" : "☐"} ${option.text}`));
  const scale = range ? [tag("p", {}, fill(pack.scale, range))] : [];
  const known = [
    tag("p", {}, tag("b", {}, `${told}.`), ...(range ? [` ${fill(pack.close, range)}`] : [])), tag("p", {}, evidence), ...bars.map((bar) => tag("p", {}, bar)),
  ];
  const room = [tag("p", {}, pack.why), tag("div", { class: "line" }, ""), tag("div", { class: "line" }, "")];
  return [
    tag("p", {}, tag("b", {}, ask)), ...(choices.length ? [tag("ul", { class: "options" }, ...choices)] : []), ...scale,
    ...(answers ? [tag("div", { class: "answer" }, ...known)] : room),
  ];
}

/** The first tokens of a run, each with what became of it. @param {State} state */
function tokens(state) {
  const steps = judgedSteps(state.lanes.speculative ?? state.lanes.plain);
  const all = steps.flatMap(pieces).filter(({ count }) => !count).slice(0, TOKENS);
  return all.flatMap(({ value, status, discarded }) => {
    const [, before, word, after] = /^(\s*)([^]*?)(\s*)$/.exec(value.text ?? "") ?? ["", "", "", ""];
    return [discarded ? " " : before, ...(word ? [tag("span", { class: status }, word)] : []), discarded ? "" : after];
  });
}

/** @param {string} sentence */
const paragraph = (sentence) => tag("p", {}, ...marked(sentence).map(([name, text]) => (name ? tag(name, {}, text) : text)));
