"""Record the runs that are shipped with the page: each is the most typical of several real takes.

python -m tools.record [NAME ...] [--takes N]

`assets/runs/index.json` lists them; the page opens with the first. The first take is dropped; of those that can be compared
(nothing disturbed them) and whose plain run was within 5 % of the fastest, the one with the median speedup is kept.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.cli import console
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.config.strings import Json
from specdemo.trace.codec import dumps
from specdemo.trace.events import PLAIN, SPECULATIVE, Event, RunFailed, Trace
from specdemo.trace.metrics import disturbed, measure, repeats_itself, speedup
from specdemo.trace.replay import INDEX_FILE, RUNS, RecordedRun, parse, read_index

if TYPE_CHECKING:
    from specdemo.session.studio import Studio

DETAIL = 5
UNDISTURBED = 1.05  # times the seconds of the fastest plain run


def run_settings(recording: RecordedRun) -> RunSettings:
    """Return the settings of a recording's runs. Raises UserError for a value out of range."""
    fixed = {"detail": DETAIL, "fallback": False, "memory": False}
    return RunSettings.from_values({**fixed, **recording.settings})


def record(
    studio: Studio, recording: RecordedRun, *, takes: int, listen: Callable[[str], None]
) -> list[Event]:
    """Run a recording `takes` times after a warm-up. returns: the events of the chosen take"""
    settings = run_settings(recording)
    done: list[tuple[float, float, list[Event]]] = []
    for take in range(takes + 1):
        conversation = studio.open()
        events = list(conversation.run(recording.prompt, settings, cancel=threading.Event()))
        conversation.close()
        if failed := next((event for event in events if isinstance(event, RunFailed)), None):
            raise SystemExit(f"{recording.name}: {failed.message} {failed.advice}")
        trace = Trace(tuple(events))
        plain, other = measure(trace.lane("plain")), measure(trace.lane("speculative"))
        ratio = speedup(plain, other) or 1.0
        listen(
            f"{recording.name}: {'warm-up' if not take else f'take {take}'}, plain {plain.tokens_per_second:.0f} tok/s, {ratio:.2f}x"
        )
        if take and not disturbed(trace):
            done.append((plain.tokens_per_second or 0.0, ratio, events))
    if not done:
        raise SystemExit(f"{recording.name}: other programs disturbed every take.")
    fastest = max(rate for rate, _, _ in done)
    good = sorted(
        (item for item in done if item[0] * UNDISTURBED >= fastest), key=lambda item: item[1]
    )
    return good[(len(good) - 1) // 2][2]


def record_all(names: Sequence[str], takes: int) -> None:
    """Record the runs of the index, or those named, with the settings of the environment."""
    wanted = [entry for entry in read_index(RUNS) if not names or entry.name in names]
    if missing := set(names) - {entry.name for entry in wanted}:
        raise SystemExit(f"The index of runs does not list: {', '.join(sorted(missing))}")
    for pair in dict.fromkeys((entry.target, entry.precision) for entry in wanted):
        named = {"target": pair[0]} if pair[0] else {}
        settings = AppSettings.from_environment(precision=pair[1], **named)
        studio = console.load_studio(settings)
        for entry in (one for one in wanted if (one.target, one.precision) == pair):
            events = record(studio, entry, takes=takes, listen=console.note)
            (RUNS / f"{entry.name}.jsonl").write_text(dumps(events), encoding="utf-8")
    write_index(RUNS)


def with_result(entry: Json, events: Sequence[Event]) -> Json:
    """Return an entry of the index with the speedup of its run (two decimals), and whether its text repeats itself."""
    trace = Trace(tuple(events))
    entry = {name: value for name, value in entry.items() if name not in ("speedup", "repeats")}
    times = speedup(measure(trace.lane(PLAIN)), measure(trace.lane(SPECULATIVE)))
    entry |= {"speedup": round(times, 2)} if times else {}
    return entry | ({"repeats": True} if repeats_itself(trace) else {})


def write_index(folder: Path) -> None:
    """Write the results of the recorded runs into the index of their folder."""
    index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
    for at, entry in enumerate(index["runs"]):
        path = folder / f"{entry['name']}.jsonl"
        if path.is_file():
            events = parse(path.read_text(encoding="utf-8")).trace.events
            index["runs"][at] = with_result(entry, events)
    text = json.dumps(index, ensure_ascii=False, indent=1) + "\n"
    (folder / INDEX_FILE).write_text(text, encoding="utf-8")


def main() -> None:
    """Record as the command line names it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="names of runs in the index; all by default")
    parser.add_argument("--takes", type=int, default=4, help="takes of each run (default: 4)")
    options = parser.parse_args()
    record_all(options.names, options.takes)


if __name__ == "__main__":
    main()
