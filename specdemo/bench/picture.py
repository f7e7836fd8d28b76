"""The moving picture of the README: a recorded run, played on the real page in Chromium, as an animated WebP.

    python -m specdemo.bench.picture [--run 02-copy-and-edit] [--out assets/screenshots/run.webp]

The page is served in replay mode, the run is opened in it, and each position of the player becomes one frame.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specdemo.bench.page_speed import FLAGS, chromium, playwright, served
from specdemo.bench.recordings import RUNS
from specdemo.config.errors import UserError
from specdemo.config.paths import ASSETS

OUT = ASSETS / "screenshots/run.webp"
RUN = "02-copy-and-edit"
SIZE = {"width": 1280, "height": 800}
FRAME_MS, LAST_MS = 160, 3_000  # a frame, and the last one
SETTLE_MS = 400  # numbers and inspector follow the player a little later
MOST_BYTES = 2_000_000
# Moves the player to a position, and answers once the browser has drawn it.
_SEEK = """(position) => new Promise((done) => {
  const slider = document.querySelector("#sd-view .sd-scrub");
  slider.value = position;
  slider.dispatchEvent(new Event("input"));
  requestAnimationFrame(() => requestAnimationFrame(done));
})"""
_STILL = "*, *::before, *::after { transition: none !important; animation: none !important; caret-color: transparent; }"


def frames(url: str, run: Path) -> Iterator[bytes]:
    """A PNG for each position of the player, the first to the last. Raises UserError without Playwright."""
    with playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.goto(url)
        view = page.locator("#sd-view")
        view.locator(".sd-answer .sd-token").first.wait_for(timeout=60_000)
        page.wait_for_function("window.Plotly", timeout=60_000)
        page.add_style_tag(content=_STILL)
        shown = view.locator(".sd-answer").inner_text()
        view.locator("input[type=file]").set_input_files(run)
        page.wait_for_function(
            "(shown) => document.querySelector('#sd-view .sd-answer').innerText !== shown",
            arg=shown,
        )
        last = int(view.locator(".sd-scrub").get_attribute("max") or 0)
        clip = view.bounding_box()
        if not clip:
            raise UserError("bench.run_not_shown")
        for position in range(last + 1):
            page.evaluate(_SEEK, position)
            page.wait_for_timeout(SETTLE_MS)
            yield page.screenshot(clip=clip)
        browser.close()


def animate(pictures: Sequence[bytes], quality: int = 60) -> bytes:
    """PNGs of one size as an animated WebP that starts again after its last frame."""
    from PIL import Image

    images: list[Any] = [Image.open(io.BytesIO(picture)).convert("RGB") for picture in pictures]
    durations = [FRAME_MS] * (len(images) - 1) + [LAST_MS]
    written = io.BytesIO()
    images[0].save(
        written, "WEBP", save_all=True, append_images=images[1:], duration=durations, loop=0,
        quality=quality, method=4, minimize_size=True,
    )  # fmt: skip
    return written.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the picture. returns: 0, 1 for an error that was reported"""
    parser = argparse.ArgumentParser(description="Record the moving picture of the README.")
    parser.add_argument("--run", default=RUN, help=f"name of a recorded run (default: {RUN})")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        run = RUNS / f"{options.run}.jsonl"
        if not run.is_file():
            raise UserError("bench.unknown_recording", run=options.run)
        with served("--replay") as server:
            picture = animate(list(frames(server.url, run)))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if len(picture) > MOST_BYTES:
        sys.stderr.write(f"The picture has {len(picture):,} bytes; the most is {MOST_BYTES:,}.\n")
        return 1
    options.out.write_bytes(picture)
    sys.stdout.write(f"{options.out}: {len(picture):,} bytes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
