// Checks that a line of a saved trace is an event, as specdemo/trace/codec.py does. Throws an Error that names the field
// and what is expected there.

import { RULES as GENERATED } from "./rules.js";

/**
 * What a value must be: some keywords of JSON Schema; `row` is a list whose items have one rule each.
 * @typedef {{ expected: string, type?: string, part?: string, enum?: string[], minimum?: number, maximum?: number, maxItems?: number, items?: any, values?: any, required?: boolean, nullable?: boolean }} Rule
 * @type {{ events: Record<string, string>, schema: number, largestFile: number, deepest: number, parts: Record<string, Record<string, Rule>> }}
 */
const RULES = GENERATED;

const LONE_SURROGATE = /\p{Surrogate}/u;

/** Return a parsed line as a valid event: it has only known fields, and none of them is null. @param {any} data @returns {any} */
export function checked(data) {
  if (!isObject(data)) throw new Error("it is not an object");
  const { type, ...fields } = data;
  if (typeof type !== "string" || !Object.hasOwn(RULES.events, type)) throw new Error(`type must be one of ${Object.keys(RULES.events).join(", ")}`);
  // The schema comes first: another one may have other fields.
  if (type === "started" && Object.hasOwn(fields, "schema") && fields.schema !== RULES.schema) throw new Error(`schema must be ${RULES.schema}, the only one that can be read`);
  /** @type {any} */
  const event = { type, ...checkedFields(RULES.events[type], fields) };
  checkAgreement(event);
  return event;
}

/** @type {Map<string, [string, Rule][]>} */
const PARTS = new Map(Object.entries(RULES.parts).map(([part, known]) => [part, Object.entries(known)]));

/** at: the path to the fields @param {string} part @param {Record<string, any>} data @param {string} [at] */
function checkedFields(part, data, at = "") {
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const [name, rule] of PARTS.get(part) ?? []) {
    const given = Object.hasOwn(data, name) ? data[name] : undefined;
    if (given === undefined || (given === null && rule.nullable)) {
      if (rule.required) throw new Error(`${at}${name} is missing`);
      continue;
    }
    found[name] = checkedValue(rule, given, at + name);
  }
  const unknown = Object.keys(data).find((name) => !Object.hasOwn(RULES.parts[part], name));
  if (unknown !== undefined) throw new Error(`${at}${clean(unknown)} is no field of ${part}`);
  return found;
}

/** name: of the field, with the path to it @param {Rule} rule @param {any} given @param {string} name @returns {unknown} */
function checkedValue(rule, given, name) {
  const kind = rule.part ? "object" : (rule.type ?? "");
  if (!IS[kind](given, rule)) throw new Error(`${name} must be ${rule.expected}`);
  if (rule.part) return checkedFields(rule.part, given, `${name}.`);
  if (rule.values) return Object.fromEntries(Object.entries(given).map(([key, value]) => [key, checkedEntry(rule.values, key, value, `${name}.${clean(key)}`)]));
  /** @type {any[]} */
  const list = given;
  if (kind === "array") return list.map((item, i) => checkedValue(rule.items, item, `${name}[${i}]`));
  if (kind !== "row") return given;
  const found = list.map((item, i) => checkedValue(rule.items[i], item, `${name}[${i}]`));
  if (list.length < rule.items.length) throw new Error(`${name} must be ${rule.expected}`);
  return found;
}

/** @param {Rule} rule @param {string} key @param {any} value @param {string} name */
function checkedEntry(rule, key, value, name) {
  if (LONE_SURROGATE.test(key)) throw new Error(`${name} must be a text of whole characters`);
  return checkedValue(rule, value, name);
}

const clean = (/** @type {string} */ name) => name.replace(/[^A-Za-z0-9_]/gu, "?").slice(0, 40);

const isObject = (/** @type {any} */ given) => typeof given === "object" && given !== null && !Array.isArray(given);

/** @type {(given: any, rule: any) => boolean} */
const isNumber = (given, { minimum, maximum }) => typeof given === "number" && given >= minimum && given <= maximum;

/** @type {Record<string, (given: any, rule: any) => boolean>} */
const IS = {
  string: (given, { enum: texts }) => typeof given === "string" && (texts ? texts.includes(given) : !LONE_SURROGATE.test(given)),
  number: isNumber,
  integer: (given, rule) => isNumber(given, rule) && Number.isInteger(given),
  boolean: (given) => typeof given === "boolean",
  object: (given, { part, values }) => isObject(given) && (part || values || isPlain(given, RULES.deepest)),
  array: (given, { maxItems }) => Array.isArray(given) && given.length <= maxItems,
  row: (given, { items }) => Array.isArray(given) && given.length <= items.length,
};

/** Whether a value has at most so many levels, finite numbers and whole characters. @param {any} given @param {number} levels @returns {boolean} */
function isPlain(given, levels) {
  if (Array.isArray(given)) return levels > 0 && given.every((item) => isPlain(item, levels - 1));
  if (isObject(given)) return levels > 0 && Object.entries(given).every(([name, item]) => !LONE_SURROGATE.test(name) && isPlain(item, levels - 1));
  return typeof given === "string" ? !LONE_SURROGATE.test(given) : typeof given !== "number" || Number.isFinite(given);
}

/** Throw an Error if fields that are valid one by one contradict each other. @param {{ nodes?: any[], path?: number[], places?: any[] }} event */
function checkAgreement({ nodes = [], path = [], places = [] }) {
  nodes.forEach(({ parent = -1, origin, draft_prob: drawn }, i) => {
    if (parent >= i) throw new Error(`nodes[${i}].parent must be the index of a node before it, or -1`);
    if (origin && (drawn === undefined) !== (origin === "chosen")) throw new Error(`nodes[${i}].draft_prob must be there when the token was drawn, and only then`);
  });
  let above = -1;
  path.forEach((node, i) => {
    if (!(node in nodes) || (nodes[node].parent ?? -1) !== above) throw new Error(`path[${i}] must be the index of a node below the one before`);
    above = node;
  });
  places.forEach(({ after }, i) => {
    if (after >= nodes.length) throw new Error(`places[${i}].after must be the index of a node, or -1`);
  });
}
