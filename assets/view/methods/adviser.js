// Which drafter for a pair: the measured results of a target, to filter and to sort, with a sentence of advice and its command line.

import { two } from "../core/metrics.js";
import { fill } from "../core/sentence.js";
import { stackable, table } from "../parts/blocks.js";
import { button, copyText, el, menu } from "../parts/dom.js";
import { csv, save } from "../play/export.js";

/**
 * @import { Words } from "../parts/page"
 * @typedef {{ target: string, machine: string, date: string, sampling: string, task: string, method: string, speedup: number | null, quartiles: [number, number] | null, answers: number, repeats: number, tokens_per_step: number | null, memory: number | null }} Result
 */
const PLAIN = "nothing";
const CHOICES = /** @type {const} */ (["target", "machine", "sampling", "task"]);
const CSV = /** @type {const} */ ([...CHOICES, "date", "method", "speedup", "answers", "repeats", "tokens_per_step", "memory"]);
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

/** What begins such drafts in other programs; of a method that is not there, nothing. @type {Record<string, { llama?: string, vllm?: object }>} */
const ELSEWHERE = {
  nothing: { llama: "", vllm: {} },
  draft_model: { llama: "-md DRAFT.gguf --spec-type draft-simple", vllm: { method: "draft_model", model: "DRAFT" } },
  ngram: { llama: "--spec-type ngram-simple", vllm: { method: "ngram", prompt_lookup_max: 4 } },
  feature: { llama: "-md DRAFT.gguf --spec-type draft-eagle3", vllm: { method: "eagle3", model: "DRAFT" } },
  medusa: { vllm: { method: "medusa", model: "DRAFT" } },
};
const SAMPLING = ["--temperature", "--top-p", "--repetition-penalty", "--top-k"]; // as a preset names them
const AHEAD = 4; // tokens that vLLM drafts in each step

/** The command lines of a method, by program. @param {Pick<Result, "target" | "sampling" | "method">} choice @returns {[string, string][]} */
export function commands({ target, sampling, method }) {
  const values = sampling === "greedy" ? ["0"] : sampling.split("/");
  const drawn = values.map((value, i) => `${SAMPLING[i]} ${value}`).join(" ");
  const { llama, vllm } = ELSEWHERE[method] ?? {};
  const config = vllm && Object.keys(vllm).length ? ` --speculative-config '${JSON.stringify({ ...vllm, num_speculative_tokens: AHEAD })}'` : "";
  return [
    ["specdemo", `python -m specdemo run --target ${target} --method ${method} ${drawn} "…"`],
    ...(llama === undefined ? [] : [/** @type {[string, string]} */ (["llama.cpp", `llama-server -m TARGET.gguf ${llama}`.trim()])]),
    ...(vllm ? [/** @type {[string, string]} */ (["vLLM", `vllm serve TARGET${config}`])] : []),
  ];
}

/** @param {Result[]} results @param {Record<string, string>} titles of the methods @param {Words} words */
export function adviser(results, titles, words) {
  /** @type {(typeof COLUMNS)[number]} */
  let by = "speedup";
  const told = el("p", { class: "sd-adviser-told", role: "status" });
  const lines = el("div", { class: "sd-adviser-lines" });
  const body = el("div", { class: "sd-audit-box", tabindex: "0", role: "region", "aria-label": words.title });
  const origin = el("p", { class: "sd-detail" });
  const menus = CHOICES.map((name) => menu({ "aria-label": words[name], onchange: () => draw() },
    [...new Set(results.map((one) => one[name]))].sort((one, other) => Number(other === "all") - Number(one === "all"))
      .map((value) => [value, words.choices[value] ?? value])));

  const cells = (/** @type {Result} */ one) => [
    one.speedup ? `${two(one.speedup)}×${one.quartiles ? ` (${one.quartiles.map(two).join(" – ")})` : ""}` : "–",
    fill(words.of, { count: one.answers - one.repeats, answers: one.answers }), two(one.tokens_per_step), one.memory === null ? "–" : String(Math.round(one.memory)),
  ];
  const chosen = () => ranked(results, Object.fromEntries(CHOICES.map((name, i) => [name, menus[i].value])), by);
  const line = (/** @type {[string, string]} */ [program, command]) => {
    const copied = el("span", { role: "status" });
    const copy = button(words.copy, () => copyText(command, copied, words.copied, words.not_copied));
    return el("p", {}, `${program}: `, el("code", {}, command), " ", copy, " ", copied);
  };
  const draw = () => {
    const rows = chosen();
    const head = (/** @type {(typeof COLUMNS)[number]} */ name) => el("th", { scope: "col", "aria-sort": by === name ? (name === "memory" ? "ascending" : "descending") : "none" },
      button(words.columns[name], () => {
        by = name;
        draw();
      }));
    body.replaceChildren(stackable(table([words.method, ...COLUMNS.map(head)], rows.map((one) => [titles[one.method] ?? one.method, ...cells(one)]))));
    const { name, best } = advice(rows);
    const [low, high] = best?.quartiles ?? [null, null];
    told.textContent = fill(words.advice[name], { method: titles[best?.method ?? ""] ?? best?.method ?? "", speedup: two(best?.speedup), low: two(low), high: two(high), count: best ? best.answers - best.repeats : 0 });
    const [target, , sampling] = menus.map(({ value }) => value);
    lines.replaceChildren(...commands({ target, sampling, method: best && name !== "none" ? best.method : PLAIN }).map(line));
    origin.textContent = rows.length ? fill(words.origin, rows[0]) : "";
  };
  const saving = button(words.csv, () => save(`\uFEFF${csv([[...CSV, "quartile_1", "quartile_3"], ...chosen().map((one) => [...CSV.map((name) => one[name]), ...(one.quartiles ?? [])])])}`, "text/csv", "specdemo-methods.csv"));
  draw();
  const labels = CHOICES.map((name, i) => el("label", {}, words[name], " ", menus[i]));
  return el("section", { class: "sd-adviser" }, el("h2", {}, words.title), el("div", { class: "sd-adviser-choice" }, ...labels, saving), told, lines, body, origin);
}
