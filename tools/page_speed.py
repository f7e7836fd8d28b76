"""Measure first runs on the page beside the same runs on the command line, in turn.

    python -m tools.page_speed [--rounds 2] [--traces FOLDER]

Each example of the page is answered in Chromium by a visitor who has just come, then by `run`; browser, server and engine
share the cores. The exit status is 1 if a run of the page is below 0.97 of plain decoding, or its mean more than 5 % from
the command line's.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from specdemo.cli import console
from specdemo.config.strings import ASSETS
from specdemo.trace.events import RunStarted
from specdemo.trace.metrics import ComparedRun, speedup
from specdemo.trace.replay import parse
from tools.probe import ROOT, served, wait_until_ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TARGET = ("--target", "smollm2-135m-instruct")  # the embedded pair
LEAST, SAME = 0.97, 0.05  # what is asked for: of plain decoding; relative difference of the means
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
RUN_MS = 120_000
LOOK_MS = 500  # between looks whether the run has ended: a look takes time, too
VIEW = "document.querySelector('#sd-view .sd-mount').view"
ENDED = f"(({{ recorded, running, events }}) => !recorded && !running && events.length)({VIEW})"
TRACE = f"{VIEW}.events.map((event) => JSON.stringify(event)).join('\\n')"


def processor_seconds(browser: Browser) -> float:
    """Return the processor time of all processes of the browser."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return float(sum(process["cpuTime"] for process in processes))


def on_page(browser: Browser, url: str, prompt: str) -> tuple[str, float]:
    """Answer a prompt on the page of a new visitor. returns: the trace, and the cores that the browser took during the run"""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(url)
    page.locator(".sd-model-text", has_text="Ready").wait_for(timeout=RUN_MS)
    page.locator("#sd-prompt textarea").fill(prompt)
    begun, used = time.perf_counter(), processor_seconds(browser)
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function(ENDED, polling=LOOK_MS, timeout=RUN_MS)
    cores = (processor_seconds(browser) - used) / (time.perf_counter() - begun)
    trace = page.evaluate(TRACE)
    context.close()
    return trace, cores


def on_command_line(prompt: str) -> str:
    """Answer a prompt with `run`. returns: the trace"""
    command = [sys.executable, "-m", "specdemo", "run", prompt, *TARGET, "--json"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def asked(run: ComparedRun) -> dict[str, object]:
    """Return the settings of a run, without the detail that only the page shows."""
    header = next(event for event in run.trace if isinstance(event, RunStarted))
    return {name: value for name, value in header.settings.items() if name != "detail"}


def described(run: ComparedRun) -> str:
    """Return speedup and tokens per second, plain and drafted, and whether the run counts as undisturbed."""
    assert run.baseline
    rates = [one.tokens_per_second or 0.0 for one in (run.baseline, run.metrics)]
    note = "" if run.comparable else ", not comparable"
    return f"{times(run):.2f}x ({rates[0]:.0f}, {rates[1]:.0f} tokens/s{note})"


def times(run: ComparedRun) -> float:
    """Return the speedup also of a run that was disturbed."""
    return (run.baseline and speedup(run.baseline, run.metrics)) or 0.0


def summary(name: str, runs: Sequence[ComparedRun]) -> str:
    ratios, missed = [*map(times, runs)], sum(not run.comparable for run in runs)
    mean, lowest = statistics.mean(ratios), min(ratios)
    return f"{name}: mean {mean:.2f}x, lowest {lowest:.2f}x, {missed} of {len(runs)} not comparable"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each pair of runs, then the means."""
    parser = argparse.ArgumentParser(description="Compare runs on the page with the command line.")
    parser.add_argument("--rounds", type=int, default=1, help="runs of the examples (default: 1)")
    parser.add_argument("--traces", type=Path, help="folder in which all traces are saved")
    options = parser.parse_args(arguments)
    examples = json.loads((ASSETS / "examples.json").read_text("utf-8"))["examples"]
    prompts = [example["prompt"] for example in examples if example.get("shown")]
    runs: dict[str, list[ComparedRun]] = {"page": [], "line": []}
    with served(*TARGET) as url, sync_playwright() as play:
        wait_until_ready(url)
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for number, prompt in enumerate(prompts * options.rounds):
            shown, cores = on_page(browser, url, prompt)
            traces = {"page": shown, "line": on_command_line(prompt)}
            for name, text in traces.items():
                runs[name].append(ComparedRun(parse(text).trace))
                if options.traces:
                    options.traces.mkdir(parents=True, exist_ok=True)
                    (options.traces / f"{number:02}-{name}.jsonl").write_text(text, "utf-8")
            page, line = (one[-1] for one in runs.values())
            if asked(page) != asked(line):
                raise SystemExit(f"The settings differ: {asked(page)}, {asked(line)}")
            console.write(f"{prompt[:40]:<42}page {described(page)}, browser {cores:.2f} cores")
            console.write(f"{'':<42}command line {described(line)}")
        browser.close()
    for name, all_of_it in runs.items():
        console.write(summary(name, all_of_it))
    shown_mean, line_mean = (statistics.mean(map(times, one)) for one in runs.values())
    lowest = min(map(times, runs["page"]))
    return int(lowest < LEAST or abs(shown_mean / line_mean - 1) > SAME)


if __name__ == "__main__":
    raise SystemExit(main())
