// The visitor in the target's place: a real draft, of which the first wrong token is to be found.

import { laneText } from "../../core/reducer.js";
import { fill } from "../../core/sentence.js";
import { judgedSteps } from "../../core/series.js";
import { spell } from "../../core/symbols.js";
import { isTree } from "../../core/tree.js";
import { el } from "../../parts/dom.js";
import { button } from "../question.js";
import { tail } from "./pieces.js";

/**
 * @import { Lane } from "../../core/state"
 * @import { Moment } from "./moment"
 */

const LEAST = 3; // drafted tokens of a step that is worth judging

/** Steps of a run whose draft is a chain long enough to judge. @param {Lane} lane */
export const drafts = (lane) => judgedSteps(lane).filter(({ nodes }) => nodes.length >= LEAST && !isTree(nodes));

/** Index of the first drafted token that the target did not keep; the length of a draft that it kept whole. @param {{ path: number[] }} step */
export const ending = ({ path }) => path.length;

/** @type {Moment} */
export const judge = {
  runs: ["01-guess-and-check"],
  show([{ fast }], { words, from, announce }) {
    from("recorded");
    const steps = drafts(fast);
    const score = { right: 0, asked: 0 };
    const before = el("span", { class: "sd-moment-before" });
    const draft = el("span", { class: "sd-moment-guess", role: "group", "aria-label": words.draft });
    const told = el("p", { class: "sd-moment-told", tabindex: "-1" });
    const next = button(words.next, () => ask(), "sd-lesson-main");

    const ask = () => {
      const step = steps[score.asked % steps.length];
      before.textContent = tail(laneText({ ...fast, steps: fast.steps.slice(0, fast.steps.indexOf(step)) }));
      const tokens = step.nodes.map(({ text }, i) => button(spell((text ?? "").trim() || (text ?? "")), () => answer(step, i), "sd-moment-token"));
      draft.replaceChildren(...tokens, button(words.whole, () => answer(step, step.nodes.length), "sd-lesson-quiet"));
      told.textContent = fill(words.ask, { step: step.index + 1 });
      next.hidden = true;
    };

    /** @param {(typeof steps)[number]} step @param {number} guess */
    const answer = (step, guess) => {
      const end = ending(step);
      [...draft.children].forEach((token, i) => {
        token.setAttribute("disabled", "");
        if (i < step.nodes.length) token.classList.add(`sd-moment-${i < end ? "accepted" : i === end ? "rejected" : "unreached"}`);
      });
      score.asked += 1;
      score.right += guess === end ? 1 : 0;
      const said = { kept: end, count: step.nodes.length, drafted: (step.nodes[end]?.text ?? "").trim(), own: spell((step.next?.text ?? "").trim() || "↵"), ...score };
      const outcome = fill(end < step.nodes.length ? words.rejected : words.kept, said);
      told.textContent = [guess === end ? words.right : words.wrong, outcome, fill(words.score, said)].join(" ");
      next.hidden = false;
      told.focus({ preventScroll: true });
      announce(told.textContent);
    };

    ask();
    return [el("p", { class: "sd-moment-text" }, before, " ", draft), told, next];
  },
};
