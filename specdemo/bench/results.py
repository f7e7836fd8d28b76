"""One result for every benchmark: sums by variant and task, and the tables of reports."""

from __future__ import annotations

import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from operator import add
from pathlib import Path
from statistics import mean, median, quantiles
from typing import TypeVar

from pydantic import TypeAdapter

from specdemo.bench.lanes import Paired, is_own
from specdemo.config.strings import ASSETS, Json, JsonView
from specdemo.files.store import write_file
from specdemo.session.loaded import machine_name
from specdemo.trace.metrics import Metrics, calibration_error, same_prefix

T = TypeVar("T")
Counts = tuple[float, ...]
Row = Json  # values of one variant on one task, see `summarise` and `_rates`
STRINGS: Json = json.loads((ASSETS / "cards/bench.json").read_text(encoding="utf-8"))
REPORTED_POSITIONS = (1, 2, 3, 4, 5)  # positions in a draft that are reported
ALL = "all"  # in the column of tasks: all of them


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report. Tables that follow each other under the same title share its explanation."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    about: str = ""


@dataclass(slots=True)
class Result:
    """The outcome of one benchmark: its JSON file, the terminal and the documents show the same tables.

    notes: remarks on the figures; values: the numbers behind the tables, and facts about the measurement
    """

    title: str
    about: str = ""
    tables: list[Table] = field(default_factory=list)
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
        """Return the result that `to_dict` described; a file may lack notes and command."""
        own = {"command": ""} | {
            part.name: data[part.name] for part in fields(cls) if part.name in data
        }
        rest = {name: data[name] for name in data if name not in own}
        return cls(**own | {"tables": [Table(**table) for table in data["tables"]], "values": rest})


def markdown(table: Table) -> str:
    """Return a table whose columns are aligned, for documents and terminals."""
    body = [[str(cell) for cell in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.columns, *body, strict=True)]
    rows = [table.columns, ["-" * width for width in widths], *body]
    return "\n".join("| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in rows)


def text(result: Result) -> str:
    """Return all tables as Markdown, each new title with its explanation, and the notes."""
    blocks, before = list[str](), ("", "")
    for table in result.tables:
        if (table.title, table.about) != before:
            blocks += filter(None, [table.title and f"{table.title}:", table.about])
        before = (table.title, table.about)
        blocks.append(markdown(table))
    return "\n\n".join([*blocks, *result.notes])


def versions(*packages: str) -> dict[str, str]:
    """Return installed versions; "none" for packages that are not installed."""
    found = {}
    for package in packages:
        found[package] = "none"
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


class Journal:
    """Results that are stored as they come, by key; the same measurement continues with them after an interruption.

    path: a file of JSON lines, deleted by `close`; None stores nothing
    about: description of the measurement; the results of another one are discarded
    """

    def __init__(self, path: Path | None, about: Json) -> None:
        self._path = path
        self.stored: Json = {}
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
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line((key, value)) + "\n")

    def measured(self, key: str, kind: type[T], measure: Callable[[], T]) -> T:
        """Return the stored result of a key; if there is none, measure and store it. kind: type of the result"""
        adapter = TypeAdapter(kind)
        if key in self.stored:
            return adapter.validate_python(self.stored[key])
        value = measure()
        self.store(key, adapter.dump_python(value, mode="json"))
        return value

    def close(self) -> None:
        """Delete the file: the measurement is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _line(item: tuple[str, object]) -> str:
    return json.dumps(dict([item]))


def summarise(answers: Iterable[Paired], *, busy: bool = False) -> Row:
    """Summarise measured speedups over plain decoding; every table of speedups is made with this function.

    speedup, quartiles, lowest, mean: over the prompts whose answers do not repeat themselves; for each prompt the median of
        its pairs. A pair that other programs disturbed is left out, unless `busy`
    speedup_all: median over all prompts; answers, repeats: number of prompts, and of those whose answer repeats itself
    disturbed: number of pairs during which other programs were busy
    """
    prompts: dict[str, list[Paired]] = defaultdict(list)
    for answer in answers:
        prompts[answer.prompt].append(answer)
    again = {name for name, runs in prompts.items() if any(one.result.repeats for one in runs)}
    ratios: dict[str, float] = {}
    for name, runs in prompts.items():
        counted = [one.ratio for one in runs if busy or not one.disturbed]
        if known := [ratio for ratio in counted if ratio]:
            ratios[name] = median(known)
    fresh = [ratio for name, ratio in ratios.items() if name not in again]
    several = len(fresh) > 1
    return {
        "speedup": median(fresh) if fresh else None,
        "speedup_quartiles": quantiles(fresh, n=4, method="inclusive")[::2] if several else None,
        "speedup_lowest": min(fresh, default=None),
        "speedup_mean": mean(fresh) if fresh else None,
        "speedup_all": median(ratios.values()) if ratios else None,
        "answers": len(prompts),
        "repeats": len(again),
        "disturbed": sum(one.disturbed for runs in prompts.values() for one in runs),
    }


@dataclass(slots=True)
class BenchAnswers:
    """All paired answers of a bench. busy: count those that other programs disturbed, too"""

    answers: list[Paired] = field(default_factory=list)
    busy: bool = False

    def add(self, task: str, prompt: str, pairs: Iterable[Paired]) -> None:
        """Add the answers to one turn; its repetitions have the same `prompt`."""
        self.answers += [replace(pair, task=task, prompt=prompt) for pair in pairs]

    def drop(self, lane: str) -> None:
        """Remove a variant that failed: it answered fewer prompts than the rest."""
        self.answers = [answer for answer in self.answers if answer.result.name != lane]

    @property
    def lanes(self) -> list[str]:
        return list(dict.fromkeys(answer.result.name for answer in self.answers))

    def rows(self) -> list[Row]:
        """Return a row for each task and variant, then one over all tasks for each variant."""
        grouped: dict[tuple[str, str], list[Paired]] = defaultdict(list)
        for answer in self.answers:
            grouped[answer.task, answer.result.name].append(answer)
        for answer in self.answers:
            grouped[ALL, answer.result.name].append(answer)
        return [
            {"task": task, "lane": lane} | summarise(answers, busy=self.busy) | _rates(answers)
            for (task, lane), answers in grouped.items()
        ]

    def against(self, lane: str, other: str) -> float | None:
        """Return the median of one variant's speedup over another's on the same prompt."""
        theirs: dict[str, list[float]] = defaultdict(list)
        for answer in self.answers:
            if answer.result.name == other and answer.ratio:
                theirs[answer.prompt].append(answer.ratio)
        ratios = [
            answer.ratio / median(theirs[answer.prompt])
            for answer in self.answers
            if answer.result.name == lane and answer.ratio and answer.prompt in theirs
        ]
        return median(ratios) if ratios else None


def _rates(answers: Sequence[Paired]) -> Row:
    """Return the rates and means over answers.

    survival_error: calibration error of the predicted probabilities of acceptance
    draws, overlap, draw_accept_rate: drawn tokens, estimate of 1 - TV from them, share of accepted ones, see `Metrics`
    The others are those of `sameness`.
    """
    sums = reduce(add_metrics, (answer.result.metrics for answer in answers))
    positions = [*sums.accept_by_position, *[None] * len(REPORTED_POSITIONS)]
    return {
        "tokens_per_second": sums.tokens_per_second or 0.0,
        "first_accept_rate": sums.first_accept_rate,
        **{f"accept_{position}": positions[position - 1] for position in REPORTED_POSITIONS},
        "survival_error": calibration_error(sums.survivals),
        "drafted_accept_rate": sums.drafted_accept_rate,
        "tokens_per_step": sums.tokens_per_step,
        "draft_ms_per_token": _ratio(1000 * sums.draft_seconds, sums.drafted) or None,
        "verify_ms_per_step": _ratio(1000 * sums.verify_seconds, sums.steps) or None,
        "hit_rate": sums.hit_rate,
        **sameness(answers),
        "draws": sums.draws or None,
        "overlap": _ratio(sums.draws_overlap, sums.draws),
        "draw_accept_rate": _ratio(sums.draws_kept, sums.draws),
    }


def sameness(answers: Sequence[Paired]) -> dict[str, float | None]:
    """Compare texts with plain decoding's.

    same_output_rate: equal ones; same_prefix_rate: tokens before the first difference, of all tokens of plain decoding
    flip_margin: median gap between the target's probabilities of the two tokens at such a position
    """
    pairs = [(answer.result, answer.plain) for answer in answers]
    written = [(one, plain) for one, plain in pairs if one.ids]
    same = [same_prefix(one.ids, plain.ids) for one, plain in written]
    margins = [
        abs(one.probs[end] - plain.probs[end])
        for end, (one, plain) in zip(same, written, strict=True)
        if end < min(len(one.probs), len(plain.probs))
    ]
    equal = sum(one.ids == plain.ids for one, plain in written)
    return {
        "same_output_rate": _ratio(equal, len(written)),
        "same_prefix_rate": _ratio(sum(same), sum(len(plain.ids) for _, plain in written)),
        "flip_margin": median(margins) if margins else None,
    }


def add_metrics(one: Metrics, other: Metrics) -> Metrics:
    """Return the metrics of two runs as those of one."""
    sums: Json = {}
    for name in (part.name for part in fields(Metrics)):
        mine, theirs = getattr(one, name), getattr(other, name)
        sums[name] = _add_rows(mine, theirs) if isinstance(mine, tuple) else mine + theirs
    return Metrics(**sums)


def _add_rows(mine: Sequence[Counts], theirs: Sequence[Counts]) -> tuple[Counts, ...]:
    """Add rows of two or three counts; either sequence may be shorter."""
    pairs = zip_longest(mine, theirs, fillvalue=(0, 0, 0))
    return tuple(tuple(map(add, *pair)) for pair in pairs)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def as_percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def as_factor(value: float) -> str:
    return f"{value:.2f}x"


ROW_COLUMNS: dict[str, tuple[str, Callable[..., str]]] = {
    "speedup": ("speedup", as_factor),
    "speedup_quartiles": ("quartiles", lambda value: f"{value[0]:.2f}-{value[1]:.2f}x"),
    "speedup_mean": ("mean", as_factor),
    "speedup_lowest": ("lowest", as_factor),
    "repeats": ("repeat themselves", str),
    "speedup_all": ("all answers", as_factor),
    "disturbed": ("disturbed pairs", str),
    "tokens_per_second": ("tokens/s", "{:.0f}".format),
    "first_accept_rate": ("first accepted", as_percent),
    "drafted_accept_rate": ("drafts accepted", as_percent),
    "tokens_per_step": ("tokens/step", "{:.2f}".format),
    "draft_ms_per_token": ("draft ms/token", "{:.2f}".format),
    "hit_rate": ("prepared drafts used", as_percent),
    "same_output_rate": ("same output", as_percent),
    "same_prefix_rate": ("same until", as_percent),
    "flip_margin": ("tie margin", "{:.3f}".format),
    "draws": ("drawn tokens", str),
    "overlap": ("1 - TV", as_percent),
    "draw_bound": ("(1 - TV) / (1 + TV)", as_percent),
    "draw_accept_rate": ("drawn tokens accepted", as_percent),
    "memory_mb": ("memory MB", "{:.0f}".format),
    "training_minutes": ("training min", "{:.0f}".format),
}
ABOUT: str = STRINGS["speedups"]


def cell(row: Row, key: str) -> str:
    """Return a value of a row as its column shows it; the number of repeating answers with that of all."""
    if row.get(key) is None:
        return "-"
    shown = ROW_COLUMNS[key][1](row[key])
    return f"{shown} of {row['answers']}" if key == "repeats" else shown


def totals(rows: Sequence[Row]) -> list[Row]:
    """Return the rows over all tasks."""
    return [row for row in rows if row["task"] == ALL]


def lanes_table(rows: Sequence[Row]) -> Table:
    """Return a row for each variant over all tasks, without the columns that have no value."""
    known = {key: [row.get(key) for row in totals(rows)] for key in ROW_COLUMNS}
    shown = [key for key in known if any(one is not None for one in known[key])]
    shown = [key for key in shown if key != "disturbed" or any(known[key])]
    body = [[row["lane"], *(cell(row, key) for key in shown)] for row in totals(rows)]
    return Table(["lane", *(ROW_COLUMNS[key][0] for key in shown)], body, about=ABOUT)


def positions_table(rows: Sequence[Row]) -> Table:
    """Return the acceptance rate of tested draft tokens by their position in the draft.

    The table has a row for each variant that drafted; the probability to reach a position is the product up to it.
    The last column is the calibration error of the predicted probabilities.
    """
    keys = [f"accept_{position}" for position in REPORTED_POSITIONS]
    body = []
    for row in totals(rows):
        if any(row[key] is not None for key in keys):
            rates = ["-" if row[key] is None else as_percent(row[key]) for key in keys]
            error = row["survival_error"]
            body.append([row["lane"], *rates, "-" if error is None else f"{100 * error:.1f} %"])
    heads = ["lane", *(f"token {position}" for position in REPORTED_POSITIONS), "calibration error"]
    return Table(heads, body, title="Acceptance by position")


def against_table(measured: BenchAnswers) -> Table:
    """Return the speed of the own variants over other programs', medians over prompts."""
    others = [lane for lane in measured.lanes if not is_own(lane)]
    body = []
    for lane in [lane for lane in measured.lanes if lane not in others] if others else []:
        ratios = [measured.against(lane, peer) for peer in others]
        body.append([lane, *("-" if ratio is None else as_factor(ratio) for ratio in ratios)])
    return Table(["our lane", *(f"over {peer}" for peer in others)], body)


def tasks_table(rows: Sequence[Row], plain: str) -> Table:
    """Return the speedup of each variant over plain decoding on each task, the fastest variant first."""
    tasks = list(dict.fromkeys(row["task"] for row in rows if row["task"] != ALL))
    cells = {(row["lane"], row["task"]): cell(row, "speedup") for row in rows}
    body = []
    for row in sorted(totals(rows), key=lambda row: -(row["speedup"] or 0.0)):
        if row["lane"] != plain:
            speedups = [cells.get((row["lane"], task), "-") for task in tasks]
            body.append([row["lane"], *speedups, cell(row, "speedup"), cell(row, "repeats")])
    names = [task.replace("_", " ") for task in tasks]
    return Table(["speedup by task", *names, ALL, ROW_COLUMNS["repeats"][0]], body)
