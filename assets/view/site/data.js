// Content of the static site, in the language of its address, its package or the browser.

import { readFrom } from "../core/recorded.js";
import { fetched, languageOf, translator } from "../page/language.js";
import { given } from "./frame.js";

const offered = given("sd-data");
const files = given("sd-files") ?? {}; // of the page that opens from a disk, where nothing can be fetched
readFrom(files);
const language = offered.language ?? languageOf(location.search, navigator.language, offered.languages);
const made = language === "en" ? translator({}) : await fetched(language, ".", files[`words/${language}.json`]);

export const data = made.words(offered);
export const say = made.sentence;
