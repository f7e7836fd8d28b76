// Before the page's scripts: its language, the first words, and Plotly as soon as a run is seen. It stands in the page
// itself, after what it is given, imports nothing, and declares nothing for others.

{
  const UNTRANSLATED_MS = 8000; // the page waits for its words no longer
  const WORDLESS_MS = 5000; // Plotly waits for the first token of a run no longer: there may be none
  const LOOK_MS = 50;
  const TOKEN = "#sd-view .sd-answer .sd-token";
  const LEFT_MS = 3000; // the first words stand this long at most beside a page without a run
  const NEUTRAL = new Set(["lang", "theme", "__theme"]); // what an address may ask for and still be shown the opening run

  const given = JSON.parse(document.getElementById("sd-given")?.textContent ?? "{}");
  const page = document.documentElement;
  const query = new URLSearchParams(location.search);
  const language = [query.get("lang"), navigator.language.slice(0, 2)].find((wished) => given.languages.includes(wished)) ?? "en";
  page.classList.toggle("sd-translating", language !== "en");
  setTimeout(() => page.classList.remove("sd-translating"), UNTRANSLATED_MS);

  const first = document.getElementById("sd-first");
  if (first && (location.hash || [...query.keys()].some((name) => !NEUTRAL.has(name)))) first.remove();
  else if (first) {
    const theme = query.get("theme") ?? query.get("__theme");
    const dark = matchMedia("(prefers-color-scheme: dark)").matches ? theme !== "light" : theme === "dark";
    first.classList.toggle("dark", dark);
    for (const element of first.querySelectorAll(".sd-badge, .sd-headline")) {
      element.textContent = given.words[language]?.[element.textContent ?? ""] ?? element.textContent;
    }
    page.lang = language;
    for (const done of ["pointerdown", "keydown"]) addEventListener(done, () => first.remove(), { once: true });
  }

  const begun = performance.now();
  let mounted = 0;
  const looking = setInterval(() => {
    const now = performance.now();
    const seen = document.querySelector(TOKEN) !== null;
    if (document.querySelector("#sd-view .sd-root")) mounted ||= now;
    if (seen || (mounted && now - mounted > LEFT_MS) || document.querySelector("input[type=password]")) first?.remove();
    if (!seen && now - begun < WORDLESS_MS) return;
    if (!document.querySelector(`script[src="${given.plotly}"]`)) {
      const script = document.createElement("script");
      script.src = given.plotly;
      document.head.append(script);
    }
    if (!first?.isConnected) clearInterval(looking);
  }, LOOK_MS);
}
