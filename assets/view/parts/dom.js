// Small helpers to build elements; text only ever goes through textContent.

/** @import { Attributes, Given } from "./page" */

/**
 * An element with properties ("class", "data-*", "aria-*" and the like are attributes) and children; null and undefined are left out.
 * @template {string} Tag
 * @param {Tag} tag @param {Attributes} [attributes] @param {...(Node | string | null | undefined)} children
 * @returns {Tag extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Tag] : HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return /** @type {ReturnType<typeof el<Tag>>} */ (node);
}

/**
 * An element of a drawing; every property is an attribute.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag @param {Record<string, string | number | undefined>} attributes @param {...(Node | string)} children
 */
export function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** A button, by default as those of the view. @param {string} label @param {() => void} act @param {Attributes} [attributes] */
export const button = (label, act, attributes = {}) => el("button", { type: "button", class: "sd-button", ...attributes, onclick: act }, label);

/** A menu; choices: [value, title] each @param {Attributes} attributes @param {(readonly [string, string])[]} choices */
export const menu = (attributes, choices) => el("select", attributes, ...choices.map(([value, title]) => el("option", { value }, title)));

/**
 * Copy a text, and write in `note` whether the browser let the page do so. Resolves with the same.
 * @param {string} text @param {Element} note @param {string} done @param {string} failed
 */
export async function copyText(text, note, done, failed) {
  const copied = (await navigator.clipboard?.writeText(text).then(() => true, () => false)) ?? false;
  note.textContent = copied ? done : failed;
  return copied;
}

/** A QR code as a drawing, white around it. @param {{ size: number, path: string }} code @param {string} label */
export const qrCode = ({ size, path }, label) =>
  svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": label, "shape-rendering": "crispEdges" }, svg("path", { d: path }));

/** Call at most once in `wait` milliseconds, the last call always. @param {number} wait @param {() => void} call */
export function calm(wait, call) {
  let timer = 0;
  let last = 0;
  return () => {
    if (timer) return;
    timer = setTimeout(() => {
      timer = 0;
      last = performance.now();
      call();
    }, Math.max(0, last + wait - performance.now()));
  };
}

/**
 * Call `draw` with what a part is given as JSON, now and whenever it changes.
 * @param {Pick<Given, "read" | "watch">} given @param {(value: any) => void} draw @param {string} [nothing]
 */
export function follow({ read, watch }, draw, nothing = "{}") {
  const now = () => draw(JSON.parse(read() || nothing));
  watch(now);
  now();
}

/** Resolves when an element is first on the screen. @param {Element} element */
export const firstSeen = (element) => /** @type {Promise<void>} */ (new Promise((resolve) => {
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    resolve();
  });
  observer.observe(element);
}));

/** The element with a selector that an event's target lies in. @param {EventTarget | null} target @param {string} selector */
export const closest = (target, selector) => (target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest(selector)) : null);

/**
 * Set a text that may stand there already: writing it again would make the browser lay the line out once more.
 * @param {Element} node @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ---- What the browser keeps from visit to visit, as far as it keeps anything

/** What is kept under a name; null for nothing. @param {string} name @returns {any} */
export function readKept(name) {
  try {
    return JSON.parse(localStorage.getItem(name) ?? "null");
  } catch {
    return null;
  }
}

/** Keep a value; where storage is blocked it lasts as long as the page. @param {string} name @param {unknown} value */
export function keep(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    // nothing is lost but the memory of it
  }
}
