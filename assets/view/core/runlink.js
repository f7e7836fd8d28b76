// A short run as a part of an address: its trace without alternatives, compressed, after the #.

import { readTrace } from "./lines.js";

/** @import { Event } from "../types" */
/** @import { Line } from "./state" */
const MARK = "#trace=";
export const LONGEST = 32_000; // letters of a run in an address; unpacked, it is a thousand times as long at most
const DIGITS = 4; // of a number in a link

/** The run as the end of an address; empty for one that is too long. @param {Line[]} events */
export async function writeRun(events) {
  const lines = events.map((event) => JSON.stringify(event, (name, value) => (name === "places" ? undefined : short(value))));
  const packed = await bytesOf(new Blob([lines.join("\n")]).stream().pipeThrough(new CompressionStream("deflate-raw")));
  const text = btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join(""));
  const link = text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return link.length > LONGEST ? "" : MARK + link;
}

/**
 * The run in the end of an address; null for an address without one. Anyone may have written it.
 * @param {string} hash @returns {Promise<{ items: Event[], line: number, problem: string } | null>}
 */
export async function readRun(hash) {
  if (!hash.startsWith(MARK)) return null;
  if (hash.length > MARK.length + LONGEST) return { items: [], line: 0, problem: "it is too large" };
  try {
    const base64 = hash.slice(MARK.length).replaceAll("-", "+").replaceAll("_", "/");
    const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const bytes = await bytesOf(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")));
    return readTrace(new TextDecoder().decode(bytes));
  } catch {
    return { items: [], line: 0, problem: "it is damaged" };
  }
}

/** @param {unknown} value */
const short = (value) => (typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(DIGITS)) : value);

/** All bytes of a stream. @param {ReadableStream<Uint8Array>} stream */
const bytesOf = async (stream) => new Uint8Array(await new Response(stream).arrayBuffer());
