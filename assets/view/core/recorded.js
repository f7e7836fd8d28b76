// The recorded runs beside the scripts, fetched by their names.

import { readTrace } from "./lines.js";

/** The events of a recorded run; null when it is not there. @param {string} name */
export async function fetchFile(name) {
  if (!/^[\w-]+$/.test(name)) return null;
  const answer = await fetch(new URL(`../../runs/${name}.jsonl`, import.meta.url)).catch(() => null);
  return answer?.ok ? readTrace(await answer.text()).items : null;
}

/** All recorded runs by name and title; none where they cannot be read. @returns {Promise<{ name: string, title: string }[]>} */
export async function fetchRuns() {
  try {
    const { runs } = await (await fetch(new URL("../../runs/index.json", import.meta.url))).json();
    return runs;
  } catch {
    return [];
  }
}
