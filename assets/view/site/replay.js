// One saved run with its player, in the file that `player_page` of specdemo/ui/player.py writes.

import { el } from "../parts/dom.js";
import { frame, given } from "./frame.js";
import { mount } from "../play/view.js";

const words = given("sd-words");
const run = given("sd-run");
const place = el("div", { class: "sd-site-play" });
frame(words.export.page, place);
document.body.classList.add("sd-hide-charts");
if (run) {
  document.title = `${run.title} · ${words.export.page.title}`;
  const open = { type: "open", source: "recorded", key: "file", title: run.title };
  mount(place, { read: () => `${JSON.stringify(open)}\n${run.trace}`, watch() {}, words });
}
