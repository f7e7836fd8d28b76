// Sentences with their values, and token text as it can be shown: invisible and direction-changing characters by name.
/** A sentence with its {names} filled in. @param {string} sentence @param {Record<string, unknown>} values */
export const fill = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));

/** The parts of a sentence, [tag, text] each: *a term at its first use*, `code`, and what stands between. @param {string} sentence @returns {[string, string][]} */
export const marked = (sentence) => sentence.split(/(\*[^*]+\*|`[^`]+`)/).map((part) => (part[0] === "*" ? ["dfn", part.slice(1, -1)] : part[0] === "`" ? ["code", part.slice(1, -1)] : ["", part]));

// ---- Token text as it can be shown: invisible and direction-changing characters by name

const NAMES = new Map([
  ["\t", "TAB"], ["\r", "CR"], ["\u00a0", "NBSP"], ["\u00ad", "SHY"],
  ["\u200b", "ZWSP"], ["\u200c", "ZWNJ"], ["\u200e", "LRM"], ["\u200f", "RLM"],
  ["\u202a", "LRE"], ["\u202b", "RLE"], ["\u202c", "PDF"], ["\u202d", "LRO"], ["\u202e", "RLO"],
  ["\u2066", "LRI"], ["\u2067", "RLI"], ["\u2068", "FSI"], ["\u2069", "PDI"], ["\ufeff", "BOM"],
]);
const SPECIAL = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u00a0]/u;
const JOINER = "\u200d"; // holds an emoji sequence together

/** Runs of ordinary text and of named characters: [{ text, name }], name empty for ordinary text. @param {string} text */
export function split(text) {
  /** @type {{ text: string, name: string }[]} */
  const out = [];
  let plain = "";
  const characters = [...text];
  characters.forEach((character, i) => {
    const joins = character === JOINER && i > 0 && /\p{Extended_Pictographic}|\ufe0f/u.test(characters[i - 1]);
    if (character === "\n" || joins || !SPECIAL.test(character)) {
      plain += character;
      return;
    }
    if (plain) out.push({ text: plain, name: "" });
    plain = "";
    out.push({ text: character, name: NAMES.get(character) ?? codePoint(character) });
  });
  if (plain) out.push({ text: plain, name: "" });
  return out;
}

/** @param {string} character */
const codePoint = (character) => `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

const REFUSED = new Set(["drafted", "rejected", "unreached"]); // of the answer's own tokens only parts of a character and its end have no text

/**
 * Whether a drafted token is unknown: another program's server reports how many tokens it refused, not which.
 * @param {{ text?: string, token_id?: number, status?: string }} token
 */
export const isUnknown = ({ text, token_id: id, status }) => !text && id === undefined && REFUSED.has(status ?? "");

/**
 * A token as it is named in a sentence: without the blanks around it, invisible characters by name.
 * @param {{ text?: string, token_id?: number, status?: string } | null | undefined} token
 */
export const quote = (token) => (token && isUnknown(token) ? "?" : spell(token?.text?.trim() || (token?.text ?? "")));

/** One line for a label: every invisible character, spaces and line ends included, by name. @param {string} text */
const spell = (text) =>
  split(text).map(({ text: part, name }) => (name ? `[${name}]` : part.replaceAll("\n", "↵").replaceAll(" ", "␣"))).join("");
