// What the static site shows, in the language that its address, its package or the browser asks for.

import { fetched, languageOf, translator } from "../page/language.js";
import { given } from "./frame.js";

const offered = given("sd-data");
const language = offered.language ?? languageOf(location.search, navigator.language, offered.languages);
const made = language === "en" ? translator({}) : await fetched(language, ".");

export const data = made.words(offered);
export const say = made.sentence;
