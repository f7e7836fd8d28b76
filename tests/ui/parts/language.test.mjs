// Another language: which one is wished for, words by their English texts, and sentences that Python has filled in.
import assert from "node:assert/strict";
import { languageOf, translator } from "../../../assets/view/page/language.js";

assert.equal(languageOf("?lang=de", "en-GB", ["en", "de"]), "de");
assert.equal(languageOf("?lang=en", "de-AT", ["en", "de"]), "en");
assert.equal(languageOf("", "de-AT", ["en", "de"]), "de");
assert.equal(languageOf("?lang=xx", "fr", ["en", "de"]), "en");
assert.equal(languageOf("", undefined, ["en", "de"]), "en");
assert.equal(languageOf("?lang=fr", "de", ["en", "de", "fr"]), "fr"); // whatever the page offers

const { sentence, words } = translator({
  Run: "Start",
  Ready: "Bereit",
  "Ready: {target}, {precision}": "Bereit: {precision} von {target}",
  "Not available for this target. {why_not}": "Nicht verfügbar. {why_not}",
  "Too long.": "Zu lang.",
  "{kept} of {all}": "{kept} von {all}",
});
assert.equal(sentence("Run"), "Start");
assert.equal(sentence("Ready: tiny, fp32"), "Bereit: fp32 von tiny");
assert.equal(sentence("Not available for this target. Too long."), "Nicht verfügbar. Zu lang.");
assert.equal(sentence("A of B"), "A of B"); // too little to know it by
assert.equal(sentence("$& Run"), "$& Run");
assert.deepEqual(words({ a: ["Run", { b: "{kept} of {all}" }], c: 3, d: null, Run: "x" }), {
  a: ["Start", { b: "{kept} von {all}" }], c: 3, d: null, Run: "x",
});
