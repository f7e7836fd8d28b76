// Whether a line of a saved trace is an event: the rules of specdemo/trace/codec.py, field by field. Throws an Error that
// names the field and says what must stand there.

import { RULES as GENERATED } from "./rules.js";

/**
 * What a field must hold.
 * @typedef {{ kind: string, wanted: string, part?: any, item?: any, items?: any, required?: boolean, empty?: boolean }} Rule
 * @type {{ events: Record<string, string>, schemas: number[], largestFile: number, mostItems: number, deepest: number, parts: Record<string, Record<string, Rule>> }}
 */
const RULES = GENERATED;

const HALF = /\p{Surrogate}/u; // of a character

/**
 * An event as it is known to be right: only known fields, none of them null. data: a parsed line
 *
 * @param {any} data
 * @returns {any}
 */
export function checked(data) {
  if (!isObject(data)) throw new Error("it is not an object");
  const { type, ...fields } = data;
  if (typeof type !== "string" || !Object.hasOwn(RULES.events, type)) throw new Error(`type must be one of ${Object.keys(RULES.events).join(", ")}`);
  if (type === "started") readable(fields);
  /** @type {any} */
  const event = { type, ...members(RULES.events[type], fields) };
  agree(event);
  return event;
}

// Asked first: another schema may have other fields.
/** @param {{ schema?: any }} fields */
function readable({ schema = RULES.schemas.at(-1) }) {
  value(RULES.parts.RunStarted.schema, schema, "schema");
  if (!RULES.schemas.includes(schema)) throw new Error(`schema ${schema} is not one of ${RULES.schemas.join(", ")}`);
}

/** What is wrong with a field, whose name grows on the way out. */
class Problem extends Error {
  /**
   * @param {string} field
   * @param {string} problem
   */
  constructor(field, problem) {
    super(`${field} ${problem}`);
    this.field = field;
    this.problem = problem;
  }

  /** @param {string} outer */
  within(outer) {
    return new Problem(outer + (this.field && !this.field.startsWith("[") ? "." : "") + this.field, this.problem);
  }
}

/** @type {Map<string, [string, Rule][]>} */
const PARTS = new Map(Object.entries(RULES.parts).map(([part, known]) => [part, Object.entries(known)]));

/**
 * @param {string} part
 * @param {Record<string, any>} data
 */
function members(part, data) {
  const known = RULES.parts[part];
  const unknown = Object.keys(data).filter((name) => !Object.hasOwn(known, name));
  if (unknown.length) throw new Problem(unknown.sort()[0].replace(/[^A-Za-z0-9_]/gu, "?").slice(0, 40), `is no field of ${part}`);
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const [name, rule] of PARTS.get(part) ?? []) {
    const given = Object.hasOwn(data, name) ? data[name] : undefined;
    if (given === undefined || (given === null && rule.empty)) {
      if (rule.required) throw new Problem(name, "is missing");
      continue;
    }
    found[name] = value(rule, given, name);
  }
  return found;
}

/**
 * @param {Rule} rule
 * @param {any} given
 * @param {string} name
 * @returns {unknown}
 */
function value(rule, given, name) {
  if (!TAKES[rule.kind](given, rule)) throw new Problem(name, `must be ${rule.wanted}`);
  if (!DEEP.has(rule.kind)) return given;
  try {
    if (rule.kind === "Part") return members(rule.part, given);
    /** @type {any[]} */
    const list = given;
    return list.map((item, i) => value(rule.kind === "Many" ? rule.item : rule.items[i], item, AT[i] ?? `[${i}]`));
  } catch (error) {
    throw error instanceof Problem ? error.within(name) : error;
  }
}

const DEEP = new Set(["Many", "Row", "Part"]);
const AT = Array.from({ length: 64 }, (_, i) => `[${i}]`);

/** @param {any} given */
const isObject = (given) => typeof given === "object" && given !== null && !Array.isArray(given);

/** @type {Record<string, (given: any, rule: any) => boolean>} */
const TAKES = {
  Text: (given, { texts }) => typeof given === "string" && (texts ? texts.includes(given) : !HALF.test(given)),
  Number: (given, { low, high, whole }) => typeof given === "number" && given >= low && given <= high && (!whole || Number.isInteger(given)),
  Flag: (given) => typeof given === "boolean",
  Free: (given) => isObject(given) && isPlain(given, RULES.deepest),
  Many: (given) => Array.isArray(given) && given.length <= RULES.mostItems,
  Row: (given, { items }) => Array.isArray(given) && given.length === items.length,
  Part: isObject,
};

// Of at most so many levels, with finite numbers and whole characters.
/**
 * @param {any} given
 * @param {number} levels
 * @returns {boolean}
 */
function isPlain(given, levels) {
  if (Array.isArray(given)) return levels > 0 && given.every((item) => isPlain(item, levels - 1));
  if (isObject(given)) return levels > 0 && Object.entries(given).every(([name, item]) => !HALF.test(name) && isPlain(item, levels - 1));
  return typeof given === "string" ? !HALF.test(given) : typeof given !== "number" || Number.isFinite(given);
}

/**
 * Fields that are right one by one may contradict each other.
 *
 * @param {{ nodes?: any[], path?: number[], places?: any[] }} event
 */
function agree({ nodes = [], path = [], places = [] }) {
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
