// The address of the page names the open tab, the lesson, the recorded run, the step and the token, so that Back and reload bring
// them back. A live run that has ended is kept with its entry in the browser's history.

import { readState, remembered, writeState } from "../core/permalink.js";
import { traceText } from "../play/export.js";
import { shownView } from "../play/runs.js";

/** @import { PageState } from "../core/permalink" */
const PLACE = ["step", "token"];
const PAGE = ["tab", "lesson", "recorded"];
const OWN = [...PAGE, ...PLACE];
const SETTLED = 120; // milliseconds after a click until the page shows what it opens
const RESTORING = 1500; // milliseconds that the page may take to go back

/** Choose an entry of a menu of the page, as a visitor does. @param {string} selector @param {string} value */
export function choose(selector, value) {
  const menu = /** @type {HTMLSelectElement | null} */ (document.querySelector(selector));
  if (!menu) return;
  menu.value = value;
  menu.dispatchEvent(new Event("change"));
}

/** Name of the tab that is open. */
export const openTab = () => (document.querySelector("#sd-tabs [role=tab][aria-selected=true]")?.id ?? "").replace(/^sd-tab-|-button$/g, "");

/** Name of the recorded run on show; empty for none. */
export const shownRun = () => document.querySelector("#sd-view .sd-root")?.getAttribute("data-run") ?? "";

export class Address {
  #opening;
  #timer = 0;
  #restored = -RESTORING; // time at which one went back
  followed = !location.search; // whether the page shows what its address asked for on arrival
  /** @type {PageState} */
  #noted;

  /** opening: the recorded run that an address without any names @param {string} opening */
  constructor(opening) {
    this.#opening = opening;
    this.#noted = this.#asked;
    for (const type of ["click", "keyup", "specdemo-shown"]) document.addEventListener(type, () => this.soon());
    document.addEventListener("specdemo-ended", () => this.#keep());
    addEventListener("popstate", () => this.#restore());
    // A run or a game in an address that is typed into the bar of the open page. Its own changes of the address do not arrive here.
    addEventListener("hashchange", () => /^#(trace|draft)=/.test(location.hash) && location.reload());
  }

  /** Read what the page shows a moment from now. */
  soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#note(), SETTLED);
  }

  /** What the address asks for: an open lesson is on its tab, and the opening run is there without being named. @returns {PageState} */
  get #asked() {
    const { tab, lesson, recorded, step, token } = readState(location.search);
    const key = history.state?.key;
    return { tab: lesson ? "lessons" : tab === "play" ? "" : tab, lesson, recorded: recorded === this.#opening ? "" : recorded, step, token, key };
  }

  #note() {
    const tab = openTab();
    const lesson = tab === "lessons" ? remembered().lesson : "";
    if (!this.followed) return;
    if (!tab || lesson === undefined || (tab === "lessons" && !lesson)) {
      this.soon(); // it is not drawn yet
      return;
    }
    const run = shownRun();
    const { key } = this.#noted;
    /** @type {PageState} */
    const here = { tab: tab === "play" ? "" : tab, lesson, recorded: run === this.#opening ? "" : run, ...shownView()?.place, key: run ? undefined : key };
    if (same(here, this.#noted, [...OWN, "key"])) return;
    if (performance.now() < this.#restored + RESTORING) {
      this.soon(); // it has not gone back yet
      return;
    }
    const moved = same(here, this.#noted, [...PAGE, "key"]); // within the run only: Back leaves the run, not the step
    this.#write(here, here.key ? history.state : null, moved ? "replaceState" : "pushState");
  }

  /** Keep the live run that has ended. */
  #keep() {
    const { key = "", events = [] } = shownView() ?? {};
    const { tab, lesson } = this.#noted;
    this.#write({ tab, lesson, key }, { key, trace: traceText(events) }, this.#noted.key === key ? "replaceState" : "pushState");
  }

  /** What else stands in the address stays: language, theme, settings. @param {PageState} here @param {unknown} state @param {"pushState" | "replaceState"} how */
  #write({ key, ...here }, state, how) {
    this.#noted = { ...here, key };
    const query = new URLSearchParams(location.search);
    for (const name of [...OWN, "run"]) query.delete(name);
    const own = writeState(here);
    const search = [String(query), own].filter(Boolean).join("&");
    history[how](state, "", search ? `?${search}` : location.pathname);
  }

  #restore() {
    const asked = this.#asked;
    const before = this.#noted;
    this.#noted = asked;
    this.#restored = performance.now();
    const tab = asked.tab || "play";
    if (tab !== openTab()) document.getElementById(`sd-tab-${tab}-button`)?.click();
    const view = shownView();
    if (same(asked, before, ["recorded", "key"])) return void view?.show(asked);
    if (view) view.wanted = asked;
    if (asked.key) view?.restore(history.state.trace);
    else choose("#sd-runs select", asked.recorded || this.#opening);
  }
}

/** @param {PageState} one @param {PageState} other @param {string[]} names */
const same = (one, other, names) => names.every((name) => (one[name] ?? "") === (other[name] ?? ""));
