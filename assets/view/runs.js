// The recorded runs beside the script, and their menu: choosing one sends its name, and the menu is itself again.

import { el, fill } from "./dom.js";
import { readTrace } from "./lines.js";
import { readState } from "./permalink.js";

/** The lines of the recorded run of an opening line, or of the one that the address asks for. */
export async function fetchRun(opening, words) {
  const asked = opening.key === "opening" ? readState(location.search).recorded : "";
  const other = asked && asked !== opening.run ? await fetchFile(asked) : null;
  if (other) return [{ ...opening, run: asked, title: "" }, ...other];
  const events = await fetchFile(opening.run);
  return [opening, ...(events ?? [{ type: "notice", message: fill(words.nothing, { name: opening.run }) }])];
}

/** The events of a recorded run; null when it is not there. */
export async function fetchFile(name) {
  if (!/^[\w-]+$/.test(name)) return null;
  const answer = await fetch(new URL(`../runs/${name}.jsonl`, import.meta.url)).catch(() => null);
  return answer?.ok ? readTrace(await answer.text()).items : null;
}

/** Draw the menu in `element`; words.runs lists [name, title]. */
export function mountRuns(element, { send, words }) {
  const option = (value, text) => {
    const node = el("option", { value });
    node.textContent = text;
    return node;
  };
  const menu = el("select", { class: "sd-runs", "aria-label": words.label });
  menu.append(option("", words.label), ...words.runs.map(([name, title]) => option(name, title)));
  menu.addEventListener("change", () => {
    if (menu.value) send(menu.value);
    menu.value = "";
  });
  element.replaceChildren(menu);
}
