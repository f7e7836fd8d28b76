// What the page opens with: a recorded run, or the one that the address asks for.

import { readState } from "../core/permalink.js";
import { fetchFile } from "../core/recorded.js";
import { fill } from "../core/sentence.js";

/** The lines of the recorded run of an opening line, or of the one that the address asks for. */
export async function fetchRun(opening, words) {
  const asked = opening.key === "opening" ? readState(location.search).recorded : "";
  const other = asked && asked !== opening.run ? await fetchFile(asked) : null;
  if (other) return [{ ...opening, run: asked, title: "" }, ...other];
  const events = await fetchFile(opening.run);
  return [opening, ...(events ?? [{ type: "notice", message: fill(words.nothing, { name: opening.run }) }])];
}
