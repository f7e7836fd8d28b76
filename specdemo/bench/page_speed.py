"""How fast the page is, measured in Chromium: first words, frames and charts while a long run plays, memory after many runs.

    python -m specdemo.bench.page_speed [--url http://127.0.0.1:7860] [--json page_speed.json]

Without an address it serves the page itself, with recorded runs alone. The long run is the recorded runs' own
steps, one after the other, until there are 512 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from specdemo.bench.recordings import RUNS, read_index
from specdemo.config.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 512
LOADS = 3  # cold loads; the median counts
HEAP_AFTER = (1, 10, 100)  # runs
SMOOTH_SECONDS = 1 / 60 + 0.0004  # a gap above it has dropped a frame of 60 a second
WORDS_SECONDS, BEHIND_SECONDS, HEAP_GROWTH = 2.0, 0.1, 2.0  # what is asked for
FLAGS = ["--no-sandbox", "--disable-background-networking", "--enable-precise-memory-info"]

# Notes when a run's first words and when its player stand on the page, seconds after the navigation began.
_WATCH = """() => {
  const look = () => {
    const now = performance.now() / 1000;
    const player = document.querySelector("#sd-view .sd-answer .sd-token");
    if (player || document.querySelector("#sd-first .sd-token")) window.__words ??= now;
    if (player) window.__player = now;
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
# At every frame: the gap since the one before, seconds, how many judged steps the text shows, and how many the chart.
_FRAMES = """(seconds) => new Promise((done) => {
  const frames = [];
  const answer = document.querySelector("#sd-view .sd-answer");
  const shown = () => answer.querySelectorAll(".sd-step:not(.sd-later, .sd-open)").length;
  const chart = document.querySelector("#sd-view .sd-plot");
  const drawn = () => Math.max(0, ...(chart.data ?? []).flatMap((one) => one.customdata ?? []).map((step) => step + 1));
  let last = performance.now();
  const begun = last;
  const tick = (now) => {
    frames.push([(now - last) / 1000, shown(), drawn()]);
    last = now;
    if (now - begun < seconds * 1000) requestAnimationFrame(tick);
    else done(frames.slice(1));
  };
  requestAnimationFrame(tick);
})"""
_STEPS = "Number(document.querySelector('#sd-view .sd-scrub').max)"


def long_run(folder: Path = RUNS, tokens: int = TOKENS) -> list[dict[str, Any]]:
    """Events of one run made of recorded ones: a plain lane, then at least so many tokens with drafts."""
    runs = [folder / f"{run.name}.jsonl" for run in read_index(folder)]
    lanes = [_lanes(path) for path in runs if path.is_file()]
    lanes = [lane for lane in lanes if {"plain", "speculative"} <= set(lane)]
    if not lanes:
        raise UserError("bench.no_recordings")
    plain, first = lanes[0]["plain"], lanes[0]["speculative"]
    events = [*plain, first[0]]
    step, elapsed, count = 0, 0.0, 0
    while count < tokens:
        for lane in (lane["speculative"] for lane in lanes):
            begun, done = step, elapsed
            for event in lane:
                if event["type"] not in ("drafted", "verified") or count >= tokens:
                    continue
                step = begun + event["step"] + 1
                moved = {**event, "step": begun + event["step"]}
                if event["type"] == "verified":
                    elapsed = done + event["elapsed_seconds"]
                    moved["elapsed_seconds"] = elapsed
                    count += len(event["path"]) + 1
                events.append(moved)
    finished = {"type": "finished", "lane": "speculative", "reason": "length"}
    return [*events, {**finished, "new_tokens": count, "elapsed_seconds": elapsed}]


def frame_figures(gaps: list[float]) -> dict[str, float]:
    """Median and 95th percentile of the gaps between frames, seconds, and the share that dropped a frame."""
    ordered = sorted(gaps)
    dropped = sum(gap > SMOOTH_SECONDS for gap in gaps) / len(gaps)
    return {
        "frames_per_second": len(gaps) / sum(gaps),
        "median_seconds": statistics.median(ordered),
        "p95_seconds": ordered[int(0.95 * (len(ordered) - 1))],
        "dropped_share": dropped,
    }


def chart_figures(frames: list[tuple[float, int, int]]) -> dict[str, float]:
    """How long a judged step is in the text before it is in the chart, seconds: median, 95th percentile and most.

    frames: see `_FRAMES`. Steps at the end that the chart does not reach any more do not count.
    """
    waiting: dict[int, float] = {}
    behind: list[float] = []
    now, last = 0.0, 0
    for gap, shown, drawn in frames:
        now += gap
        if shown != last:
            waiting[shown] = now
            last = shown
        for step in [step for step in waiting if step <= drawn]:
            behind.append(now - waiting.pop(step))
    ordered = sorted(behind)
    return {
        "median_seconds": statistics.median(ordered),
        "p95_seconds": ordered[int(0.95 * (len(ordered) - 1))],
        "most_seconds": ordered[-1],
    }


def measure_page(url: str) -> dict[str, Any]:
    """All figures of the page at an address. Raises UserError without Playwright."""
    events = long_run()
    with tempfile.TemporaryDirectory() as folder, playwright() as play:
        path = Path(folder) / "long.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
        browser = play.chromium.launch(executable_path=chromium(), args=FLAGS)
        paints: list[tuple[float, float]] = []
        for _ in range(LOADS):
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            page = context.new_page()
            page.add_init_script(f"({_WATCH})()")
            page.goto(url)
            page.wait_for_function("window.__player", timeout=60_000)
            paints.append(tuple(page.evaluate("[window.__words, window.__player]")))
            if len(paints) < LOADS:
                context.close()
        page.wait_for_function("window.Plotly", timeout=60_000)
        opener = page.locator("#sd-view input[type=file]")
        steps = page.evaluate(_STEPS)
        opener.set_input_files(path)
        page.wait_for_function(f"{_STEPS} !== {steps}", timeout=30_000)
        seconds = sum(event["elapsed_seconds"] for event in events if event["type"] == "finished")
        frames = [tuple(frame) for frame in page.evaluate(_FRAMES, seconds)]
        heaps = _heaps(page, opener, path)
        browser.close()
    return {
        "first_words_seconds": statistics.median(first for first, _ in paints),
        "player_seconds": statistics.median(player for _, player in paints),
        "tokens": events[-1]["new_tokens"],
        "detail": any(event.get("places") for event in events),
        "frames": frame_figures([gap for gap, _, _ in frames]),
        "charts": chart_figures(frames),
        "heap_bytes": heaps,
    }


def playwright() -> Any:
    """A context manager that drives browsers. Raises UserError where Playwright is not installed."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise UserError("bench.no_playwright") from error
    return sync_playwright()


def chromium() -> str | None:
    """Path of the system's Chromium; None for the one that Playwright brings."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def failures(figures: dict[str, Any]) -> list[str]:
    """What falls short of what is asked for, a sentence each."""
    found = []
    if figures["first_words_seconds"] > WORDS_SECONDS:
        found.append(f"The first words of a run take longer than {WORDS_SECONDS:.0f} s.")
    if figures["charts"]["p95_seconds"] > BEHIND_SECONDS:
        found.append(f"Charts are more than {BEHIND_SECONDS * 1000:.0f} ms behind the player.")
    heaps = list(figures["heap_bytes"].values())
    if heaps[-1] > HEAP_GROWTH * heaps[0]:
        found.append(f"The heap more than doubles over {HEAP_AFTER[-1]} runs.")
    return found


def table(figures: dict[str, Any]) -> str:
    """The figures as lines of text."""
    frames, charts = figures["frames"], figures["charts"]
    detail = "with full detail" if figures["detail"] else "without detail: none is recorded"
    rows = [
        ("first words of a recorded run, cold", f"{figures['first_words_seconds']:.2f} s"),
        ("its player", f"{figures['player_seconds']:.2f} s"),
        (f"while {figures['tokens']} tokens play", detail),
        ("frames a second", f"{frames['frames_per_second']:.0f}"),
        ("gap between frames, median", f"{frames['median_seconds'] * 1000:.1f} ms"),
        ("gap between frames, 95 %", f"{frames['p95_seconds'] * 1000:.1f} ms"),
        ("gaps above 17 ms", f"{frames['dropped_share'] * 100:.1f} %"),
        ("chart behind the player, median", f"{charts['median_seconds'] * 1000:.0f} ms"),
        ("chart behind the player, 95 %", f"{charts['p95_seconds'] * 1000:.0f} ms"),
        ("chart behind the player, most", f"{charts['most_seconds'] * 1000:.0f} ms"),
    ]
    rows += [
        (f"heap after {runs} runs", f"{size / 1e6:.0f} MB")
        for runs, size in figures["heap_bytes"].items()
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def main() -> int:
    """returns: 0 when all is as asked for, else 1"""
    parser = argparse.ArgumentParser(description="Measure the page in Chromium.")
    parser.add_argument("--url", help="a page that is already served; it must show recorded runs")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    try:
        if options.url:
            figures = measure_page(options.url)
        else:
            with served("--replay") as server:
                figures = measure_page(server.url)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(table(figures) + "\n")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for sentence in failures(figures):
        sys.stderr.write(sentence + "\n")
    return 1 if failures(figures) else 0


def _lanes(path: Path) -> dict[str, list[dict[str, Any]]]:
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = dict.fromkeys(event["lane"] for event in events)
    return {name: [event for event in events if event["lane"] == name] for name in names}


def _heaps(page: Any, opener: Any, path: Path) -> dict[int, int]:
    """Bytes of the script's heap once so many runs were shown to their end, without what can be collected."""
    protocol = page.context.new_cdp_session(page)
    sizes = {}
    for run in range(1, HEAP_AFTER[-1] + 1):
        opener.set_input_files(path)
        page.locator("#sd-view .sd-move-end").click()
        page.wait_for_function("document.querySelector('#sd-view .sd-move-end').disabled")
        if run in HEAP_AFTER:
            page.wait_for_timeout(1000)  # charts are drawn a little later
            protocol.send("HeapProfiler.collectGarbage")
            sizes[run] = int(protocol.send("Runtime.getHeapUsage")["usedSize"])
    return sizes


@dataclass(frozen=True, slots=True)
class Server:
    """A process that serves the page."""

    url: str
    pid: int


@contextmanager
def served(*options: str, errors: IO[bytes] | None = None) -> Iterator[Server]:
    """The page, served by a process of its own that ends with this block. errors: what it writes to stderr goes there"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "app.py", *options, "--no-browser", "--port", str(port)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors, env={**os.environ}
    )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(url).close()  # noqa: S310 - our own server
                break
            except OSError:
                if process.poll() is not None:
                    raise UserError("bench.page_not_served") from None
                time.sleep(0.2)
        yield Server(url, process.pid)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
