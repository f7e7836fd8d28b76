// The page in another language: `?lang=de`, else the browser's. English texts are looked up in one table, which the
// page fetches; what has no entry stays English.

const LANGUAGES = ["en", "de"];
// Texts of models and visitors, and parts that the script draws from words that are already translated.
const OWN = ".sd-mount, textarea, input, script, style, svg";
// In those, what Python says.
const SAID = "#sd-model, #sd-note, .sd-problem, .sd-told";
const ATTRIBUTES = ["placeholder", "aria-label", "title"];

export const isLanguage = (name) => LANGUAGES.includes(name);

/** The language for a query and the browser's own. */
export function languageOf(search, browser) {
  const asked = new URLSearchParams(search).get("lang");
  const wished = isLanguage(asked) ? asked : (browser ?? "").slice(0, 2);
  return isLanguage(wished) ? wished : "en";
}

/** A translator by a table of English texts; `{names}` in them stand for anything. */
export function translator(table) {
  const patterns = Object.entries(table)
    .filter(([text]) => names(text).length && text.replace(/\{\w+\}|\W/g, "").length > 4) // not "{a} of {b}"
    .map(([text, meaning]) => [pattern(text), names(text), meaning]);
  const known = new Map(Object.entries(table));
  const sentence = (text) => {
    if (known.has(text)) return known.get(text);
    for (const [shape, slots, meaning] of patterns) {
      const found = shape.exec(text);
      if (found) return meaning.replace(/\{(\w+)\}/g, (_, name) => sentence(found[slots.indexOf(name) + 1] ?? ""));
    }
    return text;
  };
  const words = (value) => {
    if (typeof value === "string") return table[value] ?? value;
    if (Array.isArray(value)) return value.map(words);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, words(item)]));
  };
  return { sentence, words };
}

const names = (text) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
const pattern = (text) => new RegExp(`^${text.split(/\{\w+\}/).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("(.+?)")}$`, "s");

let ready = null;

/** Words of a part in the page's language. base: where the page is served */
export async function said(words, base) {
  const language = languageOf(location.search, navigator.language);
  if (language === "en") return words;
  ready ??= begin(language, base);
  return (await ready).words(words);
}

async function begin(language, base) {
  const answer = await fetch(`${base}/words/${language}.json`).catch(() => null);
  const made = translator(answer?.ok ? await answer.json() : {});
  document.documentElement.lang = language;
  follow(document.body, made.sentence);
  return made;
}

// Translate what Gradio shows, now and whenever it changes.
function follow(root, sentence) {
  const ours = new WeakMap();
  const text = (node) => {
    const parent = node.parentElement;
    if (!parent || ours.get(node) === node.data || (parent.closest(OWN) && !parent.closest(SAID))) return;
    const bare = node.data.trim();
    const meaning = bare && sentence(bare);
    if (!bare || meaning === bare) return;
    node.data = node.data.replace(bare, () => meaning);
    ours.set(node, node.data);
  };
  const attributes = (element) => {
    if (element.closest(".sd-mount")) return;
    for (const name of ATTRIBUTES) {
      const own = element.getAttribute(name);
      const meaning = own && sentence(own);
      if (own && meaning !== own) element.setAttribute(name, meaning);
    }
  };
  const all = (node) => {
    if (node.nodeType === Node.TEXT_NODE) text(node);
    if (node.nodeType !== Node.ELEMENT_NODE) return;
    attributes(node);
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    while (walker.nextNode()) {
      if (walker.currentNode.nodeType === Node.TEXT_NODE) text(walker.currentNode);
      else attributes(walker.currentNode);
    }
  };
  new MutationObserver((changes) => {
    for (const { type, target, addedNodes } of changes) {
      const place = target instanceof Element ? target : target.parentElement;
      if (place?.closest(".sd-mount") && !place.closest(SAID)) continue;
      if (type === "characterData") text(target);
      else if (type === "attributes") attributes(target);
      else addedNodes.forEach(all);
    }
  }).observe(root, { subtree: true, childList: true, characterData: true, attributeFilter: ATTRIBUTES });
  all(root);
}
