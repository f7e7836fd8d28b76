"""One bench: lanes and peers on a suite, in turn and repeated, and what to write about it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

import specdemo
from specdemo.bench.floor import FloorLane, pass_bytes
from specdemo.bench.lanes import (
    FLOOR,
    PEERS,
    PLAIN,
    Lane,
    LaneLost,
    LaneResult,
    OwnLane,
    expand,
    is_own,
    run_lanes,
)
from specdemo.bench.peer import versions
from specdemo.bench.peers import PeerLane, open_peer, target_folder
from specdemo.bench.policies import Oracle, regret_table
from specdemo.bench.report import Report, against, by_position, markdown, readme, summary
from specdemo.bench.suite import EXAMPLES, Item
from specdemo.bench.throughput import Throughput, as_table, measure_throughput
from specdemo.config.errors import UserError
from specdemo.drafters.methods import METHODS
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.session.loaded import machine_name
from specdemo.trace.codec import dumps

if TYPE_CHECKING:
    from specdemo.config.settings import RunSettings
    from specdemo.session.studio import Studio

WARM_UP = "Count from one to ten."
PACKAGES = ("torch", "transformers", "bitsandbytes")
Listen = Callable[[str], None]


COPYING = [name for name, method in METHODS.items() if "store" in method.uses]
KNOWN = (
    "The shipped datastore holds answers to these very prompts: {} know them. "
    "`--store none`, or another --suite, shows what they give on new ones."
)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is compared, and how often.

    lanes: as `lanes.expand` reads them; repeat: runs of the whole suite; first_turns: leave the later turns out
    concurrent: each count of conversations at once that is measured; traces: folder for every run's trace
    suite: where the items are from; command_line: how this bench was asked for
    """

    lanes: str
    repeat: int = 1
    first_turns: bool = False
    concurrent: Sequence[int] = ()
    system: str = ""
    traces: Path | None = None
    suite: Path = EXAMPLES
    command_line: str = ""


@dataclass(slots=True)
class Bench:
    """What was found.

    notes: on lanes and prompts that are not in it, and on what to read with care; `listen` gets each at once
    """

    options: BenchOptions
    report: Report
    oracle: Oracle
    listen: Listen
    facts: dict[str, Any] = field(default_factory=dict)
    throughput: list[Throughput] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, name: str, why: str) -> None:
        """Say that a lane or a prompt is not counted."""
        self.note(f"{name} is left out: {why}")

    def note(self, sentence: str) -> None:
        """Say something that stands beside the figures."""
        self.notes.append(sentence)
        self.listen(sentence)

    def lose(self, lane: str, why: str) -> None:
        """Leave out a lane that broke on the way, with what it had done."""
        self.report.drop(lane)
        self.leave_out(lane, why)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and for `html_report.render`."""
        return {
            **self.facts,
            "notes": self.notes,
            "rows": self.report.rows(),
            "throughput": [asdict(result) for result in self.throughput],
        }

    def tables(self) -> str:
        """Everything as Markdown, also readable in a terminal."""
        rows = self.report.rows()
        own = [row for row in rows if is_own(str(row["lane"]))]
        blocks = [
            markdown(rows),
            summary(rows, self.facts["memory_mb"], self.facts["training_minutes"]),
            against(self.report, [*PEERS, FLOOR]),
            "By position:\n\n" + by_position(rows),
            regret_table(own, self.oracle.speedup()),
            as_table(self.throughput) if self.throughput else "",
        ]
        return "\n\n".join(block for block in blocks if block)

    def readme(self) -> str:
        """The README's table, the sentence above it and the command below it."""
        options, facts, rows = self.options, self.facts, self.report.rows()
        plain = next(r for r in rows if r["lane"] == PLAIN and r["task"] == "mean")
        target, limits = facts["target"], facts["limits"]
        about = (
            f"Speedup over plain decoding of the same prompts: {target['name']}, {target['precision']}, "
            f"{facts['machine']}; plain {plain['tokens_per_second']:.0f} tokens/s; temperature "
            f"{limits['temperature']:g}, {limits['max_new_tokens']} new tokens, {facts['prompts']} prompts, "
            f"{'one run' if options.repeat == 1 else f'medians of {options.repeat} runs'}:"
        )
        command = f"```sh\n{options.command_line}\n```"
        return f"{about}\n\n{readme(rows, PLAIN)}\n\n{command}"


def run_bench(
    studio: Studio,
    items: Sequence[Item],
    options: BenchOptions,
    settings_of: Callable[[str], RunSettings],
    *,
    listen: Listen,
    progress: ProgressCallback = silent,
) -> Bench:
    """Run every lane on every prompt, one at a time.

    settings_of: the settings that one of our lanes' names stands for; listen: see `Bench`
    """
    if options.repeat < 1 or min(options.concurrent, default=1) < 1:
        raise UserError("bench.no_repetition")
    bench = Bench(options, Report(PLAIN), Oracle(studio.pair.costs), listen)
    names = list(dict.fromkeys([PLAIN, *expand(options.lanes, studio)]))
    settings = {name: settings_of(name if is_own(name) else PLAIN) for name in names}
    with _opened(studio, settings, bench, progress) as lanes:
        bench.facts = _facts(studio, items, options, settings, lanes)
        if options.suite == EXAMPLES and _copy_from_store(studio, settings):
            bench.note(KNOWN.format(", ".join(COPYING)))
        progress(Progress("bench", 0.0, "warming up"))
        list(run_lanes(lanes, [WARM_UP], lost=bench.lose))  # not counted
        runs = [(number, item) for number in range(options.repeat) for item in items]
        for number, (repetition, item) in enumerate(runs):
            which = f"prompt {number + 1} of {len(runs)}, {item.task}"
            progress(Progress("bench", number / len(runs), which))
            _run_item(bench, lanes, item, repetition, number)
    if not bench.report.totals:
        raise UserError("bench.suite_failed")
    for count in options.concurrent:
        progress(Progress("bench", None, f"{count} at once"))
        bench.throughput += _throughput(studio, items, options, settings, count)
    return bench


def _copy_from_store(studio: Studio, settings: dict[str, RunSettings]) -> bool:
    """Whether a lane may draft from the shipped datastore, which was made for the bundled prompts."""
    copies = any(one.method in COPYING for one in settings.values())
    return copies and studio.shipped.store is not None and studio.settings.store == "auto"


def _run_item(
    bench: Bench, lanes: dict[str, Lane], item: Item, repetition: int, number: int
) -> None:
    """Count one conversation; from a prompt that a lane refuses on, it is left out for all of them."""
    turns = item.turns[:1] if bench.options.first_turns else item.turns
    try:
        for turn, results in enumerate(run_lanes(lanes, turns, first=number, lost=bench.lose)):
            bench.report.add(item.task, results, repetition)
            bench.oracle.add(item.task, results)
            _save_traces(bench.options.traces, f"{item.name}-{turn}", results)
    except UserError as error:
        bench.leave_out(item.name, error.message)


@contextmanager
def _opened(
    studio: Studio, settings: dict[str, RunSettings], bench: Bench, progress: ProgressCallback
) -> Iterator[dict[str, Lane]]:
    """The lanes that can run here. Processes that were started are ended, whatever happens."""
    lanes: dict[str, Lane] = {}
    with tempfile.TemporaryDirectory(prefix="specdemo-bench-") as work:
        try:
            for name, wanted in settings.items():
                progress(Progress("bench", None, f"starting {name}"))
                try:
                    # In the engine's thread: to write a peer's weights is to compute, and a second
                    # team of threads in this process would slow every pass of ours.
                    lanes[name] = studio.runner.call(
                        partial(_open, studio, name, wanted, bench.options.system, Path(work))
                    )
                except (UserError, LaneLost) as error:
                    bench.leave_out(name, " ".join(str(error).split()))
            yield lanes
        finally:
            for lane in lanes.values():
                if isinstance(lane, PeerLane):
                    lane.process.close()


def _open(studio: Studio, name: str, settings: RunSettings, system: str, work: Path) -> Lane:
    if name in PEERS:
        return open_peer(studio, name, settings, system, work)
    if name == FLOOR:
        target = studio.pair.target
        num_bytes = pass_bytes(target_folder(studio), target.info.name, target.info.precision)
        return FloorLane.on(
            str(target.device), num_bytes, settings.max_new_tokens, studio.runner.call
        )
    return OwnLane(studio, name, settings, system)


def _throughput(
    studio: Studio,
    items: Sequence[Item],
    options: BenchOptions,
    settings: dict[str, RunSettings],
    count: int,
) -> list[Throughput]:
    """Each of our lanes on first turns; a short suite is gone through again. Peers answer one at a time."""
    prompts = list(islice(cycle(item.turns[0] for item in items), count))
    own = {name: wanted for name, wanted in settings.items() if is_own(name)}
    return measure_throughput(studio, own, prompts, repeat=options.repeat, system=options.system)


def _facts(
    studio: Studio,
    items: Sequence[Item],
    options: BenchOptions,
    settings: dict[str, RunSettings],
    lanes: dict[str, Lane],
) -> dict[str, Any]:
    """What was compared on what, as plain values."""
    pair, plain = studio.pair, settings[PLAIN]
    methods = studio.methods()
    ours = [wanted for name, wanted in settings.items() if is_own(name) and name != PLAIN]
    return {
        "machine": machine_name(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": options.command_line,
        "versions": {
            "specdemo": specdemo.__version__,
            "python": python_version(),
            **versions(*PACKAGES),
        },
        "target": asdict(pair.target.info),
        "draft": asdict(pair.draft_info) if pair.draft_info else None,
        "costs": asdict(pair.costs),
        "settings": (ours or [plain])[0].to_dict(),
        "limits": {
            "max_new_tokens": plain.max_new_tokens,
            "temperature": plain.sampling.temperature,
        },
        "suite": options.suite.name,
        "prompts": len(items),
        "repeat": options.repeat,
        "peers": {
            name: lane.process.facts for name, lane in lanes.items() if isinstance(lane, PeerLane)
        },
        "floor_bytes": {
            name: lane.num_bytes for name, lane in lanes.items() if isinstance(lane, FloorLane)
        }.get(FLOOR),
        "memory_mb": {info.name: info.memory_mb for info in methods if info.memory_mb},
        "training_minutes": {
            info.name: card["minutes"] for info in methods if (card := studio.card(info.name))
        },
    }


def _save_traces(folder: Path | None, name: str, results: Sequence[LaneResult]) -> None:
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for result in results:
        if result.events:
            lane = result.name.replace(":", "-")
            (folder / f"{name}-{lane}.jsonl").write_text(dumps(result.events), encoding="utf-8")
