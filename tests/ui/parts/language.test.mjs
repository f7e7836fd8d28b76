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
  "The run broke: {error}.": "Abgebrochen: {error}.",
  "Run again. Or not.": "Noch einmal. Oder nicht.",
});
assert.equal(sentence("Run"), "Start");
assert.equal(sentence("Ready: tiny, fp32"), "Bereit: fp32 von tiny");
assert.equal(sentence("Not available for this target. Too long."), "Nicht verfügbar. Zu lang.");
assert.equal(sentence("Ready: tiny, 32,704"), "Bereit: 32\u202f704 von tiny"); // not a decimal comma
assert.equal(sentence("A of B"), "A of B"); // too little to know it by
assert.equal(sentence("$& Run"), "$& Run");
assert.equal(sentence("The run broke: a 1.5 B model. Too long. Run again. Or not."), "Abgebrochen: a 1.5 B model. Zu lang. Noch einmal. Oder nicht."); // one by one
assert.equal(sentence("The run broke: odd. Very odd. Run again. Or not."), "Abgebrochen: odd. Very odd. Noch einmal. Oder nicht."); // what is filled in may be several
assert.equal(sentence("Too long. Something else."), "Too long. Something else."); // half a language is none
assert.deepEqual(words({ a: ["Run", { b: "{kept} of {all}" }], c: 3, d: null, Run: "x" }), {
  a: ["Start", { b: "{kept} von {all}" }], c: 3, d: null, Run: "x",
});
