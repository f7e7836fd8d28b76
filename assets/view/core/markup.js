// XML, HTML and SVG as text: what is said is escaped, what is built stays.

/** A piece that is markup already. */
export class Markup {
  constructor(/** @type {string} */ text) {
    this.text = text;
  }
}

/** @typedef {string | number | Markup} Child */

const written = (/** @type {Child} */ child) => (child instanceof Markup ? child.text : escaped(String(child)));

const escaped = (/** @type {string} */ text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/**
 * An element; what holds other elements alone begins a line for each.
 * @param {string} name @param {Record<string, string | number>} [attributes] @param {...Child} children
 */
export function tag(name, attributes = {}, ...children) {
  const named = Object.entries(attributes).map(([key, value]) => ` ${key}="${escaped(String(value))}"`).join("");
  return new Markup(children.length ? `<${name}${named}>${children.map(written).join("")}</${name}>` : `<${name}${named}/>`);
}
