// Which drafter for a pair: the measured results of a target, to filter and to sort, with a sentence of advice and its command line.

import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { stackable } from "../parts/blocks.js";
import { el, textEl } from "../parts/dom.js";

/**
 * @import { Words } from "../parts/page"
 * @typedef {{ target: string, sampling: string, task: string, method: string, speedup: number | null, quartiles: [number, number] | null, answers: number, repeats: number, tokens_per_step: number | null, memory: number | null }} Result
 * @typedef {{ machine: string, date: string, results: Result[] }} Measured
 */
const PLAIN = "nothing";
const COLUMNS = /** @type {const} */ (["speedup", "answers", "tokens_per_step", "memory"]);

/** The results of a choice, the best first. @param {Result[]} results @param {Partial<Result>} choice @param {(typeof COLUMNS)[number]} by */
export function ranked(results, choice, by = "speedup") {
  const wanted = results.filter((one) => Object.entries(choice).every(([name, value]) => one[/** @type {"task"} */ (name)] === value));
  const sign = by === "memory" ? -1 : 1;
  const value = (/** @type {Result} */ one) => one[by] ?? (by === "memory" ? 0 : -Infinity);
  return wanted.sort((one, other) => sign * (value(other) - value(one)));
}

/** What the results say: a method pays if half of its answers and more gained by it. @param {Result[]} results */
export function advice(results) {
  const [best] = ranked(results.filter(({ method }) => method !== PLAIN), {});
  if (!best?.speedup) return { name: "unknown", best: null };
  if (!best.quartiles) return { name: "single", best };
  return { name: best.speedup <= 1 ? "none" : best.quartiles[0] > 1 ? "pays" : "perhaps", best };
}

/** @param {Measured} measured @param {Record<string, string>} titles of the methods @param {Words} words */
export function adviser({ machine, date, results }, titles, words) {
  /** @type {(typeof COLUMNS)[number]} */
  let by = "speedup";
  const told = el("p", { class: "sd-adviser-told", role: "status" });
  const line = el("code");
  const copied = el("span", { role: "status" });
  const copy = textEl("button", words.copy, { type: "button", class: "sd-button", onclick: async () => {
    const done = await navigator.clipboard?.writeText(line.textContent ?? "").then(() => true, () => false);
    copied.textContent = done ? words.copied : words.not_copied;
  } });
  const command = el("p", {}, line, " ", copy, " ", copied);
  const body = el("div", { class: "sd-audit-box", tabindex: "0", role: "region", "aria-label": words.title });
  const names = /** @type {const} */ (["target", "sampling", "task"]);
  const menus = names.map((name) => el("select", { "aria-label": words[name], onchange: () => draw() },
    ...[...new Set(results.map((one) => one[name]))].sort((one, other) => Number(other === "all") - Number(one === "all"))
      .map((value) => textEl("option", words.choices[value] ?? value, { value }))));

  const cells = (/** @type {Result} */ one) => [
    one.speedup ? `${two(one.speedup)}×${one.quartiles ? ` (${one.quartiles.map(two).join(" – ")})` : ""}` : "–",
    fill(words.of, { count: one.answers - one.repeats, answers: one.answers }), two(one.tokens_per_step), one.memory === null ? "–" : String(Math.round(one.memory)),
  ];
  const draw = () => {
    const choice = Object.fromEntries(names.map((name, i) => [name, menus[i].value]));
    const rows = ranked(results, choice, by);
    const head = (/** @type {(typeof COLUMNS)[number]} */ name) => el("th", { scope: "col", "aria-sort": by === name ? (name === "memory" ? "ascending" : "descending") : "none" },
      textEl("button", words.columns[name], { type: "button", class: "sd-button", onclick: () => {
        by = name;
        draw();
      } }));
    body.replaceChildren(stackable(el("table", {},
      el("thead", {}, el("tr", {}, textEl("th", words.method, { scope: "col" }), ...COLUMNS.map(head))),
      el("tbody", {}, ...rows.map((one) => el("tr", {}, textEl("th", titles[one.method] ?? one.method, { scope: "row" }), ...cells(one).map((text) => textEl("td", text))))))));
    const { name, best } = advice(rows);
    const [low, high] = best?.quartiles ?? [null, null];
    told.textContent = fill(words.advice[name], { method: titles[best?.method ?? ""] ?? best?.method ?? "", speedup: two(best?.speedup), low: two(low), high: two(high), count: best ? best.answers - best.repeats : 0 });
    const chosen = best && name !== "none" ? best.method : PLAIN;
    line.textContent = `python -m specdemo run --target ${choice.target} --method ${chosen} "…"`;
    copied.textContent = "";
  };
  draw();
  const labels = names.map((name, i) => el("label", {}, words[name], " ", menus[i]));
  return el("section", { class: "sd-adviser" }, textEl("h2", words.title), el("div", { class: "sd-adviser-choice" }, ...labels), told, command, body,
    textEl("p", fill(words.origin, { machine, date }), { class: "sd-detail" }));
}
