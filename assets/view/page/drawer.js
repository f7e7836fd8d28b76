// The drawer of settings: opened by its button, closed by it, by its own cross and by Esc.

import { el } from "../parts/dom.js";
import { pageRoot } from "./presenter.js";

const OPEN = "sd-drawer-open";

/** Open the drawer, or close it. @param {{ label: string, close: string }} words */
export function turn(words) {
  const drawer = document.getElementById("sd-controls");
  if (!drawer) return;
  if (!drawer.querySelector(".sd-drawer-close")) furnish(drawer, words);
  set(!pageRoot().classList.contains(OPEN));
}

/** @param {HTMLElement} drawer @param {{ label: string, close: string }} words */
function furnish(drawer, { label, close }) {
  drawer.setAttribute("role", "region");
  drawer.setAttribute("aria-label", label);
  drawer.prepend(el("button", { type: "button", class: "sd-drawer-close sd-dialog-close", "aria-label": close, onclick: () => set(false) }, "\u00d7"));
  drawer.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.preventDefault();
    event.stopPropagation();
    set(false);
  });
}

/** @param {boolean} open */
function set(open) {
  const top = document.getElementById("sd-view")?.getBoundingClientRect().top ?? 0;
  pageRoot().style.setProperty("--sd-drawer-top", `${Math.max(0, Math.round(top))}px`); // below the prompt and the method
  pageRoot().classList.toggle(OPEN, open);
  const button = document.getElementById("sd-settings");
  button?.setAttribute("aria-expanded", String(open));
  if (open) /** @type {HTMLElement | null} */ (document.querySelector("#sd-controls .sd-drawer-close"))?.focus();
  else button?.focus();
}
