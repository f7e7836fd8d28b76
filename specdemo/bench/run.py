"""The bench: variants and peers on a suite of prompts, in turn and repeated, and several conversations at the same time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from platform import python_version
from statistics import median

import specdemo
from specdemo.bench.lanes import (
    Lane,
    LaneLost,
    OwnLane,
    Paired,
    expand,
    is_own,
    run_lanes,
)
from specdemo.bench.peers import ServerLane, TransformersLane, open_peer
from specdemo.bench.results import (
    STRINGS,
    BenchAnswers,
    Journal,
    Result,
    Row,
    Table,
    against_table,
    as_factor,
    lanes_table,
    positions_table,
    tasks_table,
    versions,
)
from specdemo.config.errors import UserError, first_line
from specdemo.config.settings import RunSettings
from specdemo.config.strings import Json
from specdemo.drafters.methods import METHODS
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.session.studio import Studio
from specdemo.session.text import EXAMPLES, Item
from specdemo.session.work.batch import Batch, BatchAnswer
from specdemo.trace.events import NOTHING


def measure_throughput(
    studio: Studio,
    lanes: Mapping[str, RunSettings],
    prompts: Sequence[str],
    options: BenchOptions,
) -> list[Row]:
    """Answer the prompts in turn, and at the same time, each in its own conversation. Raises LaneLost if a run fails.

    lanes: the others are compared with the first one. Each repetition measures all of them in another order, so
        that other work on the machine slows all of them alike.
    returns: medians over repetitions of each lane. in_turn, together: new tokens per second of all conversations; the wall
        clock includes reading the prompts. ratio: together over in turn; over_plain: together over plain decoding together,
        in the same repetition
    """

    def rate(lane: str, at_once: int) -> float:
        """Return tokens per second."""
        batch = Batch(
            studio, prompts, lanes[lane], at_once=at_once, system=options.system
        ).answers()
        with closing(batch):
            for last in batch:
                if isinstance(last, BatchAnswer) and (last.dropped or last.error):
                    raise LaneLost(last.dropped or last.error)
        return last.tokens_per_second or 0.0

    in_turn: dict[str, list[float]] = {lane: [] for lane in lanes}
    together: dict[str, list[float]] = {lane: [] for lane in lanes}
    names = list(lanes)
    for number in range(options.repeat):
        first = number % len(names)
        order = names[first:] + names[:first]
        for at_once, rates in ((len(prompts), together), (1, in_turn)):
            for lane in order:
                rates[lane].append(rate(lane, at_once))
    plain = together[names[0]]
    return [
        {
            "lane": lane,
            "conversations": len(prompts),
            "in_turn": median(in_turn[lane]),
            "together": median(together[lane]),
            "ratio": _median_ratio(together[lane], in_turn[lane]),
            "over_plain": _median_ratio(together[lane], plain),
        }
        for lane in names
    ]


def _median_ratio(many: Sequence[float], one: Sequence[float]) -> float:
    return median(a / b for a, b in zip(many, one, strict=True))


def throughput_table(results: Sequence[Row]) -> Table:
    heads = ["conversations", "lane", "in turn, tokens/s", "together, tokens/s", "over in turn", "over plain together"]  # fmt: skip
    body = [
        [one["conversations"], one["lane"], f"{one['in_turn']:.0f}", f"{one['together']:.0f}",
         as_factor(one["ratio"]), as_factor(one["over_plain"])]
        for one in results
    ]  # fmt: skip
    return Table(heads, body, title="Several conversations at once")


WARM_UP_PROMPT = "Count from one to ten."
PACKAGES = ("torch", "transformers", "bitsandbytes")
Listen = Callable[[str], None]
COPYING = [name for name, method in METHODS.items() if "store" in method.uses]


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of a bench.

    lanes: names for `lanes.expand`; repeat: runs of the whole suite; first_turns: leave the later turns out
    busy: count pairs that other programs disturbed; until: `time.monotonic` at which no further prompt begins
    concurrent: numbers of conversations at the same time
    suite: file of the items; journal: file by which the same bench continues after an interruption
    """

    lanes: str
    repeat: int = 1
    first_turns: bool = False
    busy: bool = False
    until: float | None = None
    concurrent: Sequence[int] = ()
    system: str = ""
    suite: Path = EXAMPLES
    journal: Path | None = None


@dataclass(slots=True)
class Bench:
    """The state of a bench.

    settings: of each variant by its name; those of a peer are the settings of plain decoding
    notes: on variants and prompts that are not counted, and other remarks; `listen` is called with each
    values: descriptions of the models, the suite and the settings
    """

    studio: Studio
    items: Sequence[Item]
    options: BenchOptions
    settings: Mapping[str, RunSettings]
    listen: Listen
    measured: BenchAnswers
    values: Json = field(default_factory=dict)
    throughput: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)
        self.listen(sentence)

    def leave_out(self, name: str, why: str) -> None:
        self.note(f"{name} is left out: {why}")

    def lose(self, lane: str, why: str) -> None:
        """Leave out a variant that failed, with all its results."""
        self.measured.drop(lane)
        self.leave_out(lane, why)

    def rows(self) -> list[Json]:
        """Return the rows of `results`, with the memory and the training time of each method."""
        needs = ("memory_mb", "training_minutes")
        return [
            row | {key: self.values[key].get(row["lane"].partition(":")[0]) for key in needs}
            for row in self.measured.rows()
        ]

    def result(self) -> Result:
        rows, values = self.rows(), self.values
        tables = [
            lanes_table(rows),
            tasks_table(rows, NOTHING),
            against_table(self.measured),
            positions_table(rows),
            throughput_table(self.throughput),
        ]
        target, limits = values["target"], values["limits"]
        return Result(
            title=f"specdemo bench: {target['name']}",
            about=(
                f"{target['name']}, {target['precision']} ({target['kernel']}); {values['suite']}: "
                f"{values['prompts']} prompts, run {values['repeat']} times; "
                f"max new tokens {limits['max_new_tokens']}, temperature {limits['temperature']}."
            ),
            tables=[table for table in tables if table.rows],
            notes=[STRINGS["bench"], *self.notes],
            values={**values, "rows": rows, "throughput": self.throughput},
        )

    def run(self, progress: ProgressCallback) -> Iterator[Bench]:
        """Run the bench, see `run_bench`."""
        options, items = self.options, self.items
        with self._opened(progress) as lanes:
            self.values = self._values(lanes)
            if options.suite == EXAMPLES and self._copy_from_store():
                self.note(STRINGS["known_prompts"].format(", ".join(COPYING)))
            progress(Progress("bench", 0.0, "warming up"))
            list(run_lanes(lanes, [WARM_UP_PROMPT], lost=self.lose))  # not counted
            runs = [(number, item) for number in range(options.repeat) for item in items]
            journal = Journal(options.journal, self._about())
            longest = 0.0
            for number, (repetition, item) in enumerate(runs):
                which = f"prompt {number + 1} of {len(runs)}, {item.task}"
                progress(Progress("bench", number / len(runs), which))
                started = time.monotonic()
                if options.until and number and started + longest > options.until:
                    self.note(f"There was time for {number} of {len(runs)} prompts.")
                    break
                first = number % len(items) + repetition
                turns = journal.measured(
                    str(number), list[list[Paired]], partial(self._run_item, lanes, item, first)
                )
                for turn, pairs in enumerate(turns):
                    self.measured.add(item.task, f"{item.name}-{turn}", pairs)
                longest = max(longest, time.monotonic() - started)
                if self.measured.answers:
                    yield self
        if not self.measured.answers:
            raise UserError("bench.suite_failed")
        own = {name: self.settings[name] for name in lanes if is_own(name)}
        yield from self._run_concurrent(own, progress)
        journal.close()

    def _run_concurrent(
        self, own: Mapping[str, RunSettings], progress: ProgressCallback
    ) -> Iterator[Bench]:
        """Run the first turns of several prompts concurrently, with each number of runs in the options. own: variants of this program; yields: see `run_bench`"""
        for count in self.options.concurrent:
            progress(Progress("bench", None, f"{count} at once"))
            prompts = list(islice(cycle(item.turns[0] for item in self.items), count))
            try:
                self.throughput += measure_throughput(self.studio, own, prompts, self.options)
            except LaneLost as error:
                self.leave_out(f"{count} at once", " ".join(str(error).split()))
            yield self

    def _about(self) -> Json:
        """Return everything that the results of a prompt depend on."""
        return {
            "target": asdict(self.studio.pair.target.info),
            "settings": {name: one.to_dict() for name, one in self.settings.items()},
            "items": [asdict(item) for item in self.items],
            "options": [self.options.first_turns, self.options.system],
        }

    def _copy_from_store(self) -> bool:
        """Return whether a variant may draft from the shipped datastore, which was built for the bundled prompts."""
        studio = self.studio
        copies = any(one.method in COPYING for one in self.settings.values())
        return copies and studio.loaded.store is not None and studio.settings.store == "auto"

    def _run_item(self, lanes: dict[str, Lane], item: Item, number: int) -> list[list[Paired]]:
        """Return the answers to each turn. If a variant refuses a prompt, it and the later turns are left out for all.

        Raises UserError if plain decoding failed.
        """
        found: list[list[Paired]] = []
        turns = item.turns[:1] if self.options.first_turns else item.turns
        try:
            found.extend(run_lanes(lanes, turns, first=number, lost=self.lose))
        except UserError as error:
            if NOTHING not in lanes:
                raise
            self.leave_out(item.name, error.message)
        return found

    @contextmanager
    def _opened(self, progress: ProgressCallback) -> Iterator[dict[str, Lane]]:
        """Open the variants that can run here."""
        lanes: dict[str, Lane] = {}
        with tempfile.TemporaryDirectory(prefix="specdemo-bench-") as work:
            for name in self.settings:
                progress(Progress("bench", None, f"starting {name}"))
                try:
                    # In the engine's thread: loading a peer's weights computes, and a second team of threads
                    # in this process would slow down all our passes.
                    lanes[name] = self.studio.runner.call(partial(self._open, name, Path(work)))
                except (UserError, LaneLost) as error:
                    self.leave_out(name, " ".join(str(error).split()))
                except Exception as error:  # noqa: BLE001 - another program may fail in any way
                    self.leave_out(name, f"{type(error).__name__}: {first_line(error)}")
            yield lanes

    def _open(self, name: str, work: Path) -> Lane:
        studio, settings, system = self.studio, self.settings[name], self.options.system
        if not is_own(name):
            return open_peer(studio, name, settings, system, work)
        for info in studio.methods():
            if info.name == settings.method and not info.available:
                raise LaneLost(info.why_not)
        return OwnLane(studio, name, settings, system)

    def _values(self, lanes: Mapping[str, Lane]) -> Json:
        pair, plain = self.studio.pair, self.settings[NOTHING]
        methods, cards = self.studio.methods(), self.studio.loaded_about().cards
        ours = [one for name, one in self.settings.items() if is_own(name) and name != NOTHING]
        return {
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
            "suite": self.options.suite.name,
            "prompts": len(self.items),
            "repeat": self.options.repeat,
            "peers": {
                name: lane.facts
                for name, lane in lanes.items()
                if isinstance(lane, TransformersLane | ServerLane)
            },
            "memory_mb": {info.name: info.memory_mb for info in methods if info.memory_mb},
            "training_minutes": {
                info.name: cards[info.name]["minutes"] for info in methods if info.name in cards
            },
        }


def run_bench(
    studio: Studio,
    items: Sequence[Item],
    options: BenchOptions,
    settings_of: Callable[[str], RunSettings],
    *,
    listen: Listen,
    progress: ProgressCallback = silent,
) -> Iterator[Bench]:
    """Run every variant on every prompt, one at a time; then our variants on several prompts at the same time.

    settings_of: returns the settings of one of our variants by its name; listen: see `Bench`
    yields: the bench with the results so far, after each prompt
    """
    names = list(dict.fromkeys([NOTHING, *expand(options.lanes, studio)]))
    recommended = studio.pair.recommended.sampling
    settings = {
        name: settings_of(name if is_own(name) else NOTHING).drawn(recommended) for name in names
    }
    bench = Bench(studio, items, options, settings, listen, BenchAnswers(busy=options.busy))
    yield from bench.run(progress)
