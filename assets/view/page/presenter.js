// The presenter mode: large type, more contrast, only what matters. The style sheet does the rest.

const CLASS = "sd-presenter";

/** The element whose classes say how the page looks. It lies inside the part that Gradio's styles reach. */
export const pageRoot = () => /** @type {HTMLElement} */ (document.getElementById("sd-header")?.parentElement);

export class Presenter {
  /** changed(on): called after each change. @param {(on: boolean) => void} changed */
  constructor(changed) {
    this.changed = changed;
  }

  get on() {
    return pageRoot().classList.contains(CLASS);
  }

  /** @param {boolean} on */
  set(on) {
    if (on === this.on) return;
    pageRoot().classList.toggle(CLASS, on);
    globalThis.dispatchEvent(new Event("resize")); // charts take their new room
    this.changed(on);
  }

  toggle() {
    this.set(!this.on);
  }
}
