// Small helpers to build elements; text only ever goes through textContent.

/** An element with properties ("class", "data-*", "aria-*" and the like are attributes) and children. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** An element of a drawing; every property is an attribute. */
export function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** Call at most once in `wait` milliseconds, the last call always. */
export function calm(wait, call) {
  let timer = 0;
  let last = 0;
  return () => {
    const now = performance.now();
    if (timer) return;
    const rest = Math.max(0, last + wait - now);
    timer = setTimeout(() => {
      timer = 0;
      last = performance.now();
      call();
    }, rest);
  };
}

/** Resolves when an element is first on the screen. */
export const firstSeen = (element) => /** @type {Promise<void>} */ (new Promise((resolve) => {
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    resolve();
  });
  observer.observe(element);
}));

/** Set a text that may stand there already: writing it again would make the browser lay the line out once more. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** An element with a text, which is nothing where there is none. */
export const textEl = (tag, text, attributes = {}) => el(tag, attributes, text ?? "");
