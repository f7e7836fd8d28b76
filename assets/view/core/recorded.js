// The recorded runs beside the scripts, fetched by their names.

import { readTrace } from "./lines.js";

/** The events of a recorded run; null when it is not there. */
export async function fetchFile(name) {
  if (!/^[\w-]+$/.test(name)) return null;
  const answer = await fetch(new URL(`../../runs/${name}.jsonl`, import.meta.url)).catch(() => null);
  return answer?.ok ? readTrace(await answer.text()).items : null;
}
