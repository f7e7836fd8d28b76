// A game: the visitor drafts the next words of a recorded text, and its target checks them in one pass.

import { bare, chance, choices, kept, wordsOf } from "../core/guess.js";
import { fill } from "../core/sentence.js";
import { two } from "../core/metrics.js";
import { laneText } from "../core/reducer.js";
import { copyText, el } from "../parts/dom.js";
import { passSeconds } from "./evidence.js";
import { tail } from "./moments.js";
import { button } from "./question.js";

/** @import { Header, Lane } from "../core/state" */
/** @import { Words } from "../parts/page" */
/** @import { Lanes, Moment } from "./lesson" */

const DRAFTED = 4; // words of a draft, at most
const ROUNDS = 4;
const DAY = 86_400_000; // milliseconds
/** Texts and the words that they begin at, one each day. @type {[string, number][]} */
const TEXTS = [["20-larger-model", 10], ["01-guess-and-check", 10], ["21-larger-code", 10], ["20-larger-model", 50], ["21-larger-code", 60], ["20-larger-model", 90], ["01-guess-and-check", 35]];
const MARK = "#draft="; // in an address: text, its first word, words kept, words drafted

/** How many times as fast as without drafts such passes are, if guesses cost nothing and a word is a token. @param {Header} header @param {{ kept: number, rounds: number }} score */
export const gain = (header, score) => (score.kept / score.rounds + 1) * (passSeconds(header, 1) / passSeconds(header, 1 + DRAFTED));

/** Words to choose from for each of the next ones, as far as the target thought of several. @param {Lane} lane @param {string[]} all @param {number} at */
export function offers(lane, all, at) {
  const columns = Array.from({ length: DRAFTED }, (_, i) => {
    const known = choices(lane, all.slice(0, at + i));
    const listed = (known?.listed ?? []).filter((one) => one !== known?.own && /^ ?\p{L}{2,}$/u.test(one.text ?? "")).map(({ text }) => (text ?? "").trim());
    const own = (all[at + i] ?? "").trim().replace(/[.,;:!?]+$/, "");
    return [...new Set([own, ...listed.filter((word) => bare(word) !== bare(own) && !bare(own).startsWith(bare(word)))])].slice(0, 4).sort();
  });
  const end = columns.findIndex((words) => words.length < 2);
  return end < 0 ? columns : columns.slice(0, end);
}

/** What a drafter did between two places of the text: tokens kept and drafted, and steps. @param {Lane} lane @param {number} from @param {number} to characters */
export function stretch(lane, from, to) {
  const score = { kept: 0, count: 0, rounds: 0 };
  let length = 0;
  for (const { nodes, path, next } of lane.steps) {
    const begins = length;
    length += [...path.map((i) => nodes[i]), next].reduce((sum, token) => sum + (token?.text?.length ?? 0), 0);
    if (begins < from || begins >= to) continue;
    score.kept += path.length;
    score.count += nodes.length;
    score.rounds += 1;
  }
  return score;
}

/** The challenge that an address contains. @param {string} hash */
export function challenge(hash) {
  const [, text, at, words, count] = /^#draft=([\w-]+)\.(\d{1,3})\.(\d{1,2})\.(\d{1,2})$/.exec(hash) ?? [];
  const place = TEXTS.findIndex(([name, first]) => name === text && first === Number(at));
  return place < 0 ? null : { place, kept: Number(words), count: Number(count) };
}

/** @type {Moment} */
export const yourself = {
  runs: [],
  show(_, { words, lanes, known, from, announce }) {
    from("recorded");
    const asked = challenge(location.hash);
    const stage = el("div");
    let place = (asked?.place ?? Math.floor(Date.now() / DAY)) % TEXTS.length;
    const open = () => {
      while (!(TEXTS[place][0] in known)) place = (place + 1) % TEXTS.length;
      lanes(TEXTS[place][0]).then(
        (run) => stage.replaceChildren(...play(run, TEXTS[place], words, announce, () => {
          place = (place + 1) % TEXTS.length;
          open();
        })),
        (error) => stage.replaceChildren(el("p", { role: "alert" }, error instanceof Error ? error.message : String(error))));
    };
    if (TEXTS.some(([name]) => name in known)) open();
    return [...(asked ? [el("p", { class: "sd-moment-told" }, fill(words.challenged, asked))] : []), stage];
  },
};

/** One game. @param {Lanes} run @param {[string, number]} text @param {Words} words @param {(sentence: string) => void} announce @param {() => void} another */
function play({ plain, fast }, [name, begin], words, announce, another) {
  const all = wordsOf(laneText(plain));
  const score = { kept: 0, count: 0, rounds: 0 };
  let at = begin;
  const before = el("p", { class: "sd-moment-text" });
  const box = el("input", { type: "text", class: "sd-moment-words", "aria-label": words.label, placeholder: words.hint, autocomplete: "off", spellcheck: "false", onkeydown: (event) => event.key === "Enter" && judge() });
  const told = el("p", { class: "sd-moment-told", role: "status" });
  const end = el("p");
  const check = button(words.check, () => judge(), "sd-lesson-main");
  // Without a server, as on the static site, there is no class, and the part of the address after # names the tab.
  const served = Boolean(document.getElementById("sd-lessons"));
  const room = el("a", { class: "sd-lesson-button sd-game-room", target: "_blank", hidden: !served }, words.class);
  if (served) room.setAttribute("href", new URL(`../../../../room.html?run=${name}&at=${begin}&lang=${document.documentElement.lang || "en"}`, import.meta.url).href);
  const form = el("div", { class: "sd-three-buttons" }, box, check, room);
  const offered = el("div", { class: "sd-game-offers", role: "group", "aria-label": words.choose });

  const offer = () => {
    /** @type {string[]} */
    const chosen = [];
    const columns = offers(plain, all, at).map((column, i) => {
      const picks = column.map((word) => button(word, () => {
        chosen[i] = word;
        picks.forEach((pick, j) => pick.setAttribute("aria-pressed", String(column[j] === word)));
        const gap = chosen.findIndex((one) => !one); // a word after a gap waits for those before it
        box.value = chosen.slice(0, gap < 0 ? chosen.length : gap).join(" ");
      }, "sd-game-offer"));
      return el("div", {}, ...picks);
    });
    offered.replaceChildren(...(columns.length ? [el("span", {}, words.choose), ...columns] : []));
  };
  const judge = () => {
    const draft = wordsOf(box.value.trim()).slice(0, DRAFTED);
    if (!draft.length || score.rounds === ROUNDS) return;
    const own = all.slice(at, at + draft.length + 1);
    const right = kept(draft, own);
    const marked = draft.map((word, i) => el("span", { class: `sd-moment-token sd-moment-${i < right ? "accepted" : i === right ? "rejected" : "unreached"}` }, word.trim()));
    before.replaceChildren(el("span", { class: "sd-moment-before" }, tail(all.slice(0, at).join(""))), " ", ...marked, ` ${(own[right] ?? "").trim()} ▢`);
    const known = right < draft.length ? choices(plain, all.slice(0, at + right)) : null;
    const guess = known && chance(known, draft[right]);
    const said = {
      kept: right, count: draft.length, own: (own[right] ?? "").trim(), drafted: (draft[right] ?? "").trim(),
      prob: two(known?.own.prob), guess: guess ? fill(guess.listed ? "{prob}" : words.less, { prob: two(guess.prob) }) : "–",
    };
    told.textContent = fill(right < draft.length ? words.rejected : words.kept, said);
    announce(told.textContent);
    score.kept += right;
    score.count += draft.length;
    score.rounds += 1;
    at += right + 1;
    box.value = "";
    offer();
    if (score.rounds === ROUNDS || at + DRAFTED >= all.length) finish();
    else box.focus();
  };
  const finish = () => {
    form.hidden = offered.hidden = true;
    const note = el("span", { role: "status" });
    const link = `${location.origin}${location.pathname}?lesson=2${MARK}${name}.${begin}.${score.kept}.${score.count}`;
    const copy = button(words.challenge, () => copyText(link, note, words.copied, link));
    copy.hidden = !served;
    const length = (/** @type {number} */ place) => all.slice(0, place).join("").length;
    end.replaceChildren(fill(words.score, { ...score, speedup: two(gain(plain.header, score)) }), " ",
      fill(words.model, stretch(fast, length(begin), length(at))), el("span", { class: "sd-three-buttons" }, copy, button(words.again, another), note));
  };

  before.append(el("span", { class: "sd-moment-before" }, tail(all.slice(0, at).join(""))), " ▢");
  offer();
  return [el("p", { class: "sd-asked" }, plain.header.prompt), before, form, offered, told, end];
}
