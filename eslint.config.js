// What a reader would stumble over in the page's scripts; types are checked by tsc.
import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/node_modules/", ".venv/", "build/", "dist/"] },
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-unused-vars": ["error", { varsIgnorePattern: "^_+$", argsIgnorePattern: "^_+$", caughtErrors: "none", ignoreRestSiblings: true }],
      "no-unused-private-class-members": "off", // takes `this.#frame ||= ...` for no use
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "no-shadow": "error",
      "no-implicit-coercion": ["error", { boolean: false }],
      "no-eval": "error",
      "no-implied-eval": "error",
    },
  },
  {
    files: ["assets/view/**/*.js"],
    languageOptions: { globals: globals.browser },
    rules: {
      // A browser offers these as globals by accident; a name that was not declared is one of them too easily.
      "no-restricted-globals": ["error", "event", "name", "status", "find", "top", "parent", "length", "open", "close", "stop"],
      "no-restricted-properties": ["error", { property: "innerHTML", message: "Text goes through textContent." }, { property: "outerHTML" }, { property: "insertAdjacentHTML" }],
      "no-console": "error",
    },
  },
  {
    files: ["assets/view/core/**/*.js"],
    languageOptions: { globals: Object.fromEntries(["document", "window", "location", "localStorage"].map((name) => [name, "off"])) },
  },
  { files: ["tests/**/*.mjs", "*.js"], languageOptions: { globals: globals.node } },
  { files: ["tests/ui/*.js"], languageOptions: { globals: globals.browser } }, // run in a page
];
