// The site inside a learning platform, with a stand-in for it: SCORM 1.2 hears how far one is, and once that all is done.
import assert from "node:assert/strict";

/** A platform that refuses what SCORM 1.2 does not know. */
class Platform {
  values = new Map([["cmi.core.lesson_status", "not attempted"], ["cmi.suspend_data", ""]]);
  calls = [];
  open = false;

  LMSInitialize(nothing) {
    assert.equal(nothing, "");
    assert.ok(!this.open);
    this.open = true;
    return "true";
  }

  LMSGetValue(name) {
    assert.ok(this.open && this.values.has(name), name);
    return this.values.get(name);
  }

  LMSSetValue(name, value) {
    assert.ok(this.open);
    assert.equal(typeof value, "string");
    const forms = {
      "cmi.core.lesson_status": /^(passed|completed|failed|incomplete|browsed)$/,
      "cmi.core.lesson_location": /^.{0,255}$/,
      "cmi.core.session_time": /^\d{2,4}:\d{2}:\d{2}(\.\d{1,2})?$/,
      "cmi.suspend_data": /^.{0,4096}$/,
    };
    assert.match(value, forms[name] ?? /$^/, name);
    this.values.set(name, value);
    return "true";
  }

  LMSCommit() {
    this.calls.push("commit");
    return "true";
  }

  LMSFinish() {
    this.open = false;
    this.calls.push("finish");
    return "true";
  }
}

const events = new EventTarget();
const stored = new Map([["specdemo-lessons", JSON.stringify({ done: ["slow"], at: "slow" })]]); // another learner's
globalThis.localStorage = { getItem: (name) => stored.get(name) ?? null, setItem: (name, value) => stored.set(name, value) };
globalThis.addEventListener = events.addEventListener.bind(events);
globalThis.dispatchEvent = events.dispatchEvent.bind(events);
const platform = new Platform();
const top = { API: platform };
top.parent = top;
const frame = { parent: top };
globalThis.window = { parent: frame, opener: null };

const { LESSONS, readProgress, saveProgress } = await import("../../../assets/view/lessons/curriculum.js");
const { report } = await import("../../../assets/view/site/scorm.js");

// A new learner begins with nothing, whatever the browser holds.
report();
assert.deepEqual(readProgress(), { done: [], at: "" });
assert.equal(platform.values.get("cmi.core.lesson_status"), "incomplete");

// Each lesson is kept; the last one completes the course, and going back takes nothing away.
const ids = LESSONS.map(({ id }) => id);
ids.forEach((id, place) => {
  saveProgress({ done: ids.slice(0, place + 1), at: id });
  assert.equal(platform.values.get("cmi.core.lesson_status"), place === 7 ? "completed" : "incomplete");
});
saveProgress({ done: [], at: "check" });
assert.equal(platform.values.get("cmi.core.lesson_status"), "completed");
assert.equal(platform.values.get("cmi.core.lesson_location"), "check");
saveProgress({ done: ["slow", "check"], at: "exact" });
globalThis.dispatchEvent(new Event("pagehide"));
assert.equal(platform.calls.at(-1), "finish");
assert.match(platform.values.get("cmi.core.session_time"), /^0000:00:0\d$/);

// Another day, on another machine: the platform knows how far one was.
stored.clear();
report();
assert.deepEqual(readProgress(), { done: ["slow", "check"], at: "exact" });

// Without a platform, or beside a page that cannot be looked at, the site is as it is alone.
for (const parent of [null, { get API() { throw new Error("another origin"); } }]) {
  globalThis.window = { opener: null };
  globalThis.window.parent = parent ?? globalThis.window;
  saveProgress({ done: ["slow"], at: "slow" });
  const before = platform.calls.length;
  platform.open = false;
  report();
  assert.equal(platform.calls.length, before);
  platform.open = true;
}
