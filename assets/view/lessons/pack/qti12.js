// The questions as QTI 1.2, which Canvas, Ilias and OLAT import: one assessment with a section a lesson, and the manifest of its package.

import { document_, space, tag } from "./xml.js";

/** @import { Asked, Quiz } from "./quiz" */

const QTI = space("http://www.imsglobal.org/xsd/ims_qtiasiv1p2", "http://www.imsglobal.org/xsd/ims_qtiasiv1p2p1.xsd");
const CONTENT = space("http://www.imsglobal.org/xsd/imscp_v1p1", "http://www.imsglobal.org/xsd/imscp_v1p1.xsd");
const FILE = "specdemo/questions.xml";

/** Files of the package, [name, text] each. @param {Quiz[]} quizzes @param {string} title @returns {[string, string][]} */
export function qti12(quizzes, title) {
  const sections = quizzes.map(({ id, title: lesson, questions }) => tag("section", { ident: id, title: lesson }, ...questions.map(item)));
  const root = tag("questestinterop", QTI, tag("assessment", { ident: "specdemo", title }, ...sections));
  const resource = tag("resource", { identifier: "questions", type: "imsqti_xmlv1p2", href: FILE }, tag("file", { href: FILE }));
  const manifest = tag("manifest", { identifier: "specdemo-qti12", ...CONTENT },
    tag("metadata", {}, tag("schema", {}, "IMS Content"), tag("schemaversion", {}, "1.1.3")), tag("organizations"), tag("resources", {}, resource));
  return [["imsmanifest.xml", document_(manifest)], [FILE, document_(root)]];
}

/** @param {string} text */
const material = (text) => tag("material", {}, tag("mattext", { texttype: "text/plain" }, text));

/** @param {Asked} question */
function item({ id, ask, options, range, answer, evidence }) {
  const kind = range ? "numerical_question" : "multiple_choice_question";
  const field = tag("qtimetadatafield", {}, tag("fieldlabel", {}, "question_type"), tag("fieldentry", {}, kind));
  const response = range
    ? tag("response_str", { ident: "answer", rcardinality: "Single" }, tag("render_fib", { fibtype: "Decimal" }, tag("response_label", { ident: "number" })))
    : tag("response_lid", { ident: "answer", rcardinality: "Single" }, tag("render_choice", {}, ...options.map((option) => tag("response_label", { ident: option.id }, material(option.text)))));
  const own = { respident: "answer" };
  const right = range
    ? tag("or", {}, tag("varequal", own, answer), tag("and", {}, tag("vargte", own, range.low), tag("varlte", own, range.high)))
    : tag("varequal", own, answer);
  return tag("item", { ident: id, title: id },
    tag("itemmetadata", {}, tag("qtimetadata", {}, field)),
    tag("presentation", {}, material(ask), response),
    tag("resprocessing", {},
      tag("outcomes", {}, tag("decvar", { varname: "SCORE", vartype: "Decimal", minvalue: 0, maxvalue: 100 })),
      tag("respcondition", { continue: "Yes" }, tag("conditionvar", {}, tag("other")), tag("displayfeedback", { feedbacktype: "Response", linkrefid: "evidence" })),
      tag("respcondition", { continue: "No" }, tag("conditionvar", {}, right), tag("setvar", { action: "Set", varname: "SCORE" }, 100))),
    tag("itemfeedback", { ident: "evidence" }, tag("flow_mat", {}, material(evidence))));
}
