"""From a model's file to its first token: seconds and memory of the first start, from an empty cache, and of later ones.

    python -m specdemo.bench.starts MODEL.gguf [--draft NAME] [--later 2] [--json starts.json]

Each start is a process of its own, and its seconds count from before the process. Linux and macOS.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from specdemo.config.settings import AppSettings
from specdemo.files.progress import Progress, folder_bytes, megabytes

PROMPT = "Write a function that adds two numbers."


@dataclass(frozen=True, slots=True)
class Start:
    """One start.

    seconds: to the first token; processor: seconds of all threads; peak_bytes: most memory at a moment, mapped files included
    stages: the second at which each stage of loading was first reported
    """

    seconds: float
    processor: float
    peak_bytes: int
    stages: dict[str, float]


def start(settings: AppSettings, began: float) -> Start:
    """Load a pair in this process and read a prompt.

    began: when the process was asked for, by `time.monotonic()`, which all processes of a machine share
    """
    from specdemo.models.pair import load_pair

    stages: dict[str, float] = {}

    def report(progress: Progress) -> None:
        stages.setdefault(progress.stage, round(time.monotonic() - began, 1))

    pair = load_pair(settings, report)
    pair.open_target().read(pair.tokenizer.encode(PROMPT))
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return Start(time.monotonic() - began, time.process_time(), peak, stages)


def measure(target: str, draft: str, later: int, cache: Path) -> list[Start]:
    """The first start with a cache, and those after it."""
    found = []
    for _ in range(1 + later):
        command = [sys.executable, "-m", __spec__.name, target, "--draft", draft]
        command += ["--cache", str(cache), "--began", str(time.monotonic())]
        found.append(Start(**json.loads(_answer(command))))
    return found


def _answer(command: list[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("target")
    parser.add_argument("--draft", default="none")
    parser.add_argument("--later", type=int, default=1, help="starts after the first one")
    parser.add_argument("--cache", type=Path, help="a folder to use in place of an empty one")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.began:
        settings = AppSettings(target=options.target, draft=options.draft, cache_dir=options.cache)
        print(json.dumps(asdict(start(settings, options.began))))  # noqa: T201 - to the parent
        return 0
    with tempfile.TemporaryDirectory() as empty:
        cache = options.cache or Path(empty)
        starts = measure(options.target, options.draft, options.later, cache)
        packed = max((folder_bytes(one) for one in cache.glob("models/*-nf4-*")), default=0)
    for number, one in enumerate(starts):
        print(  # noqa: T201 - what was asked for
            f"{'later' if number else 'first'} start: {one.seconds:.1f} s to the first token, "
            f"{one.processor:.1f} s of processor time, peak {megabytes(one.peak_bytes)} "
            f"for {megabytes(packed)} packed; stages from {one.stages}"
        )
    if options.json:
        rows = [asdict(one) for one in starts]
        options.json.write_text(json.dumps({"packed_bytes": packed, "starts": rows}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
