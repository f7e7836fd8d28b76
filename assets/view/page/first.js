// Before the page's scripts: its language, and the beginning of the opening run, which plays until the page does; Plotly
// after it. It stands in the page itself, after what it is given, imports nothing, and leaves to the page how far it has played.

{
  const UNTRANSLATED_MS = 8000; // the page waits for its words no longer
  const WORDLESS_MS = 5000; // Plotly waits for the first token of a run no longer: there may be none
  const LOOK_MS = 50;
  const FRAME_MS = 90;
  const TOKEN = "#sd-view .sd-answer .sd-token";
  const ANSWERS = "#sd-view :is([data-phase=waiting], [data-phase=reading], .sd-running)";
  const PRESSED_MS = 1000; // until a run stands there whose button was pressed
  const LEFT_MS = 3000; // the run stands this long at most beside a page without one
  const WATCHED_MS = 16_000; // that the whole run is played in, see play/view.js
  const NEUTRAL = new Set(["lang", "theme", "__theme"]); // what an address may ask for and still be shown the opening run

  const given = JSON.parse(document.getElementById("sd-given")?.textContent ?? "{}");
  const page = document.documentElement;
  const query = new URLSearchParams(location.search);
  const language = [query.get("lang"), navigator.language.slice(0, 2)].find((wished) => given.languages.includes(wished)) ?? "en";
  page.classList.toggle("sd-translating", language !== "en");
  setTimeout(() => page.classList.remove("sd-translating"), UNTRANSLATED_MS);

  const begun = performance.now();
  const first = document.getElementById("sd-first");
  let next = 0;
  const play = () => {
    const now = ((performance.now() - begun) * given.until) / WATCHED_MS;
    for (; next < given.steps.length && given.steps[next].at <= now; next += 1) {
      const { plain, tokens = [] } = given.steps[next];
      if (plain) first?.querySelector(".sd-plain-text")?.append(plain);
      for (const [word, status] of tokens) {
        const token = document.createElement("span");
        token.className = `sd-token sd-${status}`;
        const mark = document.createElement("span");
        mark.className = "sd-mark";
        mark.textContent = word.trimStart();
        token.append(word.slice(0, word.length - word.trimStart().length), mark);
        first?.querySelector(".sd-answer")?.append(token);
      }
    }
  };
  if (first && (location.hash || history.state?.trace || [...query.keys()].some((name) => !NEUTRAL.has(name)))) first.remove();
  else if (first) {
    const run = Object.assign(document.createElement("link"), { rel: "preload", as: "fetch", crossOrigin: "", fetchPriority: "low", href: given.run });
    document.head.append(run);
    const theme = query.get("theme") ?? query.get("__theme");
    const dark = matchMedia("(prefers-color-scheme: dark)").matches ? theme !== "light" : theme === "dark";
    first.classList.toggle("dark", dark);
    for (const element of first.querySelectorAll(".sd-badge, .sd-headline")) {
      element.textContent = given.words[language]?.[element.textContent ?? ""] ?? element.textContent;
    }
    page.lang = language;
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
      first.dataset.begun = String(begun);
      first.dataset.pace = String(given.until / WATCHED_MS);
    }
  }

  // Gradio's clocks ask for sixty frames a second while a run answers, and what computes may be on this machine: they get ten.
  const [frame, cancel] = [requestAnimationFrame.bind(window), cancelAnimationFrame.bind(window)];
  window.requestAnimationFrame = (call) => (document.querySelector(ANSWERS) ? -setTimeout(frame, FRAME_MS, call) : frame(call));
  window.cancelAnimationFrame = (id) => (id < 0 ? clearTimeout(-id) : cancel(id));

  let touched = Infinity; // when somebody used the page, who may want the charts
  const use = () => {
    touched = performance.now();
    first?.remove();
  };
  for (const used of ["pointerdown", "keydown"]) addEventListener(used, use, { once: true });
  /** Plotly holds up everything for a second or two: it comes when the opening run has been played, and not while one answers. @param {boolean} seen */
  const load = (seen) => {
    const now = performance.now();
    const waited = now - begun;
    const played = given.until && first?.dataset.begun ? waited > WATCHED_MS : seen || waited > WORDLESS_MS;
    if (document.querySelector(ANSWERS) || !(touched === Infinity ? played : now - touched > PRESSED_MS)) return false;
    const script = document.createElement("script");
    script.src = given.plotly;
    document.head.append(script);
    return true;
  };

  let loaded = false;
  let mounted = 0;
  const looking = setInterval(() => {
    const now = performance.now();
    if (document.querySelector("#sd-view .sd-root")) mounted ||= now;
    const seen = document.querySelector(TOKEN) !== null;
    if (seen || (mounted && now - mounted > LEFT_MS) || document.querySelector("input[type=password]")) first?.remove();
    if (first?.isConnected && first.dataset.begun) play();
    loaded ||= load(seen);
    if (loaded && !first?.isConnected) clearInterval(looking);
  }, LOOK_MS);
}
