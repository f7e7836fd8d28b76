"""One result for every benchmark: sums by variant and task, and the tables of reports."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import reduce
from itertools import zip_longest
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from specdemo.bench.lanes import LaneResult
from specdemo.config.strings import Json, JsonView
from specdemo.session.loaded import machine_name
from specdemo.trace.metrics import Metrics, calibration_error, same_prefix, together

Row = Json  # values of one variant on one task, see `LaneTotals.rows`
REPORTED_POSITIONS = (1, 2, 3, 4, 5)  # positions in a draft that are reported
MEAN = "mean"  # in the column of tasks: the mean over all of them


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report. Tables that follow each other under the same title share its explanation."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    about: str = ""


@dataclass(slots=True)
class Result:
    """The outcome of one benchmark: its JSON file, the terminal and the HTML page show the same tables.

    facts: descriptions of the measurement, by name; notes: remarks on the figures; values: the numbers behind the tables
    """

    title: str
    about: str = ""
    tables: list[Table] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    values: Json = field(default_factory=dict)
    machine: str = field(default_factory=machine_name)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    command: str = field(
        default_factory=lambda: shlex.join(["python", "-m", "specdemo", *sys.argv[1:]])
    )

    def to_dict(self) -> Json:
        """Return plain values; the keys of `values` are next to the result's own."""
        data = asdict(self)
        values: Json = data.pop("values")
        return data | values

    @classmethod
    def from_dict(cls, data: JsonView) -> Result:
        """Return the result that `to_dict` described; a file may lack facts, notes and command."""
        own = {"command": ""} | {
            part.name: data[part.name] for part in fields(cls) if part.name in data
        }
        rest = {name: data[name] for name in data if name not in own}
        return cls(**own | {"tables": [Table(**table) for table in data["tables"]], "values": rest})


def write_file(path: Path, content: str) -> None:
    """Replace a file as a whole, so that an interruption never leaves half of it; a device is written to."""
    if path.exists() and not path.is_file():
        path.write_text(content, encoding="utf-8")
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(content, encoding="utf-8")
    part.replace(path)


class Journal:
    """Results that are stored as they come, by key; the same measurement continues with them after an interruption.

    path: a file of JSON lines, deleted by `close`; None stores nothing
    about: description of the measurement; the results of another one are discarded
    """

    def __init__(self, path: Path | None, about: Json) -> None:
        self._path = path
        self.stored: dict[str, Any] = {}
        if path is None:
            return
        head = json.dumps(about, sort_keys=True, default=str)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if lines[:1] == [head]:
            for line in lines[1:]:
                with suppress(ValueError):  # the last line may be cut
                    self.stored |= json.loads(line)
        write_file(path, "".join(f"{line}\n" for line in [head, *map(_line, self.stored.items())]))

    def store(self, key: str, value: object) -> None:
        """Append one result."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line((key, value)) + "\n")

    def close(self) -> None:
        """Delete the file: the measurement is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _line(item: tuple[str, object]) -> str:
    return json.dumps(dict([item]))


@dataclass(slots=True)
class Totals:
    """Sums over the runs of one variant on one task.

    same_tokens: tokens before each output first differs from plain decoding's
    margins: at each such position, the gap between the target's probabilities of the two tokens
    rounds: tokens and seconds of each repetition of the suite
    """

    metrics: Metrics = field(
        default_factory=lambda: Metrics(0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    )
    outputs: int = 0
    same_outputs: int = 0
    same_tokens: int = 0
    plain_tokens: int = 0
    margins: list[float] = field(default_factory=list)
    rounds: dict[int, tuple[int, float]] = field(default_factory=dict)

    def add(self, result: LaneResult, plain: LaneResult, repetition: int = 0) -> None:
        """Count one output, and whether it equals plain decoding's."""
        self.metrics = add_metrics(self.metrics, result.metrics)
        tokens, seconds = self.rounds.get(repetition, (0, 0.0))
        self.rounds[repetition] = (
            tokens + result.metrics.new_tokens,
            seconds + result.metrics.elapsed_seconds,
        )
        if not result.ids:  # a computed variant has no output to compare
            return
        self.outputs += 1
        self.same_outputs += result.ids == plain.ids
        same = same_prefix(result.ids, plain.ids)
        self.same_tokens += same
        self.plain_tokens += len(plain.ids)
        if same < min(len(result.probs), len(plain.probs)):
            self.margins.append(abs(result.probs[same] - plain.probs[same]))

    @property
    def rates(self) -> dict[int, float]:
        """New tokens per second of decoding by repetition, without those that took no time."""
        return {
            number: tokens / seconds
            for number, (tokens, seconds) in self.rounds.items()
            if tokens and seconds
        }

    def values(self) -> Row:
        """Return the rates and means of a row."""
        sums = self.metrics
        positions = [*sums.accept_by_position, *[None] * len(REPORTED_POSITIONS)]
        seconds = {"draft": sums.draft_seconds, "verify": sums.verify_seconds}
        seconds["overhead"] = sums.overhead_seconds
        return {
            "tokens_per_second": median(self.rates.values()) if self.rates else 0.0,
            "first_accept_rate": sums.first_accept_rate,
            **{f"accept_{position}": positions[position - 1] for position in REPORTED_POSITIONS},
            "survival_error": calibration_error(sums.survivals),
            "drafted_accept_rate": sums.drafted_accept_rate,
            "tokens_per_step": sums.tokens_per_step,
            "draft_ms_per_token": _ratio(1000 * sums.draft_seconds, sums.drafted) or None,
            "verify_ms_per_step": _ratio(1000 * sums.verify_seconds, sums.steps) or None,
            "hit_rate": sums.hit_rate,
            **{
                f"{part}_share": _ratio(spent, sums.elapsed_seconds)
                for part, spent in seconds.items()
            },
            "same_output_rate": _ratio(self.same_outputs, self.outputs),
            "same_prefix_rate": _ratio(self.same_tokens, self.plain_tokens),
            "flip_margin": median(self.margins) if self.margins else None,
            "outputs": self.outputs,
        }


def add_metrics(one: Metrics, other: Metrics) -> Metrics:
    """Return the sums of two runs' metrics."""
    sums = {
        part.name: getattr(one, part.name) + getattr(other, part.name)
        for part in fields(Metrics)
        if part.name not in ("positions", "survivals")
    }
    pairs = zip_longest(one.positions, other.positions, fillvalue=(0, 0))
    positions = tuple((a + c, b + d) for (a, b), (c, d) in pairs)
    return Metrics(**sums, positions=positions, survivals=together(one.survivals, other.survivals))


@dataclass(slots=True)
class LaneTotals:
    """Totals by task and variant; `plain` is the variant that the others are compared with."""

    plain: str
    totals: dict[str, dict[str, Totals]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Totals))
    )

    def add(self, task: str, results: Iterable[LaneResult], repetition: int = 0) -> None:
        """Count one prompt's results. repetition: number of the run of the whole suite"""
        results = list(results)
        plain = next(result for result in results if result.name == self.plain)
        for result in results:
            self.totals[task][result.name].add(result, plain, repetition)

    def drop(self, lane: str) -> None:
        """Remove a variant that failed: it answered fewer prompts than the rest."""
        for lanes in self.totals.values():
            lanes.pop(lane, None)

    def ratios(self, lane: str, other: str, task: str) -> dict[int, float]:
        """Return the tokens per second of one variant over another's on a task, by repetition."""
        mine, theirs = (self.totals[task][name].rates for name in (lane, other))
        return {number: rate / theirs[number] for number, rate in mine.items() if number in theirs}

    def mean_ratios(self, lane: str, other: str) -> list[float]:
        """Return the mean over tasks of these ratios, a value for each repetition."""
        by_repetition: dict[int, list[float]] = defaultdict(list)
        for task in self.totals:
            for number, ratio in self.ratios(lane, other, task).items():
                by_repetition[number].append(ratio)
        return [mean(ratios) for ratios in by_repetition.values()]

    @property
    def lanes(self) -> list[str]:
        """Names in order."""
        return list(next(iter(self.totals.values()))) if self.totals else []

    def rows(self) -> list[Row]:
        """Return a row for each task and variant, then the mean over tasks for each variant.

        Rates and speedups are medians over repetitions of the suite, `speedup_quartiles` their spread. `survival_error` is
        the expected calibration error of the predicted probabilities of acceptance; the mean row has the one over all
        tasks.
        """
        rows: list[Row] = [
            {"task": task, "lane": lane}
            | totals.values()
            | _spread(self.ratios(lane, self.plain, task).values())
            for task, lanes in self.totals.items()
            for lane, totals in lanes.items()
        ]
        for lane in self.lanes:
            of_lane = [row for row in rows if row["lane"] == lane]
            summary: Row = {"task": MEAN, "lane": lane}
            for key in of_lane[0]:
                values = [row[key] for row in of_lane if isinstance(row[key], int | float)]
                summary.setdefault(key, mean(values) if values else None)
            sums = reduce(add_metrics, (lanes[lane].metrics for lanes in self.totals.values()))
            summary["survival_error"] = calibration_error(sums.survivals)
            rows.append(summary | _spread(self.mean_ratios(lane, self.plain)))
        return rows


def _spread(ratios: Iterable[float]) -> Row:
    """Return the median of repeated measurements, and their quartiles if there are several."""
    values = list(ratios)
    lower_upper = quantiles(values, n=4, method="inclusive")[::2] if len(values) > 1 else None
    return {"speedup": median(values) if values else None, "speedup_quartiles": lower_upper}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def as_percent(value: float) -> str:
    """Return a ratio as whole percent."""
    return f"{100 * value:.0f} %"


def as_factor(value: float) -> str:
    """Return a speedup with two digits."""
    return f"{value:.2f}x"


COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "tokens_per_second": ("tokens/s", "{:.0f}".format),
    "speedup": ("speedup", as_factor),
    "speedup_quartiles": ("quartiles", lambda value: f"{value[0]:.2f}-{value[1]:.2f}x"),
    "first_accept_rate": ("first accepted", as_percent),
    "drafted_accept_rate": ("drafts accepted", as_percent),
    "tokens_per_step": ("tokens/step", "{:.2f}".format),
    "draft_ms_per_token": ("draft ms/token", "{:.2f}".format),
    "verify_ms_per_step": ("verify ms/step", "{:.1f}".format),
    "hit_rate": ("prepared drafts used", as_percent),
    "same_output_rate": ("same output", as_percent),
    "same_prefix_rate": ("same until", as_percent),
    "flip_margin": ("tie margin", "{:.3f}".format),
}
SUMMARY = (
    "tokens_per_second", "speedup", "first_accept_rate", "drafted_accept_rate", "tokens_per_step",
    "draft_ms_per_token",
)  # fmt: skip


def cell(row: Row, key: str) -> str:
    """Return a value of a row as its column shows it."""
    return "-" if row[key] is None else COLUMNS[key][1](row[key])


def means(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of means over tasks."""
    return [row for row in rows if row["task"] == MEAN]


def lanes_table(rows: Sequence[Row]) -> Table:
    """Return all rows without the columns that have no value."""
    shown = [key for key in COLUMNS if any(row[key] is not None for row in rows)]
    body = [[row["task"], row["lane"], *(cell(row, key) for key in shown)] for row in rows]
    return Table(["task", "lane", *(COLUMNS[key][0] for key in shown)], body, title="Lanes")


def summary_table(
    rows: Sequence[Row],
    memory_mb: Mapping[str, float],
    training_minutes: Mapping[str, float] | None = None,
) -> Table:
    """Return a row for each variant: its mean over tasks, its worst task, memory and training time.

    memory_mb: besides the target's, by method; training_minutes: by method with trained weights
    """
    body = []
    for row in means(rows):
        lane, method = row["lane"], row["lane"].partition(":")[0]
        tasks = [one for one in rows if one["lane"] == lane and one["task"] != MEAN]
        worst = min(tasks, key=lambda one: one["speedup"] or 0.0)
        shown = f"{worst['task']} {as_factor(worst['speedup'])}" if worst["speedup"] else "-"
        needs = (memory_mb.get(method), (training_minutes or {}).get(method))
        needed = ("-" if value is None else f"{value:.0f}" for value in needs)
        body.append([lane, *(cell(row, key) for key in SUMMARY), shown, *needed])
    heads = [COLUMNS[key][0] for key in SUMMARY]
    return Table(["lane", *heads, "worst task", "memory MB", "training min"], body)


def positions_table(rows: Sequence[Row]) -> Table:
    """Return the acceptance rate of tested draft tokens by their position in the draft, means over tasks.

    The table has a row for each variant that drafted; the probability to reach a position is the product up to it.
    The last column is the calibration error of the predicted probabilities.
    """
    keys = [f"accept_{position}" for position in REPORTED_POSITIONS]
    body = []
    for row in means(rows):
        if any(row[key] is not None for key in keys):
            rates = ["-" if row[key] is None else as_percent(row[key]) for key in keys]
            error = row["survival_error"]
            body.append([row["lane"], *rates, "-" if error is None else f"{100 * error:.1f} %"])
    heads = ["lane", *(f"token {position}" for position in REPORTED_POSITIONS), "calibration error"]
    return Table(heads, body, title="Acceptance by position")


def against_table(totals: LaneTotals, peers: Sequence[str]) -> Table:
    """Return the tokens per second of the own variants over each peer's: means over tasks, medians over repetitions."""
    others = [peer for peer in peers if peer in totals.lanes]
    body = []
    for lane in [lane for lane in totals.lanes if lane not in others] if others else []:
        ratios = [totals.mean_ratios(lane, peer) for peer in others]
        body.append([lane, *(as_factor(median(values)) if values else "-" for values in ratios)])
    return Table(["our lane", *(f"over {peer}" for peer in others)], body)


def tasks_table(rows: Sequence[Row], plain: str) -> Table:
    """Return the speedup of each variant over plain decoding on each task, the fastest variant first."""
    tasks = list(dict.fromkeys(row["task"] for row in rows if row["task"] != MEAN))
    cells = {(row["lane"], row["task"]): cell(row, "speedup") for row in rows}
    body = []
    for row in sorted(means(rows), key=lambda row: -(row["speedup"] or 0.0)):
        if row["lane"] != plain:
            speedups = [cells.get((row["lane"], task), "-") for task in tasks]
            rest = [cell(row, key) for key in ("tokens_per_step", "first_accept_rate")]
            body.append([f"`{row['lane']}`", *speedups, f"**{cell(row, 'speedup')}**", *rest])
    names = [task.replace("_", " ") for task in tasks]
    return Table(["method", *names, MEAN, "tokens/step", "first accepted"], body)
