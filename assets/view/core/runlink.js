// A short run as a part of an address: its trace without alternatives, compressed, after the #.

import { readTrace } from "./lines.js";

/** @import { Event } from "../types" */
/** @import { Line } from "./state" */
const MARK = "#trace=";
export const LONGEST = 32_000; // letters of a run in an address
const LARGEST = 8_000_000; // bytes of a text that is unpacked
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

/** All bytes of a stream. Throws an Error for one that is too large. @param {ReadableStream<Uint8Array>} stream */
async function bytesOf(stream) {
  const reader = stream.getReader();
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    if (size > LARGEST) {
      await reader.cancel();
      throw new Error("it is too large");
    }
  }
  const out = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
