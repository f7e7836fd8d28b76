// Sentences of the page, with their values.

/** A sentence with its {names} filled in. */
export const fill = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
