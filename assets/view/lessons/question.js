// A question to predict first: choose or drag, then reveal the answer with its evidence, read off a recorded run.

import { button as anyButton, el } from "../parts/dom.js";
import { fill } from "../core/sentence.js";
import { two } from "../core/metrics.js";

/**
 * @import { Words } from "../parts/page"
 * @import { Answer, Question as Asked } from "./lesson"
 * @typedef {{ announce(sentence: string): void, done(): void, show(step: number): void }} Act
 */

export const CLOSE = 0.1; // of the scale: a guess nearer than this is called close

let made = 0; // for ids that are unique on the page

/**
 * question: of `curriculum.js`; words: of the question; common: words of all questions
 * reveal(): a promise of { answer, values, bars, step }, rejected with an Error whose message is a sentence
 * act: { announce(sentence), done(), show(step) }
 */
export class Question {
  #question;
  #words;
  #common;
  #act;
  /** @type {string | number} */
  #guess = "";

  /** @param {Asked} question @param {{ words: Words, common: Words, reveal(): Promise<Answer>, act: Act }} how */
  constructor(question, { words, common, reveal, act }) {
    this.#question = question;
    this.#words = words;
    this.#common = common;
    this.#act = act;
    this.id = `sd-question-${(made += 1)}`;
    this.button = button(common.reveal, () => this.#reveal(reveal), "sd-reveal-button");
    this.button.disabled = true;
    this.hint = el("span", { class: "sd-question-hint" }, common.first);
    this.answer = el("div", { class: "sd-reveal", hidden: true });
    this.form = el("fieldset", { class: "sd-question" }, el("legend", {}, words.ask),
      question.scale ? this.#scale(question.scale) : this.#choices(), el("div", { class: "sd-question-foot" }, this.button, this.hint));
    this.root = el("div", { class: "sd-question-box" }, this.form, this.answer);
  }

  #choices() {
    const rows = (this.#question.options ?? []).map((option) => {
      const radio = el("input", { type: "radio", name: this.id, value: option, onchange: () => this.#guessed(option) });
      return el("label", { class: "sd-option" }, radio, el("span", {}, this.#words.options[option]));
    });
    return el("div", { class: "sd-options" }, ...rows);
  }

  /** @param {NonNullable<Asked["scale"]>} scale */
  #scale({ min, max, step }) {
    const middle = min + Math.round((max - min) / 2 / step) * step;
    const slider = el("input", { type: "range", min, max, step, value: middle, "aria-label": this.#words.ask, "aria-valuetext": this.#common.no_guess });
    const shown = el("output", { class: "sd-scale-guess" }, this.#common.no_guess);
    slider.addEventListener("input", () => {
      shown.textContent = this.#number(Number(slider.value));
      slider.setAttribute("aria-valuetext", shown.textContent);
      this.#guessed(Number(slider.value));
    });
    return el("div", { class: "sd-scale" }, el("span", {}, String(min)), slider, el("span", {}, String(max)), shown);
  }

  /** @param {number} value */
  #number = (value) => fill(this.#words.value, { value: Number.isInteger(value) ? value : two(value) });

  #guessed(/** @type {string | number} */ guess) {
    this.#guess = guess;
    this.button.disabled = false;
    this.hint.hidden = true;
  }

  async #reveal(/** @type {() => Promise<Answer>} */ reveal) {
    this.button.disabled = true;
    try {
      this.#show(await reveal());
    } catch (error) {
      this.button.disabled = false;
      this.answer.replaceChildren(el("p", { class: "sd-lesson-problem", role: "alert" }, error instanceof Error ? error.message : String(error)));
      this.answer.hidden = false;
    }
  }

  /** @param {Answer} answer */
  #show({ answer, values, bars = [], step }) {
    const common = this.#common;
    const exact = this.#question.runs?.length === 0;
    const { scale } = this.#question;
    const verdict = scale ? this.#judgedNumber(Number(answer), scale) : this.#judgedChoice(answer ?? "");
    const evidence = fill(this.#words.evidence, values);
    const origin = el("span", { class: "sd-badge sd-badge-recorded" }, exact ? common.exact : common.recorded);
    const judged = el("p", { class: "sd-lesson-verdict", tabindex: "-1" }, verdict);
    this.answer.replaceChildren(judged,
      ...(scale ? [this.#marks(Number(answer), scale)] : []),
      el("p", { class: "sd-evidence" }, evidence, " ", origin), ...this.#bars(bars));
    if (step !== undefined) {
      this.answer.append(button(fill(common.show, { step: step + 1 }), () => this.#act.show(step), "sd-lesson-quiet"));
    }
    this.answer.hidden = false;
    this.form.querySelectorAll("input").forEach((input) => (input.disabled = true));
    this.button.hidden = true;
    judged.focus({ preventScroll: true }); // read first; the button that had the focus is gone
    this.#act.announce(evidence);
    this.#act.done();
  }

  #judgedChoice(/** @type {string | number} */ answer) {
    const names = this.#words.options;
    for (const radio of this.form.querySelectorAll("input")) {
      const { classList } = /** @type {Element} */ (radio.closest(".sd-option"));
      classList.toggle("sd-option-true", radio.value === answer);
      classList.toggle("sd-option-false", radio.value === this.#guess && radio.value !== answer);
    }
    const right = this.#guess === answer;
    return fill(right ? this.#common.right : this.#common.wrong, { guess: names[this.#guess], answer: names[answer] });
  }

  /** @param {number} answer @param {NonNullable<Asked["scale"]>} scale */
  #judgedNumber(answer, { min, max }) {
    const guess = Number(this.#guess);
    const close = Math.abs(answer - guess) <= CLOSE * (max - min);
    return fill(close ? this.#common.close : this.#common.off, { guess: this.#number(guess), answer: this.#number(answer) });
  }

  /** Guess and answer on one line: a hollow ring and a filled bar. @param {number} answer @param {NonNullable<Asked["scale"]>} scale */
  #marks(answer, { min, max }) {
    const place = (/** @type {number} */ value) => `left: ${100 * Math.max(0, Math.min(1, (value - min) / (max - min)))}%`;
    /** @param {string} kind @param {number} value */
    const mark = (kind, value) => el("span", { class: `sd-mark-${kind}`, style: place(value) });
    return el("div", { class: "sd-marks", "aria-hidden": "true" },
      el("div", { class: "sd-marks-line" }, mark("guess", Number(this.#guess)), mark("answer", answer)),
      el("p", {}, el("i", { class: "sd-mark-guess" }), this.#common.your_guess, el("i", { class: "sd-mark-answer" }), this.#common.the_run));
  }

  #bars(/** @type {NonNullable<Answer["bars"]>} */ bars) {
    if (!bars.length) return [];
    const rows = bars.map(({ values, option, share, marked }) => {
      const sentence = fill(this.#words.bar, { ...values, option: this.#words.options?.[option ?? ""] });
      const bar = el("i", { class: "sd-lesson-bar", style: `--share: ${share}`, "aria-hidden": "true" });
      return el("li", { class: marked ? "sd-marked" : "" }, el("span", {}, sentence), bar);
    });
    return [el("ul", { class: "sd-lesson-bars" }, ...rows)];
  }
}

/** A button as all of the lessons are. @param {string} label @param {() => void} act @param {string} [name] */
export const button = (label, act, name = "") => anyButton(label, act, { class: `sd-lesson-button ${name}`.trim() });
