// Eight short lessons: a text, questions to predict, the recorded run they are read off, and the way to try it live.
//
// Knows nothing of the page around it. `read()` gives JSON: { runs: { name: { prompt, settings } }, live }
// where `live` says whether there is a model to try it with.

import { applyState, readState, remember } from "../core/permalink.js";
import { fill, marked } from "../core/sentence.js";
import { copyText, el, follow } from "../parts/dom.js";
import { LESSONS, firstPlace, liveState, readProgress, runsOf, saveProgress } from "./curriculum.js";
import { Runs, withPrompt } from "./evidence.js";
import { momentBox } from "./moments.js";
import { Question, button } from "./question.js";
import { Screen } from "./screen.js";
import { ThreeWords } from "./threewords.js";

/**
 * @import { PageState } from "../core/permalink"
 * @import { Given, Words } from "../parts/page"
 * @import { Lesson, LessonRun, Question as Asked } from "./lesson"
 * @typedef {{ runs: Record<string, LessonRun>, live: boolean }} Data
 */
/** Build the lessons inside `element`; `words` holds the view's as `view`, and `policies`. @param {HTMLElement} element @param {Given} given */
export function mountLessons(element, given) {
  const lessons = new Lessons(element, given.words);
  follow(given, (data) => lessons.take(data));
  remember("lesson", () => lessons.shown);
  addEventListener("popstate", () => lessons.follow());
  return lessons;
}

class Lessons {
  #words;
  #progress = readProgress();
  /** @type {Data} */
  #data = { runs: {}, live: false };
  #runs;
  #at = -1;
  /** @type {Set<Asked>} */
  asked = new Set(); // questions of this lesson that wait for an answer

  /** @param {HTMLElement} element @param {Words} words */
  constructor(element, words) {
    this.#words = words;
    this.#runs = new Runs(words, {});
    this.screen = new Screen(words);
    this.heading = el("h2", { tabindex: "-1" });
    this.live = el("div", { class: "sd-hidden", "aria-live": "polite" });
    this.list = el("ol", { class: "sd-lesson-list" });
    this.forget = button(words.forget, () => this.#forget(), "sd-lesson-quiet");
    this.print = button(words.print, () => print(), "sd-lesson-quiet");
    this.article = el("article", { class: "sd-lesson" });
    this.pack = button(words.pack.button, () => this.#takeHome(), "sd-lesson-quiet");
    this.pack.title = words.pack.hint;
    this.packed = el("p", { class: "sd-live-done", role: "status" });
    this.root = el("div", { class: "sd-lessons" },
      el("nav", { "aria-label": words.list }, this.list, this.forget, this.print, this.pack, this.packed), this.article, this.live);
    this.items = LESSONS.map((lesson, place) => this.#item(lesson, place));
    this.list.append(...this.items.map(({ root }) => root));
    element.replaceChildren(this.root);
  }

  /** What there is to show; the place is the address's (?lesson=4), else where one was last. @param {Partial<Data>} data */
  take(data) {
    this.#data = { runs: {}, live: false, ...data };
    this.#runs = new Runs(this.#words, this.#data.runs);
    this.open(this.#at >= 0 ? this.#at : firstPlace(this.#progress));
  }

  /** Show the lesson that the address names, if it is another one: one has gone back. */
  follow() {
    const place = readState(location.search).lesson ? firstPlace(this.#progress) : this.#at;
    if (place !== this.#at) this.open(place);
  }

  /** The lesson's number as an address has it; empty while nobody sees it. */
  get shown() {
    return this.root.getClientRects().length ? String(this.#at + 1) : "";
  }

  /** Show a lesson. place: 0 to 7; focus: its heading, for who came by a button @param {number} place @param {{ focus?: boolean }} [how] */
  open(place, { focus = false } = {}) {
    this.#at = place;
    this.#progress.at = LESSONS[place].id;
    saveProgress(this.#progress);
    this.#build(LESSONS[place], place);
    this.#paintList();
    if (!focus) return;
    this.heading.focus({ preventScroll: true });
    this.root.scrollIntoView({ block: "start" });
  }

  /** @param {Lesson} lesson @param {number} place */
  #item(lesson, place) {
    const tick = el("span", { class: "sd-tick", "aria-hidden": "true" });
    const done = el("span", { class: "sd-hidden" });
    const open = button("", () => this.open(place, { focus: true }), "sd-lesson-open");
    open.append(el("span", { class: "sd-lesson-number", "aria-hidden": "true" }, String(place + 1)),
      el("span", { class: "sd-lesson-name" }, this.#words.lessons[lesson.id].title), tick, done);
    return { root: el("li", {}, open), open, tick, done };
  }

  #paintList() {
    LESSONS.forEach(({ id }, place) => {
      const { open, tick, done } = this.items[place];
      const finished = this.#progress.done.includes(id);
      tick.textContent = finished ? "✓" : "";
      done.textContent = finished ? `, ${this.#words.done}` : "";
      if (place === this.#at) open.setAttribute("aria-current", "step");
      else open.removeAttribute("aria-current");
    });
    this.forget.hidden = !this.#progress.done.length;
  }

  /** @param {Lesson} lesson @param {number} place */
  #build(lesson, place) {
    const words = this.#words;
    const own = words.lessons[lesson.id];
    this.heading = el("h2", { tabindex: "-1" }, own.title);
    this.screen.open(this.#runs, lesson.runs, own.runs);
    this.asked = new Set(lesson.questions);
    const questions = lesson.questions.map((question) => this.#question(lesson, question, own));
    const [first, ...rest] = questions;
    const moments = Object.entries(lesson.moments).map(([name, moment]) => momentBox(moment, {
      words, name, runs: this.#runs, known: this.#data.runs, announce: (sentence) => this.#announce(sentence),
    }));
    const exercise = lesson.exercise ? [first.root, new ThreeWords(words.three, (sentence) => this.#announce(sentence)).root] : [];
    this.article.replaceChildren(
      el("p", { class: "sd-lesson-place" }, fill(words.place, { place: place + 1, count: LESSONS.length })),
      this.heading, el("p", { class: "sd-lesson-aim" }, own.aim), ...own.text.map(rich), ...exercise,
      el("h3", {}, words.predict), ...(lesson.exercise ? rest : questions).map(({ root }) => root),
      ...moments, this.screen.root, liveBox(lesson, this.#data.runs[lesson.runs[0]], { words, own, live: this.#data.live }),
      el("aside", { class: "sd-takeaway", "aria-label": words.takeaway }, el("b", {}, words.takeaway), el("p", {}, own.takeaway)),
      papersOf(words.papers, own.papers), this.#turn(place));
  }

  /** @param {Lesson} lesson @param {Asked} question @param {Words} own */
  #question(lesson, question, own) {
    return new Question(question, {
      words: own.questions[question.id],
      common: this.#words.question,
      reveal: async () => question.reveal(await Promise.all(runsOf(lesson, question).map((name) => this.#runs.lanes(name)))),
      act: {
        announce: (sentence) => this.#announce(sentence),
        done: () => this.#answered(lesson, question),
        show: (step) => this.screen.showStep(runsOf(lesson, question)[0], step),
      },
    });
  }

  /** @param {Lesson} lesson @param {Asked} question */
  #answered(lesson, question) {
    this.asked.delete(question);
    if (this.asked.size || this.#progress.done.includes(lesson.id)) return;
    this.#progress.done.push(lesson.id);
    saveProgress(this.#progress);
    this.#paintList();
  }

  #turn(/** @type {number} */ place) {
    const words = this.#words;
    /** @param {number} other @param {string} label */
    const to = (other, label) => {
      const title = LESSONS[other] ? words.lessons[LESSONS[other].id].title : "";
      const node = button(fill(label, { title }), () => this.open(other, { focus: true }));
      node.hidden = !title;
      return node;
    };
    return el("nav", { class: "sd-turn", "aria-label": words.turn }, to(place - 1, words.previous), to(place + 1, words.next));
  }

  // The scripts of the pack come when they are asked for.
  async #takeHome() {
    const { pack } = this.#words;
    this.pack.disabled = true;
    this.packed.textContent = pack.making;
    try {
      const { savePack } = await import("./pack.js");
      const language = document.documentElement.lang || "en";
      const count = await savePack(this.#words, { runs: this.#data.runs, language });
      this.packed.textContent = fill(pack.done, { count });
    } catch (error) {
      this.packed.textContent = fill(pack.failed, { problem: error instanceof Error ? error.message : String(error) });
    }
    this.pack.disabled = false;
  }

  #announce(/** @type {string} */ sentence) {
    this.live.textContent = sentence;
  }

  #forget() {
    this.#progress = { done: [], at: LESSONS[this.#at].id };
    saveProgress(this.#progress);
    this.open(this.#at, { focus: true });
  }
}

/** A paragraph with its terms and its code. @param {string} sentence */
const rich = (sentence) => el("p", {}, ...marked(sentence).map(([tag, text]) => (tag ? el(tag, {}, text) : text)));

/** The papers of a lesson: one that begins with its arXiv number is a link. @param {string} label @param {Words} papers */
function papersOf(label, papers) {
  const items = papers.map((paper) => {
    const [, number, title] = /^(\d{4}\.\d{5}) (.+)$/.exec(paper) ?? [];
    const href = `https://arxiv.org/abs/${number}`;
    return el("li", {}, number ? el("a", { href, target: "_blank", rel: "noreferrer" }, title) : paper);
  });
  return el("section", { class: "sd-lesson-papers" }, el("h3", {}, label), el("ul", {}, ...items));
}

// ---- The way to try a lesson: the settings of a recorded run and the lesson's changes, on the Play tab or to copy

/**
 * words: of all lessons; own: of this one; live: whether there is a model to try it with
 * @param {Lesson} lesson @param {LessonRun | undefined} run @param {{ words: Words, own: Words, live: boolean }} how
 */
function liveBox(lesson, run, { words, own, live }) {
  const box = el("section", { class: "sd-lesson-live" }, el("h3", {}, words.live), el("p", {}, withPrompt(own.live, run)));
  if (!run) return box;
  const state = liveState(run, lesson.changes);
  /** @type {PageState} */
  const named = { ...state, method: words.view.methods[state.method] ?? state.method, policy: words.policies[state.policy] };
  const set = Object.entries(words.settings).filter(([name]) => named[name] !== undefined && named[name] !== false);
  const settings = set.map(([, sentence]) => fill(sentence, named)).join(" ");
  const done = el("p", { class: "sd-live-done", role: "status" });
  const act = live
    ? () => applyState({ tab: "play", ...state })
    : () => copyText(state.prompt, done, fill(words.copied, state), fill(words.not_copied, state));
  box.append(el("p", { class: "sd-live-settings" }, settings), button(live ? words.try : words.copy, act, "sd-lesson-main"), done);
  if (!live) box.append(el("p", { class: "sd-live-settings" }, words.no_model));
  return box;
}
