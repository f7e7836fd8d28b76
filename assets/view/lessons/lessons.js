// Eight short lessons: a text, questions to predict, the recorded run they are read off, and the way to try it live.
//
// Knows nothing of the page around it. `read()` gives JSON: { runs: { name: { url, prompt, settings } }, live }
// where a url is relative to this file and `live` says whether there is a model to try it with.

import { LESSONS, liveState, runsOf } from "./curriculum.js";
import { el } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { fetchFile } from "../core/recorded.js";
import { applyState, remember } from "../core/permalink.js";
import { firstPlace, readProgress, saveProgress } from "./progress.js";
import { Question, button } from "./question.js";
import { Screen } from "./screen.js";
import { fold } from "../core/reducer.js";
import { ThreeWords } from "./threewords.js";


/** Build the lessons inside `element`; `words` holds the view's own as `view` and the policies' names as `policies`. */
export function mountLessons(element, { read, watch, words }) {
  const lessons = new Lessons(element, words);
  const take = () => lessons.take(JSON.parse(read() || "{}"));
  watch(take);
  take();
  remember("lesson", () => lessons.shown);
  return lessons;
}

class Lessons {
  #words;
  #progress = readProgress();
  #runs = new Map(); // name -> promise of its events
  #data = { runs: {}, live: false };
  #at = -1;
  asked = new Set(); // questions of this lesson that wait for an answer
  /** @type {Screen | null} */
  screen = null;

  constructor(element, words) {
    this.#words = words;
    this.live = el("div", { class: "sd-hidden", "aria-live": "polite" });
    this.list = el("ol", { class: "sd-lesson-list" });
    this.forget = button(words.forget, () => this.#forget(), "sd-lesson-quiet");
    this.article = el("article", { class: "sd-lesson" });
    this.root = el("div", { class: "sd-lessons" },
      el("nav", { "aria-label": words.list }, this.list, this.forget), this.article, this.live);
    this.items = LESSONS.map((lesson, place) => this.#item(lesson, place));
    this.list.append(...this.items.map(({ root }) => root));
    element.replaceChildren(this.root);
  }

  /** What there is to show; the place is the address's (?lesson=4), else where one was last. */
  take(data) {
    this.#data = { runs: {}, live: false, ...data };
    this.#runs.clear();
    this.open(this.#at >= 0 ? this.#at : firstPlace(this.#progress));
  }

  /** The lesson's number as an address has it; empty while nobody sees it. */
  get shown() {
    return this.root.getClientRects().length ? String(this.#at + 1) : "";
  }

  /** Show a lesson. place: 0 to 7; focus: its heading, for who came by a button */
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

  #build(lesson, place) {
    const words = this.#words;
    const own = words.lessons[lesson.id];
    this.heading = el("h2", { tabindex: "-1" }, own.title);
    this.asked = new Set(lesson.questions);
    const questions = lesson.questions.map((question) => this.#question(lesson, question, own));
    const [first, ...rest] = questions;
    const exercise = lesson.exercise ? [first.root, new ThreeWords(words.three, (sentence) => this.#say(sentence)).root] : [];
    this.article.replaceChildren(
      el("p", { class: "sd-lesson-place" }, fill(words.place, { place: place + 1, count: LESSONS.length })),
      this.heading, el("p", { class: "sd-lesson-aim" }, own.aim), ...own.text.map(rich), ...exercise,
      el("h3", {}, words.predict), ...(lesson.exercise ? rest : questions).map(({ root }) => root),
      this.#run(lesson, own), this.#liveBox(lesson, own),
      el("aside", { class: "sd-takeaway", "aria-label": words.takeaway }, el("b", {}, words.takeaway), el("p", {}, own.takeaway)),
      el("p", { class: "sd-lesson-papers" }, fill(words.papers, { papers: own.papers.join(", ") })), this.#turn(place));
  }

  #question(lesson, question, own) {
    return new Question(question, {
      words: own.questions[question.id],
      common: this.#words.question,
      reveal: async () => question.reveal(await Promise.all(runsOf(lesson, question).map((name) => this.#lanes(name)))),
      told: {
        say: (sentence) => this.#say(sentence),
        done: () => this.#answered(lesson, question),
        show: (step) => this.#showStep(runsOf(lesson, question)[0], step),
      },
    });
  }

  #answered(lesson, question) {
    this.asked.delete(question);
    if (this.asked.size || this.#progress.done.includes(lesson.id)) return;
    this.#progress.done.push(lesson.id);
    saveProgress(this.#progress);
    this.#paintList();
  }

  // The player: one for all lessons, which moves from one to the next.
  #run(lesson, own) {
    this.screen ??= new Screen(this.#words.view);
    this.picks = lesson.runs.map((name) => {
      const pick = button(own.runs[name].title, () => this.#showRun(name), "sd-lesson-pick");
      return { name, pick };
    });
    this.look = el("p", { class: "sd-lesson-look", id: "sd-lesson-look" });
    this.problem = el("p", { class: "sd-lesson-problem", role: "alert", hidden: true });
    const menu = el("div", { class: "sd-lesson-picks", role: "group", "aria-label": this.#words.runs }, ...this.picks.map(({ pick }) => pick));
    menu.hidden = lesson.runs.length < 2;
    this.#showRun(lesson.runs[0]);
    return el("section", { class: "sd-lesson-run" }, el("h3", {}, this.#words.run), menu, this.look, this.problem, this.screen.root);
  }

  async #showRun(name) {
    const lesson = LESSONS[this.#at];
    this.wanted = name;
    for (const { name: other, pick } of this.picks) pick.setAttribute("aria-pressed", String(other === name));
    this.look.textContent = this.#words.lessons[lesson.id].runs[name]?.look ?? "";
    this.problem.hidden = true;
    try {
      const items = await this.#items(name);
      if (this.wanted === name) this.screen?.show(name, items);
    } catch (error) {
      if (this.wanted !== name) return;
      this.problem.textContent = error instanceof Error ? error.message : String(error);
      this.problem.hidden = false;
      if (this.screen) this.screen.root.hidden = true;
    }
  }

  async #showStep(name, step) {
    await this.#showRun(name);
    this.screen?.view.seekStep(step);
    this.screen?.root.scrollIntoView({ block: "center" });
  }

  #items(name) {
    if (!this.#runs.has(name)) {
      const fetched = this.#fetch(name);
      this.#runs.set(name, fetched);
      fetched.catch(() => this.#runs.delete(name)); // so that the next attempt asks again
    }
    return this.#runs.get(name);
  }

  async #fetch(name) {
    const items = name in this.#data.runs ? await fetchFile(name) : null;
    if (!items) throw new Error(fill(this.#words.missing, { name }));
    return items;
  }

  async #lanes(name) {
    const { lanes } = fold(await this.#items(name));
    return { plain: lanes.plain, fast: lanes.speculative };
  }

  #liveBox(lesson, own) {
    const words = this.#words;
    const run = this.#data.runs[lesson.live.run];
    const told = el("p", { class: "sd-live-told", role: "status" });
    const box = el("section", { class: "sd-lesson-live" }, el("h3", {}, words.live), el("p", {}, own.live));
    if (!run) return box;
    const state = liveState(run, lesson.live.changes);
    const named = { ...state, method: words.view.methods[state.method] ?? state.method, policy: words.policies[state.policy] };
    const set = Object.entries(words.settings).filter(([name]) => named[name] !== undefined && named[name] !== false);
    const settings = set.map(([, sentence]) => fill(sentence, named)).join(" ");
    const label = this.#data.live ? words.try : words.copy;
    box.append(el("p", { class: "sd-live-settings" }, settings), button(label, () => this.#tryLive(state, told), "sd-lesson-main"), told);
    if (!this.#data.live) box.append(el("p", { class: "sd-live-settings" }, words.no_model));
    return box;
  }

  async #tryLive(state, told) {
    if (this.#data.live) {
      applyState({ tab: "play", ...state });
      return;
    }
    const copied = await navigator.clipboard?.writeText(state.prompt).then(() => true, () => false);
    told.textContent = fill(copied ? this.#words.copied : this.#words.not_copied, state);
  }

  #turn(place) {
    const words = this.#words;
    const to = (other, label) => {
      const title = LESSONS[other] ? words.lessons[LESSONS[other].id].title : "";
      const node = button(fill(label, { title }), () => this.open(other, { focus: true }));
      node.hidden = !title;
      return node;
    };
    return el("nav", { class: "sd-turn", "aria-label": words.turn }, to(place - 1, words.previous), to(place + 1, words.next));
  }

  #say(sentence) {
    this.live.textContent = sentence;
  }

  #forget() {
    this.#progress = { done: [], at: LESSONS[this.#at].id };
    saveProgress(this.#progress);
    this.open(this.#at, { focus: true });
  }
}

// A paragraph in which *a term at its first use* and `code` stand out.
function rich(sentence) {
  const node = el("p");
  for (const part of sentence.split(/(\*[^*]+\*|`[^`]+`)/)) {
    const tag = { "*": "dfn", "`": "code" }[part[0]];
    node.append(tag ? el(tag, {}, part.slice(1, -1)) : part);
  }
  return node;
}
