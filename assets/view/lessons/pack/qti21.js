// The questions as QTI 2.1, which Moodle's plugins, TAO, ONYX and OpenOlat import: an item a file, a test with a section a lesson, the manifest.

import { document_, space, tag } from "./xml.js";

/** @import { Asked, Quiz } from "./quiz" */

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

/** @param {string} name @param {import("./xml.js").Markup} value */
const set = (name, value) => tag("setOutcomeValue", { identifier: name }, value);
