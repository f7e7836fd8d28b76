// The visitor's last run on this page, for parts that look at it.

/** @import { Mounted } from "./view" */

/** Its events; null while nothing was run here, and where a recorded run is shown. */
export function lastRun() {
  const mounted = /** @type {Mounted | null} */ (document.querySelector("#sd-view .sd-mount"));
  const { events, recorded } = mounted?.view ?? {};
  return events?.length && !recorded ? events : null;
}
