// The presenter mode: large type, more contrast, only what matters. The style sheet does the rest.

const CLASS = "sd-presenter";

export class Presenter {
  /** changed(on): told after each change. */
  constructor(changed) {
    this.changed = changed;
  }

  get on() {
    return document.body.classList.contains(CLASS);
  }

  set(on) {
    if (on === this.on) return;
    document.body.classList.toggle(CLASS, on);
    globalThis.dispatchEvent(new Event("resize")); // charts take their new room
    this.changed(on);
  }

  toggle() {
    this.set(!this.on);
  }
}
