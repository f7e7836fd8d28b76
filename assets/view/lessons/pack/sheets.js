// Worksheets to print, without answers or with them: one HTML file that needs nothing else, in black on white.

import { judgedSteps } from "../../core/series.js";
import { fill } from "../../core/sentence.js";
import { pieces } from "../../core/reducer.js";
import { Markup, tag } from "./xml.js";

/**
 * @import { State } from "../../core/state"
 * @import { Words } from "../../parts/page"
 * @import { Asked, Quiz } from "./quiz"
 * @import { Child } from "./xml"
 * @import { Picture } from "./figures"
 * @typedef {{ state: State, picture: Picture | undefined }} Shown what a lesson's sheet shows of its first run
 */

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
function sheet({ place, title, aim, text, takeaway, questions }, words, { state, picture }, answers) {
  const { pack } = words;
  const lane = state.lanes.speculative ?? state.lanes.plain;
  const { header } = /** @type {NonNullable<typeof lane>} */ (lane);
  const [left, right] = answers ? [pack.answers, ""] : [`${pack.name}: ${"_".repeat(28)}`, `${pack.date}: ${"_".repeat(12)}`];
  const run = tag("figure", {}, tag("div", { class: "text" }, ...marked(state)),
    tag("figcaption", {}, `${fill(pack.run, { title: state.source.title, prompt: header.prompt })} ${pack.marks}`));
  const chart = picture ? [tag("figure", {}, new Markup(picture.svg.replace(/^<\?xml[^>]*>/, "")), tag("figcaption", {}, picture.title))] : [];
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
function marked(state) {
  const steps = judgedSteps(state.lanes.speculative ?? state.lanes.plain);
  const all = steps.flatMap(pieces).filter(({ count }) => !count).slice(0, TOKENS);
  return all.flatMap(({ value, status, discarded }) => {
    const [, before, word, after] = /^(\s*)([^]*?)(\s*)$/.exec(value.text ?? "") ?? ["", "", "", ""];
    return [discarded ? " " : before, ...(word ? [tag("span", { class: status }, word)] : []), discarded ? "" : after];
  });
}

/** *A term at its first use* and `code` stand out. @param {string} sentence */
const paragraph = (sentence) => tag("p", {}, ...sentence.split(/(\*[^*]+\*|`[^`]+`)/).map((part) => {
  const name = part[0] === "*" ? "dfn" : part[0] === "`" ? "code" : "";
  return name ? tag(name, {}, part.slice(1, -1)) : part;
}));
