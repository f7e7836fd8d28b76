// The recorded runs next to the scripts, by their names: fetched, or contained in a page that was opened from a disk.

import { readTrace } from "./lines.js";

/** @import { Event } from "../types" */

/** @type {Record<string, string>} */
let contained = {};

/** Read files from a table instead of from the network. @param {Record<string, string>} files texts by path */
export const readFrom = (files) => (contained = files);

/** The text of a file in the folder of recorded runs; null if it is not there. @param {string} name */
async function fileText(name) {
  const path = `runs/${name}`;
  if (Object.hasOwn(contained, path)) return contained[path];
  const answer = await fetch(new URL(`../../${path}`, import.meta.url)).catch(() => null);
  return answer?.ok ? answer.text() : null;
}

/** Runs that were read or are being read, by name. @type {Map<string, Promise<Event[] | null>>} */
const known = new Map();

/** The events of a recorded run, which is read once; null if it is not there. @param {string} name */
export function fetchFile(name) {
  const found = known.get(name) ?? read(name);
  known.set(name, found);
  found.then((items) => items ?? known.delete(name)); // so that the next attempt asks again
  return found;
}

/** @param {string} name @returns {Promise<Event[] | null>} */
async function read(name) {
  const text = /^[\w-]+$/.test(name) ? await fileText(`${name}.jsonl`) : null;
  return text === null ? null : readTrace(text).items;
}

/** All recorded runs by name and title; none if they cannot be read. @returns {Promise<{ name: string, title: string }[]>} */
export async function fetchRuns() {
  try {
    return JSON.parse((await fileText("index.json")) ?? "").runs;
  } catch {
    return [];
  }
}
