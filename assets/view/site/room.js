// A class guesses the next word of a recorded text: the phones' page, and the projector's, which shows the guesses beside the target's own choices.

import { bare, choices, spread, wordsOf } from "../core/guess.js";
import { two, writeNumbersIn } from "../core/metrics.js";
import { fetchFile } from "../core/recorded.js";
import { fold, laneText } from "../core/reducer.js";
import { fill } from "../core/sentence.js";
import { languageOf } from "../page/language.js";
import { table } from "../parts/blocks.js";
import { button as anyButton, el, qrCode, setText } from "../parts/dom.js";
import { frame, given } from "./frame.js";

/** @import { Lane } from "../core/state" */
/** @typedef {{ at: number, prompt: string, before: string, count: number, own: string | null, run: string, guesses: [string, number][], link: any }} State */

const said = given("sd-data");
const language = languageOf(location.search, navigator.language, Object.keys(said));
const words = said[language];
const query = new URLSearchParams(location.search);
const SURE = 0.9; // a word that the target is surer of than this is no riddle
const PHONE_MS = 2000;
const PROJECTOR_MS = 1000;
const LONGEST = 24; // characters of a guess, see ui/room.py

/** What the server answers; a sentence is thrown. @param {string} path @param {object} [body] @returns {Promise<any>} */
async function ask(path, body) {
  const answer = await fetch(`rooms${path}`, body && { method: "POST", body: JSON.stringify(body) }).catch(() => null);
  if (answer?.ok) return answer.json();
  throw new Error(words.refused[answer?.status ?? ""] ?? words.refused.other, { cause: answer?.status });
}

const problem = el("p", { class: "sd-problem", role: "alert", hidden: true });
const before = el("p", { class: "sd-room-text" });
const prompt = el("p", { class: "sd-asked" });
const told = el("p", { class: "sd-room-told", role: "status" });
const button = (/** @type {string} */ text, /** @type {() => void} */ act) => anyButton(text, act, { class: "sd-lesson-button sd-lesson-main" });

/** @param {State} state */
function showText(state) {
  setText(prompt, state.prompt);
  before.replaceChildren(state.before, state.own === null ? el("span", { class: "sd-room-gap" }, "?") : el("b", { class: "sd-moment-token sd-moment-accepted" }, state.own));
}

/** Do something, and say what is wrong if it fails. @template T @param {() => Promise<T>} act */
async function attempt(act) {
  try {
    const done = await act();
    problem.hidden = true;
    return done;
  } catch (error) {
    problem.textContent = error instanceof Error ? error.message : String(error);
    problem.hidden = false;
  }
}

/** Do something again and again until it returns true, less often while nobody sees the page. @param {number} milliseconds @param {() => Promise<unknown>} act */
async function repeat(milliseconds, act) {
  if ((await attempt(act)) !== true) setTimeout(() => repeat(milliseconds, act), document.hidden ? 10 * milliseconds : milliseconds);
}

// ---- The phone: a code, a word, and what became of it

/** Ask for the code of a room. wrong: a code without one @param {string} [wrong] */
function join(wrong) {
  const box = el("input", { type: "text", name: "room", maxlength: 4, value: wrong, class: "sd-moment-words", "aria-label": words.code, placeholder: words.code, autocomplete: "off" });
  // What the form sends replaces the address's query, so its button keeps the language.
  const send = el("button", { name: "lang", value: language, class: "sd-lesson-button sd-lesson-main" }, words.join);
  const form = el("form", { class: "sd-room sd-room-form sd-moment" }, box, send);
  frame(words, form, ...(wrong ? [el("p", { class: "sd-problem", role: "alert" }, words.refused[404])] : []));
  box.select();
}

function phone(/** @type {string} */ code) {
  const id = sessionStorage.getItem("sd-phone") ?? crypto.getRandomValues(new Uint32Array(3)).join("-");
  sessionStorage.setItem("sd-phone", id);
  const box = el("input", { type: "text", maxlength: LONGEST, class: "sd-moment-words", "aria-label": words.ask, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const form = el("form", { class: "sd-room-form", onsubmit: (event) => {
    event.preventDefault();
    const word = wordsOf(box.value)[0]?.trim();
    if (word) attempt(async () => {
      await ask(`/${code}/guess`, { phone: id, word });
      guess = word;
      told.textContent = fill(words.sent, { word });
    });
  } }, el("h3", {}, words.ask), box, el("button", { class: "sd-lesson-button sd-lesson-main" }, words.send));
  let guess = "";
  let shown = "";
  frame(words, el("section", { class: "sd-room sd-lessons sd-moment" }, prompt, before, form, told, problem));
  repeat(PHONE_MS, async () => {
    /** @type {State} */
    const state = await ask(`/${code}`).catch((error) => {
      if (shown || error.cause !== 404) throw error;
    });
    if (!state) {
      join(code);
      return true;
    }
    const now = `${state.at} ${state.own}`;
    if (now === shown) return;
    const first = !shown;
    shown = now;
    showText(state);
    form.hidden = state.own !== null;
    if (first && state.own === null) return; // a word that was typed or sent before stays
    if (state.own === null) guess = box.value = "";
    const right = bare(guess) === bare(state.own ?? "");
    told.textContent = state.own === null ? "" : fill(guess ? (right ? words.kept : words.rejected) : words.none, { word: guess, own: state.own });
    told.classList.toggle("sd-room-kept", state.own !== null && right);
  });
}

// ---- The projector: the link, how many have guessed, and their guesses beside the target's probabilities

async function projector(/** @type {string} */ code, /** @type {string} */ key) {
  const page = `${location.origin}${location.pathname}`;
  /** @type {State} */
  let state = await ask(`/${code}/projector`, { key, page });
  const { link } = state;
  const lane = await plainOf(state.run);
  const all = wordsOf(laneText(lane));
  const score = { kept: 0, rounds: 0 };
  const box = el("div", { class: "sd-three-box" });
  const count = el("p", { class: "sd-room-count", role: "status" });
  const show = button(words.show, () => act({ show: true }));
  const next = button(words.next, () => act({ at: riddle(lane, all, state.at + 1) }));
  const aside = el("aside", {}, el("div", { class: "sd-qr" }, qrCode(link.qr, words.qr)), el("p", { class: "sd-room-code" }, code), el("p", {}, link.address));
  if (link.command) aside.replaceChildren(el("p", { class: "sd-problem" }, fill(words.unreachable, link)), el("p", { class: "sd-room-code" }, code));

  const draw = () => {
    showText(state);
    const shown = state.own !== null;
    count.textContent = fill(words.count, state);
    show.hidden = shown;
    next.hidden = !shown;
    box.replaceChildren();
    told.textContent = "";
    const known = choices(lane, all.slice(0, state.at));
    if (!known || state.own === null) return;
    const { rows, total, overlap } = spread(known, state.own, state.guesses);
    const share = (/** @type {number} */ of) => (total ? of / total : 0);
    const cell = (/** @type {number} */ of, /** @type {string} */ text) => el("td", { style: `--share: ${of}` }, text);
    box.append(table(words.columns, rows.map((row) => [
      row.kept ? el("b", { class: "sd-moment-token sd-moment-accepted" }, row.word) : row.word || words.others,
      cell(row.prob ?? 0, two(row.prob)), cell(share(row.count), `${two(share(row.count))} (${row.count})`),
    ]), { class: "sd-moment-table" }));
    const kept = rows.find((row) => row.kept)?.count ?? 0;
    told.textContent = total ? fill(words.told, { own: state.own, kept, count: total, overlap: two(overlap), score_kept: score.kept, score_rounds: score.rounds }) : words.nobody;
  };
  const act = (/** @type {object} */ wish) => attempt(async () => {
    state = await ask(`/${code}/projector`, { key, ...wish });
    if ("show" in wish && state.guesses.length) {
      score.rounds += 1;
      score.kept += Number(bare(state.guesses[0][0]) === bare(state.own ?? ""));
    }
    draw();
  });
  frame(words, el("section", { class: "sd-room sd-room-projector sd-lessons sd-moment" }, aside,
    el("div", {}, prompt, before, count, el("div", { class: "sd-three-buttons" }, show, next), told, box, problem)));
  draw();
  repeat(PROJECTOR_MS, async () => {
    const { count: now } = await ask(`/${code}/projector`, { key }); // it keeps the room open
    setText(count, fill(words.count, { count: now }));
  });
}

const plainOf = async (/** @type {string} */ run) => /** @type {Lane} */ (fold((await fetchFile(run)) ?? []).lanes.plain);

/** The next word from a place on that the target is not sure of; from the beginning again where there is none. @param {Lane} lane @param {string[]} all @param {number} from */
function riddle(lane, all, from) {
  const places = all.map((_, i) => i).filter((i) => i > 4 && (choices(lane, all.slice(0, i))?.own.prob ?? 1) < SURE);
  return places.find((i) => i >= from) ?? places[0] ?? 1;
}

async function begin(/** @type {string} */ run) {
  const lane = await plainOf(run);
  const { code, key } = await ask("", { run, at: riddle(lane, wordsOf(laneText(lane)), Number(query.get("at") ?? 0)) });
  history.replaceState(null, "", `?room=${code}&lang=${language}#${key}`);
  await projector(code, key);
}

document.documentElement.lang = language;
writeNumbersIn(language);
frame(words, problem);
const code = (query.get("room") ?? "").toUpperCase();
const key = location.hash.slice(1);
const run = query.get("run");
if (run) attempt(() => begin(run));
else if (code && key) attempt(() => projector(code, key));
else if (code) phone(code);
else join();
