// A run as a picture to send: both texts next to each other at a moment of their clocks, as a PNG or as an animation.

import { headlineOf } from "../core/headline.js";
import { fill } from "../core/sentence.js";
import { judgedSteps } from "../core/metrics.js";
import { fold } from "../core/reducer.js";

/**
 * @import { Lane, Line } from "../core/state"
 * @import { Words } from "../parts/page"
 * @typedef {{ text: string, status: string, at: number, x: number, line: number }} Word a token on its line; at: milliseconds on its run's clock
 */
const WIDTH = 1200;
const HEIGHT = 630; // the size at which programs show the preview of a link
const EDGE = 48;
const TOP = 210; // of the two texts
const LINE = 34;
const LINES = Math.floor((HEIGHT - TOP - EDGE) / LINE);
const FONT = '24px "Source Sans 3", system-ui, sans-serif';
const PLAYED_MS = 8000; // of the animation, in which the whole run is written
const RESTS_MS = 2000;
const FRAME_MS = 80;
const SLICE_MS = 250; // of recorded data
const LATE_MS = 1000; // without data, after which all frames are recorded
const TYPES = ["video/webm", "video/mp4"];

export class Card {
  #words;
  #sentences;
  /** @type {Record<string, Word[]>} */
  #texts = {};
  #prompt = "";
  #sentence = "";
  #until = 0;

  /** words: of the dialog; sentences: the headlines of the page @param {Words} words @param {Record<string, string>} sentences */
  constructor(words, sentences) {
    this.#words = words;
    this.#sentences = sentences;
    this.canvas = document.createElement("canvas");
    Object.assign(this.canvas, { width: WIDTH, height: HEIGHT, className: "sd-run-card" });
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", words.picture);
  }

  /** Show the end of a run. @param {Line[]} events */
  show(events) {
    const state = fold(events);
    const { name, values } = headlineOf(state);
    this.#sentence = name ? fill(this.#sentences[name], values) : "";
    this.#prompt = Object.values(state.lanes)[0]?.header.prompt ?? "";
    const lanes = /** @type {[string, Lane][]} */ (Object.entries(state.lanes));
    this.#until = Math.max(1, ...lanes.map(([, lane]) => 1000 * lane.elapsed));
    this.#pen.font = FONT;
    const width = (WIDTH - 2 * EDGE) / Math.max(1, lanes.length) - EDGE / 2;
    this.#texts = Object.fromEntries(lanes.map(([lane, of]) => [lane, this.#lay(of, width)]));
    this.draw(Infinity);
  }

  /** Draw the run as it stood at a time. @param {number} time milliseconds on its clock */
  draw(time) {
    const pen = this.#pen;
    const style = getComputedStyle(document.body);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(`--sd-${name}`).trim() || "#59626c";
    const write = (/** @type {string} */ text, /** @type {string} */ font, /** @type {string} */ ink, /** @type {number} */ x, /** @type {number} */ y) => {
      Object.assign(pen, { font, fillStyle: colour(ink) });
      pen.fillText(text, x, y, WIDTH - EDGE - x);
    };
    pen.fillStyle = colour("card");
    pen.fillRect(0, 0, WIDTH, HEIGHT);
    write(time < this.#until ? this.#sentences.begin : this.#sentence, `650 38px ${FONT.slice(5)}`, "ink", EDGE, 74);
    write(shortened(this.#prompt, 84), FONT, "soft", EDGE, 122);
    write("specdemo", `20px ${FONT.slice(5)}`, "soft", EDGE, HEIGHT - 20);
    Object.entries(this.#texts).forEach(([lane, words], column, all) => {
      const left = EDGE + column * ((WIDTH - EDGE) / all.length);
      const shown = words.filter(({ at }) => at <= time);
      const seconds = Math.min(time, words.at(-1)?.at ?? 0) / 1000;
      const label = lane === "plain" ? this.#words.plain : this.#words.drafted;
      write(`${label} · ${seconds.toLocaleString(document.documentElement.lang || "en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} s`, `650 22px ${FONT.slice(5)}`, lane === "plain" ? "soft" : "accepted", left, TOP - 40);
      const hidden = Math.max(0, (shown.at(-1)?.line ?? 0) - LINES + 1); // lines that have gone up
      for (const { text, status, x, line } of shown) {
        if (line < hidden) continue;
        const y = TOP + (line - hidden) * LINE;
        write(text, FONT, status === "correction" || status === "bonus" ? status : "ink", left + x, y);
        if (status === "accepted") pen.fillRect(left + x, y + 6, pen.measureText(text).width, 2);
      }
    });
  }

  /** The picture as a PNG file. @returns {Promise<Blob | null>} */
  picture() {
    this.draw(Infinity);
    return new Promise((resolve) => void this.canvas.toBlob(resolve));
  }

  /** The run in ten seconds as a film; null where the browser records none. @returns {Promise<Blob | null>} */
  async animation() {
    const type = TYPES.find((one) => globalThis.MediaRecorder?.isTypeSupported(one));
    if (!type || !this.canvas.captureStream) return null;
    const recorder = new MediaRecorder(this.canvas.captureStream(1000 / FRAME_MS), { mimeType: type });
    /** @type {Blob[]} */
    const parts = [];
    let [begun, latest] = [0, 0]; // times of the first and the latest recorded data: a busy machine records late
    recorder.addEventListener("dataavailable", ({ data }) => {
      parts.push(data);
      latest = performance.now();
      begun ||= latest;
    });
    const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve));
    recorder.start(SLICE_MS);
    const frames = setInterval(() => {
      const played = begun && performance.now() - begun;
      if (played < PLAYED_MS + RESTS_MS) {
        this.draw(played < PLAYED_MS ? (this.#until * played) / PLAYED_MS : Infinity);
        this.#pen.fillRect(0, HEIGHT - 4, (WIDTH * played) / (PLAYED_MS + RESTS_MS), 4); // a still picture is not recorded
      } else if (performance.now() - latest > LATE_MS) {
        clearInterval(frames);
        recorder.stop();
      }
    }, FRAME_MS);
    await ended;
    return new Blob(parts, { type });
  }

  get #pen() {
    return /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
  }

  /** The tokens of a lane on lines; a word of several tokens stays whole. @param {Lane} lane @param {number} width @returns {Word[]} */
  #lay(lane, width) {
    /** @type {Word[]} */
    const out = [];
    let [x, line, start] = [0, 0, 0]; // start: the first token of the word that is written
    for (const { text, status, at } of timed(lane)) {
      for (const part of text.split(/(\n)/)) {
        if (part === "\n") [x, line, start] = [0, line + 1, out.length];
        if (!part || part === "\n") continue;
        if (/^\s/.test(part)) start = out.length;
        out.push({ text: part, status, at, x, line });
        x += this.#pen.measureText(part).width;
        if (x <= width || out[start].x === 0) continue;
        [x, line] = [0, line + 1];
        out[start].text = out[start].text.trimStart();
        for (const word of out.slice(start)) {
          Object.assign(word, { x, line });
          x += this.#pen.measureText(word.text).width;
        }
      }
    }
    return out;
  }
}

/** The tokens of a lane and when each was there, without the one that ends an answer. @param {Lane} lane */
function timed(lane) {
  const all = judgedSteps(lane).flatMap((step) => {
    const own = step.next ? [step.next] : [];
    return [...step.path.map((node) => step.nodes[node]), ...own].map(({ text = "", status = "plain" }) => ({ text, status, at: 1000 * step.elapsed }));
  });
  return lane.end === "stop" ? all.slice(0, -1) : all;
}

/** @param {string} text @param {number} most letters */
const shortened = (text, most) => {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
};
