// The state of the page as an address: read, written and applied. Python checks what it asks of the controls.

import * as settings from "./settings.js";

/**
 * What an address may ask for, by name.
 * @typedef {Record<string, any>} PageState
 */

const FLAGS = new Set([...settings.FLAGS, "presenter", "run"]);
const NUMBERS = new Set([...settings.NUMBERS, "step", "token"]);
const LISTS = new Set(["hide"]);
const TEXTS = new Set([...settings.TEXTS, "prompt", "system", "recorded", "tab", "lesson", "lab", "theme", "lang"]);

/** The state that a query asks for; names that are not ours and values that cannot be read are left out. @param {string} search */
export function readState(search) {
  /** @type {PageState} */
  const state = {};
  for (const [name, text] of new URLSearchParams(search)) {
    if (FLAGS.has(name) && /^[01]$/.test(text)) state[name] = text === "1";
    if (NUMBERS.has(name) && text.trim() && Number.isFinite(Number(text))) state[name] = Number(text);
    if (LISTS.has(name)) state[name] = text.split(",").filter(Boolean);
    if (TEXTS.has(name)) state[name] = text;
  }
  return state;
}

/**
 * A state as a query without its question mark; what equals the defaults or is empty is left out.
 * @param {Partial<PageState>} state @param {Partial<PageState>} defaults
 */
export function writeState(state, defaults = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    const empty = value === undefined || value === null || value === "" || value.length === 0;
    if (empty || value === defaults[name]) continue;
    query.set(name, typeof value === "boolean" ? String(Number(value)) : String(value));
  }
  return query.toString();
}

/** What parts of the page add to the state, by name, and what takes a state to the controls. @type {Map<string, () => unknown>} */
const parts = new Map();
/** @type {((query: string) => void) | null} */
let follow = null;
let waiting = "";

/** Let a part add to the state: `read()` gives the present value of `name`. @param {string} name @param {() => unknown} read */
export const remember = (name, read) => parts.set(name, read);

/** The state of all parts that remember one. */
export const remembered = () => Object.fromEntries([...parts].map(([name, read]) => [name, read()]));

/** Set controls, tab, recorded run and the rest to a state, in part or whole; what it does not name stays. @param {PageState} state */
export function applyState(state) {
  const query = writeState(state);
  if (follow) follow(query);
  else waiting = query;
}

/**
 * `call(query)` follows what is applied from now on, and what was applied before there was anyone to follow.
 * @param {(query: string) => void} call
 */
export function onApply(call) {
  follow = call;
  if (waiting) call(waiting);
  waiting = "";
}
