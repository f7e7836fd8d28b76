// Sentences of the page, with their values.

/** A sentence with its {names} filled in. @param {string} sentence @param {Record<string, unknown>} values */
export const fill = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
