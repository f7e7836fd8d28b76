// XML and HTML as text: what is said is escaped, what is built stays.

/** A piece that is markup already. */
export class Markup {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/** @typedef {string | number | Markup} Child */

/** @param {Child} child */
const written = (child) => (child instanceof Markup ? child.text : escaped(String(child)));

/** @param {string} text */
const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/**
 * An element; what holds other elements alone begins a line for each.
 * @param {string} name @param {Record<string, string | number>} [attributes] @param {...Child} children
 */
export function tag(name, attributes = {}, ...children) {
  const named = Object.entries(attributes).map(([key, value]) => ` ${key}="${escaped(String(value))}"`).join("");
  return new Markup(children.length ? `<${name}${named}>${children.map(written).join("")}</${name}>` : `<${name}${named}/>`);
}

/** A document. @param {Markup} root */
export const document_ = (root) => `<?xml version="1.0" encoding="UTF-8"?>\n${root.text}\n`;

/** The attributes of a root: its namespace, and the schema that describes it. @param {string} uri @param {string} schema */
export const space = (uri, schema) => ({
  xmlns: uri, "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance", "xsi:schemaLocation": `${uri} ${schema}`,
});
