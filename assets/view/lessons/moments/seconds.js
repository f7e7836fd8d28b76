// Where the seconds go: plain and drafted decoding on this machine, a token at a time.

import { two } from "../../core/metrics.js";
import { fill } from "../../core/sentence.js";
import { el } from "../../parts/dom.js";

/**
 * @import { Lane } from "../../core/state"
 * @import { Moment } from "./moment"
 */

/** Milliseconds of a lane for each of its tokens, and what they go to. @param {Lane} lane */
export function perToken(lane) {
  /** @param {number} seconds */
  const each = (seconds) => (1000 * seconds) / lane.tokens;
  return {
    whole: each(lane.elapsed), draft: each(lane.draftSeconds), verify: each(lane.verifySeconds),
    other: each(Math.max(0, lane.elapsed - lane.draftSeconds - lane.verifySeconds)),
  };
}

const PARTS = /** @type {const} */ (["verify", "draft", "other"]);

/** @type {Moment} */
export const seconds = {
  runs: ["06-too-far"],
  show([recorded], { words, methods, last, from }) {
    const own = last?.plain?.tokens && last.fast?.tokens ? { plain: last.plain, fast: last.fast } : null;
    const { plain, fast } = own ?? recorded;
    from(own ? "measured" : "recorded");
    const lanes = [plain, fast].map((lane) => ({ lane, each: perToken(lane) }));
    const most = Math.max(...lanes.map(({ each }) => each.whole));
    const rows = lanes.map(({ lane, each }) => {
      const parts = PARTS.map((part) => el("i", { class: `sd-moment-part sd-moment-${part}`, style: `width: ${(100 * each[part]) / most}%` }));
      const name = methods[lane.header.method] ?? lane.header.method;
      const numbers = Object.fromEntries(Object.entries(each).map(([key, value]) => [key, two(value)]));
      return el("li", {}, el("span", {}, fill(words.lane, { method: name, seconds: two(lane.elapsed), tokens: lane.tokens, ...numbers })),
        el("div", { class: "sd-moment-stack", "aria-hidden": "true" }, ...parts));
    });
    const key = el("p", { class: "sd-moment-key", "aria-hidden": "true" }, ...PARTS.flatMap((part) => [el("i", { class: `sd-moment-${part}` }), words.parts[part]]));
    const ratio = lanes[0].each.whole / lanes[1].each.whole;
    const told = fill(ratio >= 1 ? words.faster : words.slower, { ratio: two(ratio >= 1 ? ratio : 1 / ratio), machine: fast.header.machine ?? "–" });
    return [el("ul", { class: "sd-lesson-bars sd-moment-bars" }, ...rows), key, el("p", { class: "sd-moment-told" }, told), el("p", {}, own ? words.own : words.recorded)];
  },
};
