// Questions for learning platforms: QTI 2.1, the XML that it is written in, and the zip archive that contains it.

/** @import { Asked, Quiz } from "./pack" */

// ---- XML and HTML as text: what is said is escaped, what is built stays

/** A piece that is markup already. */
export class Markup {
  constructor(/** @type {string} */ text) {
    this.text = text;
  }
}

/** @typedef {string | number | Markup} Child */

const written = (/** @type {Child} */ child) => (child instanceof Markup ? child.text : escaped(String(child)));

const escaped = (/** @type {string} */ text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** An element. @param {string} name @param {Record<string, string | number>} [attributes] @param {...Child} children */
export function tag(name, attributes = {}, ...children) {
  const named = Object.entries(attributes).map(([key, value]) => ` ${key}="${escaped(String(value))}"`).join("");
  return new Markup(children.length ? `<${name}${named}>${children.map(written).join("")}</${name}>` : `<${name}${named}/>`);
}

/** A document. @param {Markup} root */
const document_ = (root) => `<?xml version="1.0" encoding="UTF-8"?>\n${root.text}\n`;

/** The attributes of a root: its namespace, and the schema that describes it. @param {string} uri @param {string} schema */
const space = (uri, schema) => ({
  xmlns: uri, "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance", "xsi:schemaLocation": `${uri} ${schema}`,
});

// ---- The questions as QTI 2.1, which Moodle's plugins, TAO, ONYX and OpenOlat import: an item a file, a test with a section a lesson, the manifest

const QTI = space("http://www.imsglobal.org/xsd/imsqti_v2p1", "http://www.imsglobal.org/xsd/qti/qtiv2p1/imsqti_v2p1.xsd");
const CONTENT = space("http://www.imsglobal.org/xsd/imscp_v1p1", "http://www.imsglobal.org/xsd/qti/qtiv2p1/qtiv2p1_imscpv1p2_v1p0.xsd");
const ONE = { cardinality: "single" };

/** Files of the package, [name, text] each. @param {Quiz[]} quizzes @param {string} title @param {string} language @returns {[string, string][]} */
export function qti21(quizzes, title, language) {
  const asked = quizzes.flatMap(({ questions }) => questions);
  /** @param {string} type @param {string} id @param {string} href @param {string[]} needed */
  const resource = (type, id, href, needed = []) => tag("resource", { identifier: id, type, href },
    tag("file", { href }), ...needed.map((name) => tag("dependency", { identifierref: name })));
  const ids = asked.map(({ id }) => id);
  const manifest = tag("manifest", { identifier: "specdemo-qti21", ...CONTENT },
    tag("metadata", {}, tag("schema", {}, "QTIv2.1 Package"), tag("schemaversion", {}, "1.0.0")), tag("organizations"),
    tag("resources", {}, resource("imsqti_test_xmlv2p1", "test", "test.xml", ids), ...ids.map((id) => resource("imsqti_item_xmlv2p1", id, `items/${id}.xml`))));
  const sections = quizzes.map(({ id, title: lesson, questions }) => tag("assessmentSection", { identifier: `lesson-${id}`, title: lesson, visible: "true" },
    ...questions.map((one) => tag("assessmentItemRef", { identifier: one.id, href: `items/${one.id}.xml` }))));
  const test = tag("assessmentTest", { identifier: "specdemo", title, ...QTI },
    tag("testPart", { identifier: "lessons", navigationMode: "nonlinear", submissionMode: "individual" }, ...sections));
  return [
    ["imsmanifest.xml", document_(manifest)],
    ["test.xml", document_(test)],
    ...asked.map((one) => /** @type {[string, string]} */ ([`items/${one.id}.xml`, document_(item(one, language))])),
  ];
}

/** A name may not begin with a digit there, as those of recorded runs do. @param {string} id */
const named = (id) => `option-${id}`;

/** @param {Asked} question @param {string} language */
function item({ id, ask, options, range, answer, evidence }, language) {
  const response = { identifier: "RESPONSE", ...ONE, baseType: range ? "float" : "identifier" };
  const given = tag("variable", { identifier: "RESPONSE" });
  const right = range
    ? tag("and", {}, tag("gte", {}, given, base("float", range.low)), tag("lte", {}, given, base("float", range.high)))
    : tag("match", {}, given, tag("correct", { identifier: "RESPONSE" }));
  const asked = range
    ? [tag("p", {}, ask), tag("p", {}, tag("textEntryInteraction", { responseIdentifier: "RESPONSE", expectedLength: 8 }))]
    : [tag("choiceInteraction", { responseIdentifier: "RESPONSE", shuffle: "false", maxChoices: 1 },
      tag("prompt", {}, ask), ...options.map((option) => tag("simpleChoice", { identifier: named(option.id) }, option.text)))];
  return tag("assessmentItem", { identifier: id, title: id, adaptive: "false", timeDependent: "false", "xml:lang": language, ...QTI },
    tag("responseDeclaration", response, tag("correctResponse", {}, tag("value", {}, range ? answer : named(answer)))),
    tag("outcomeDeclaration", { identifier: "SCORE", ...ONE, baseType: "float" }, tag("defaultValue", {}, tag("value", {}, 0))),
    tag("outcomeDeclaration", { identifier: "FEEDBACK", ...ONE, baseType: "identifier" }),
    tag("itemBody", {}, ...asked),
    tag("responseProcessing", {},
      tag("responseCondition", {}, tag("responseIf", {}, right, set("SCORE", base("float", 1))), tag("responseElse", {}, set("SCORE", base("float", 0)))),
      set("FEEDBACK", base("identifier", "evidence"))),
    tag("modalFeedback", { outcomeIdentifier: "FEEDBACK", identifier: "evidence", showHide: "show" }, evidence));
}

/** @param {string} type @param {string | number} value */
const base = (type, value) => tag("baseValue", { baseType: type }, value);

/** @param {string} name @param {Markup} value */
const set = (name, value) => tag("setOutcomeValue", { identifier: name }, value);

// ---- A zip archive of files as they are: what is large in it is compressed already, or small

/** @typedef {[name: string, content: string | Uint8Array]} Entry */

const UTF8 = 0x0800; // of names
const DATE = 0x0021; // 1 January 1980: the same content gives the same archive
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
  return rest;
});

export function zipped(/** @type {Entry[]} */ entries) {
  const texts = new TextEncoder();
  /** @type {Uint8Array[]} */
  const parts = [];
  /** @type {Uint8Array[]} */
  const listed = [];
  let at = 0;
  for (const [name, content] of entries) {
    const bytes = typeof content === "string" ? texts.encode(content) : content;
    const path = texts.encode(name);
    const about = [20, UTF8, 0, 0, DATE, [crc(bytes)], [bytes.length], [bytes.length], path.length, 0];
    listed.push(record([[0x02014b50], 20, ...about, 0, 0, 0, [0], [at]]), path);
    const head = record([[0x04034b50], ...about]);
    parts.push(head, path, bytes);
    at += head.length + path.length + bytes.length;
  }
  const size = listed.reduce((sum, { length }) => sum + length, 0);
  const end = record([[0x06054b50], 0, 0, entries.length, entries.length, [size], [at], 0]);
  return joined([...parts, ...listed, end]);
}

/** Numbers of two bytes, those in a list of four. @param {(number | number[])[]} fields */
function record(fields) {
  return Uint8Array.from(fields.flatMap((field) =>
    typeof field === "number" ? [field, field >> 8] : [field[0], field[0] >> 8, field[0] >> 16, field[0] >> 24]));
}

function joined(/** @type {Uint8Array[]} */ parts) {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function crc(/** @type {Uint8Array} */ bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = TABLE[(sum ^ byte) & 0xff] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}
