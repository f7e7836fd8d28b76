// A zip archive of files as they are: what is large in it is compressed already, or small.

/** @typedef {[name: string, content: string | Uint8Array]} Entry */

const UTF8 = 0x0800; // of names
const DATE = 0x0021; // 1 January 1980: the same content gives the same archive
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
  return rest;
});

/** @param {Entry[]} entries */
export function zipped(entries) {
  const texts = new TextEncoder();
  /** @type {Uint8Array[]} */
  const parts = [];
  /** @type {Uint8Array[]} */
  const listed = [];
  let at = 0;
  for (const [name, content] of entries) {
    const bytes = typeof content === "string" ? texts.encode(content) : content;
    const path = texts.encode(name);
    const about = [20, UTF8, 0, 0, DATE, [crc(bytes)], [bytes.length], [bytes.length], path.length, 0];
    listed.push(record([[0x02014b50], 20, ...about, 0, 0, 0, [0], [at]]), path);
    const head = record([[0x04034b50], ...about]);
    parts.push(head, path, bytes);
    at += head.length + path.length + bytes.length;
  }
  const size = listed.reduce((sum, { length }) => sum + length, 0);
  const end = record([[0x06054b50], 0, 0, entries.length, entries.length, [size], [at], 0]);
  return joined([...parts, ...listed, end]);
}

/** Numbers of two bytes, those in a list of four. @param {(number | number[])[]} fields */
function record(fields) {
  return Uint8Array.from(fields.flatMap((field) =>
    typeof field === "number" ? [field, field >> 8] : [field[0], field[0] >> 8, field[0] >> 16, field[0] >> 24]));
}

/** @param {Uint8Array[]} parts */
function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** @param {Uint8Array} bytes */
function crc(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = TABLE[(sum ^ byte) & 0xff] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}
