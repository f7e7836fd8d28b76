// The page in another language: `?lang=de`, else the browser's. English texts are looked up in one table, which the
// page fetches; what has no entry stays English.

import { writeNumbersIn } from "../core/metrics.js";

// Texts of models and visitors, and parts that the script draws from words that are already translated.
const OWN = ".sd-mount, textarea, input, script, style, svg";
// In those, what Python reports.
const REPORTED = "#sd-model, .sd-note, .sd-problem, .sd-messages, .sd-waits";
const ATTRIBUTES = ["placeholder", "aria-label", "title"];

/**
 * The language for a query and the browser's own, one of those that there are.
 * @param {string} search @param {string | undefined} browser @param {string[]} languages
 */
export function languageOf(search, browser, languages) {
  const asked = new URLSearchParams(search).get("lang") ?? "";
  return [asked, (browser ?? "").slice(0, 2)].find((wished) => languages.includes(wished)) ?? "en";
}

/** A translator by a table of English texts; `{names}` in them stand for anything. @param {Record<string, string>} table */
export function translator(table) {
  const patterns = Object.entries(table)
    .map(([text, meaning]) => ({ shape: pattern(text), sure: longest(text), slots: names(text), meaning, own: letters(text) }))
    .filter(({ slots, own }) => slots.length && own > 3) // not "{a} of {b}"
    .sort((one, other) => other.own - one.own); // what says most fits best
  const known = new Map(Object.entries(table));
  /** What the table says of a text as a whole. @param {string} text @returns {string | undefined} */
  const whole = (text) => {
    const same = known.get(text);
    if (same !== undefined) return same;
    for (const { shape, sure, slots, meaning } of patterns) {
      const found = text.includes(sure) && shape.exec(text);
      if (found) return meaning.replace(/\{(\w+)\}/g, (_, name) => grouped(sentence(found[slots.indexOf(name) + 1] ?? "")));
    }
    return undefined;
  };
  /** Sentences that stand in the table one by one, or several as one text. @param {string[]} sentences @returns {string | undefined} */
  const joined = (sentences) => {
    for (let end = 1; end <= sentences.length; end++) {
      const first = whole(sentences.slice(0, end).join(" "));
      if (first === undefined) continue;
      const rest = end < sentences.length ? joined(sentences.slice(end)) : "";
      if (rest !== undefined) return rest ? `${first} ${rest}` : first;
    }
    return undefined;
  };
  /** @param {string} text @returns {string} */
  const sentence = (text) => known.get(text) ?? joined(text.replace(/([.!?]) /g, "$1\0").split("\0")) ?? text;
  /** @type {<T>(value: T) => T} */
  const words = (value) => /** @type {any} */ (deep(value));
  /** @param {unknown} value @returns {unknown} */
  const deep = (value) => {
    if (typeof value === "string") return table[value] ?? value;
    if (Array.isArray(value)) return value.map(deep);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, deep(item)]));
  };
  return { sentence, words };
}

/** A number without English commas, which others read as a decimal point. @param {string} text */
const grouped = (text) => (/^\d{1,3}(,\d{3})+$/.test(text) ? text.replaceAll(",", "\u202f") : text);
const names = (/** @type {string} */ text) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
/** How much a text says of its own. @param {string} text */
const letters = (text) => text.replace(/\{\w+\}|\W/g, "").length;
/** What a text says between two names, the longest of it: faster to look for than a pattern. @param {string} text */
const longest = (text) => text.split(/\{\w+\}/).reduce((one, other) => (other.length > one.length ? other : one));
/** @param {string} text */
const pattern = (text) => new RegExp(`^${text.split(/\{\w+\}/).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("(.+?)")}$`, "s");

/** @type {Promise<ReturnType<typeof translator>> | null} */
let ready = null;

/**
 * Words of a part in the page's language, and what says a sentence of Python in it. base: where the page is served
 * @template T
 * @param {T} words @param {string} base @param {string[]} languages @returns {Promise<{ words: T, say: (text: string) => string }>}
 */
export async function translated(words, base, languages) {
  const language = languageOf(location.search, navigator.language, languages);
  if (language === "en") return { words, say: (text) => text };
  ready ??= begin(language, base);
  const made = await ready;
  return { words: made.words(words), say: made.sentence };
}

/**
 * The translator of a language; sets the document's.
 * @param {string} language @param {string} base @param {string} [known] text of the table, if the page contains it
 */
export async function fetched(language, base, known) {
  const answer = known ? new Response(known) : await fetch(`${base}/words/${language}.json`).catch(() => null);
  document.documentElement.lang = language;
  writeNumbersIn(language);
  return translator(answer?.ok ? await answer.json() : {});
}

/** @param {string} language @param {string} base */
async function begin(language, base) {
  const made = await fetched(language, base);
  follow(document.body, made.sentence);
  document.documentElement.classList.remove("sd-translating"); // the page's head hides what is still English
  return made;
}

/** @type {WeakSet<HTMLInputElement>} */
const closed = new WeakSet();

// A closed menu of Gradio is a text box: whatever is put into it from now on is put in translated.
/** @param {HTMLInputElement} input @param {(text: string) => string} sentence */
function closedMenu(input, sentence) {
  if (closed.has(input)) return;
  closed.add(input);
  const own = /** @type {PropertyDescriptor} */ (Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value"));
  const get = () => own.get?.call(input);
  const set = (/** @type {unknown} */ value) => own.set?.call(input, sentence(String(value ?? "")));
  Object.defineProperty(input, "value", { get, set, configurable: true });
  set(get());
}

/** Translate what Gradio shows, now and whenever it changes. @param {HTMLElement} root @param {(text: string) => string} sentence */
function follow(root, sentence) {
  /** @type {WeakMap<Text, string>} */
  const ours = new WeakMap();
  const text = (/** @type {Text} */ node) => {
    const parent = node.parentElement;
    if (!parent || ours.get(node) === node.data || (parent.closest(OWN) && !parent.closest(REPORTED))) return;
    const bare = node.data.trim();
    const meaning = sentence(bare);
    if (!bare || meaning === bare) return;
    node.data = node.data.replace(bare, () => meaning);
    ours.set(node, node.data);
  };
  const attributes = (/** @type {Element} */ element) => {
    if (element.closest(".sd-mount")) return;
    if (element instanceof HTMLInputElement && element.role === "combobox") closedMenu(element, sentence);
    for (const name of ATTRIBUTES) {
      const own = element.getAttribute(name);
      if (own && sentence(own) !== own) element.setAttribute(name, sentence(own));
    }
  };
  const one = (/** @type {Node} */ node) => {
    if (node instanceof Text) text(node);
    else if (node instanceof Element) attributes(node);
  };
  const all = (/** @type {Node} */ node) => {
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    one(node);
    while (walker.nextNode()) one(walker.currentNode);
  };
  const reported = (/** @type {Element} */ element) => {
    if (element.matches(REPORTED)) all(element);
    else element.querySelectorAll(REPORTED).forEach(all);
  };
  new MutationObserver((changes) => {
    for (const { type, target, addedNodes } of changes) {
      const place = target instanceof Element ? target : target.parentElement;
      if (place?.closest(".sd-mount") && !place.closest(REPORTED)) {
        for (const node of addedNodes) if (node instanceof Element) reported(node);
        continue;
      }
      if (type === "childList") addedNodes.forEach(all);
      else one(target);
    }
  }).observe(root, { subtree: true, childList: true, characterData: true, attributeFilter: ATTRIBUTES });
  all(root);
}
