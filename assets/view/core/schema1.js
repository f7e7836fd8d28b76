// Traces of schema 1 as those of schema 2. The rule stands in `_with_origin` of specdemo/trace/codec.py.

/** @import { Node } from "../types" */

const CLOSE = 1e-5; // two numbers that were equal before they were written with seven digits

/**
 * An event that `checked` has passed, in schema 2.
 *
 * @param {any} event
 */
export function upgraded(event) {
  if (event.type === "started") return { ...event, schema: 2 };
  /** @type {Node[]} */
  const before = event.nodes ?? [];
  if (before.every((node) => node.origin)) return event;
  const nodes = before.map(moved);
  const origin = event.type === "verified" ? firstTested(nodes).map(told).find(Boolean) : undefined;
  return { ...event, nodes: nodes.map((node) => (node.origin ? node : as(node, origin))) };
}

// Schema 1 wrote the drafter's own number as `draft_prob` for every token.
/**
 * @param {Node} node
 * @returns {Node}
 */
function moved(node) {
  if (node.origin || node.draft_prob === undefined) return node;
  const { draft_prob: confidence, ...rest } = node;
  return { ...rest, confidence };
}

/**
 * @param {Node} node
 * @param {Node["origin"]} origin
 * @returns {Node}
 */
function as(node, origin) {
  if (!origin || (origin === "drawn" && node.confidence === undefined)) return node;
  return origin === "drawn" ? { ...node, origin, draft_prob: node.confidence } : { ...node, origin };
}

// Of the nodes below each parent, the one that was tested first.
/** @param {Node[]} nodes */
function firstTested(nodes) {
  const tested = nodes.filter((node) => node.accept_prob !== undefined);
  return tested.filter((node, i) => tested.findIndex((other) => (other.parent ?? -1) === (node.parent ?? -1)) === i);
}

// What the test of one token tells of its step: a chosen one is kept with p, a drawn one with min(1, p / q).
/**
 * @param {Node} node
 * @returns {Node["origin"]}
 */
function told({ draw, accept_prob: accept, target_prob: target, confidence }) {
  if (draw === undefined) return "chosen";
  if (target === undefined) return undefined;
  const chosen = close(accept, target);
  if (!confidence) return chosen ? "chosen" : undefined;
  const drawn = close(accept, Math.min(1, target / confidence));
  if (chosen === drawn) return undefined;
  return chosen ? "chosen" : "drawn";
}

/**
 * @param {number | undefined} one
 * @param {number} other
 */
const close = (one = NaN, other) => one === other || Math.abs(one - other) <= CLOSE * Math.max(Math.abs(one), Math.abs(other));
