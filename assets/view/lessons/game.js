// A game: the visitor drafts the next words of a recorded text, and its target checks them in one pass.

import { fill } from "../core/sentence.js";
import { two } from "../core/metrics.js";
import { laneText } from "../core/reducer.js";
import { el } from "../parts/dom.js";
import { acceptPercent, passSeconds } from "./evidence.js";
import { tail } from "./moments.js";
import { button } from "./question.js";

/** @import { Header, Lane } from "../core/state" */
/** @import { Choice } from "../types" */
/** @import { Words } from "../parts/page" */
/** @import { Moment } from "./moment" */
/** @import { Lanes } from "./lesson" */

export const DRAFTED = 4; // words of a draft, at most
const ROUNDS = 4;
const GIVEN = 10; // words that stand there at the beginning
const DAY = 86_400_000; // milliseconds
const TEXTS = ["20-larger-model", "01-guess-and-check", "21-larger-code"]; // one each day
const MARK = "#draft="; // in an address: text, words kept, words drafted

/** The words of a text, each with the blanks after it. @param {string} text @returns {string[]} */
export const wordsOf = (text) => text.match(/\S+\s*/g) ?? [];

/** A word as it is compared: letters and digits alone, if it has any. @param {string} word */
const bare = (word) => word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "") || word.trim();

/** How many words of a draft are kept: the first ones that the target writes too. @param {string[]} draft @param {string[]} own */
export function kept(draft, own) {
  const wrong = draft.findIndex((word, i) => bare(word) !== bare(own[i] ?? ""));
  return wrong < 0 ? draft.length : wrong;
}

/** How many times as fast as without drafts such passes are, if guesses cost nothing and a word is a token. @param {Header} header @param {{ kept: number, rounds: number }} score */
export const gain = (header, score) => (score.kept / score.rounds + 1) * (passSeconds(header, 1) / passSeconds(header, 1 + DRAFTED));

/**
 * What the target thought where a word begins: its recorded probabilities of its own word, and of a guess; that is at most
 * the least of the list for a guess that is not on it. null where none were recorded.
 * @param {Lane} lane @param {string[]} before words before it @param {string} guess
 */
export function chances(lane, before, guess) {
  const start = before.join("").length;
  let length = 0;
  for (const { next, places } of lane.steps) {
    const text = next?.text ?? "";
    length += text.length;
    if (length <= start || !text.trim()) continue;
    /** @type {Choice[]} */
    const listed = places?.[0]?.target ?? [];
    const own = listed.find(({ token_id: id }) => id === next?.token_id);
    if (!own) return null;
    const found = listed.find(({ text: word }) => word?.trim() && bare(guess).startsWith(bare(word)));
    return { own: own.prob, guess: found?.prob ?? Math.min(...listed.map(({ prob }) => prob)), listed: Boolean(found) };
  }
  return null;
}

/** The challenge that an address contains. @param {string} hash */
export function challenge(hash) {
  const [, text, words, count] = /^#draft=([\w-]+)\.(\d{1,2})\.(\d{1,2})$/.exec(hash) ?? [];
  return text && TEXTS.includes(text) ? { text, kept: Number(words), count: Number(count) } : null;
}

/** @type {Moment} */
export const yourself = {
  runs: [],
  show(_, { words, lanes, known, from, announce }) {
    from("recorded");
    const asked = challenge(location.hash);
    const texts = TEXTS.filter((name) => name in known);
    const stage = el("div");
    let at = Math.max(0, asked ? texts.indexOf(asked.text) : Math.floor(Date.now() / DAY) % texts.length);
    const open = () => lanes(texts[at]).then(
      (run) => stage.replaceChildren(...play(run, texts[at], words, announce, () => {
        at = (at + 1) % texts.length;
        open();
      })),
      (error) => stage.replaceChildren(el("p", { role: "alert" }, error instanceof Error ? error.message : String(error))));
    open();
    return [...(asked ? [el("p", { class: "sd-moment-told" }, fill(words.challenged, asked))] : []), stage];
  },
};

/** One game. @param {Lanes} run @param {string} name @param {Words} words @param {(sentence: string) => void} announce @param {() => void} another */
function play({ plain, fast }, name, words, announce, another) {
  const all = wordsOf(laneText(plain));
  const score = { kept: 0, count: 0, rounds: 0 };
  let at = GIVEN;
  const before = el("p", { class: "sd-moment-text" });
  const box = el("input", { type: "text", class: "sd-moment-words", "aria-label": words.label, placeholder: words.hint, autocomplete: "off", spellcheck: "false" });
  const told = el("p", { class: "sd-moment-told", role: "status" });
  const end = el("p");
  const check = button(words.check, () => judge(), "sd-lesson-main");
  const form = el("div", { class: "sd-three-buttons" }, box, check);

  const judge = () => {
    const draft = wordsOf(box.value.trim()).slice(0, DRAFTED);
    if (!draft.length || score.rounds === ROUNDS) return;
    const own = all.slice(at, at + draft.length + 1);
    const right = kept(draft, own);
    const marked = draft.map((word, i) => el("span", { class: `sd-moment-token sd-moment-${i < right ? "accepted" : i === right ? "rejected" : "unreached"}` }, word.trim()));
    before.replaceChildren(el("span", { class: "sd-moment-before" }, tail(all.slice(0, at).join(""))), " ", ...marked, ` ${(own[right] ?? "").trim()} ▢`);
    const known = right < draft.length ? chances(plain, all.slice(0, at + right), draft[right]) : null;
    const said = {
      kept: right, count: draft.length, own: (own[right] ?? "").trim(), drafted: (draft[right] ?? "").trim(),
      prob: known ? two(known.own) : "–", guess: known ? (known.listed ? two(known.guess) : fill(words.less, { prob: two(known.guess) })) : "–",
    };
    told.textContent = fill(right < draft.length ? words.rejected : words.kept, said);
    announce(told.textContent);
    score.kept += right;
    score.count += draft.length;
    score.rounds += 1;
    at += right + 1;
    box.value = "";
    if (score.rounds === ROUNDS || at + DRAFTED >= all.length) finish();
    else box.focus();
  };
  box.addEventListener("keydown", (event) => event.key === "Enter" && judge());

  const finish = () => {
    form.hidden = true;
    const note = el("span", { role: "status" });
    const link = `${location.origin}${location.pathname}?lesson=2${MARK}${name}.${score.kept}.${score.count}`;
    const copy = button(words.challenge, async () => {
      const done = await navigator.clipboard?.writeText(link).then(() => true, () => false);
      note.textContent = done ? words.copied : link;
    });
    // On the static site the part after # names the tab.
    copy.hidden = !document.getElementById("sd-lessons");
    end.replaceChildren(fill(words.score, { ...score, speedup: two(gain(plain.header, score)) }), " ",
      fill(words.model, { percent: two(acceptPercent(fast)) }), el("span", { class: "sd-three-buttons" }, copy, button(words.again, another), note));
  };

  before.append(el("span", { class: "sd-moment-before" }, tail(all.slice(0, at).join(""))), " ▢");
  return [el("p", { class: "sd-asked" }, plain.header.prompt), before, form, told, end];
}
