// The head of a tab: where its numbers come from, what is going on, what ran where, and the prompt.

import { el, setText } from "./dom.js";

export class Head {
  constructor() {
    this.badge = el("span", { class: "sd-badge" });
    this.phase = el("span", { class: "sd-race-phase sd-waits", role: "status" });
    this.about = el("span", { class: "sd-about" });
    this.root = el("div", { class: "sd-race-status" }, this.badge, this.phase, this.about);
    this.prompt = el("p", { class: "sd-asked" });
  }

  /** kind: of the source, named by badge. @param {Record<"kind" | "badge" | "phase" | "about" | "prompt", string>} shown */
  render({ kind, badge, phase, about, prompt }) {
    setText(this.badge, badge);
    this.badge.className = `sd-badge sd-badge-${kind}`;
    setText(this.phase, phase);
    setText(this.about, about);
    setText(this.prompt, prompt);
    this.prompt.hidden = !prompt;
  }
}
