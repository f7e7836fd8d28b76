"""Adds up what lanes did on a suite: sums a task, then the mean over tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from statistics import mean, median, quantiles
from typing import Any

from specdemo.bench.lanes import LaneResult
from specdemo.session.work.judges import same_prefix
from specdemo.trace.metrics import Foreseen, calibration_error, together

POSITIONS = (1, 2, 3, 4, 5)  # in the draft, that reports list


@dataclass(slots=True)
class Totals:
    """What one lane did on one task. Times in seconds.

    tested, kept: drafts by position, see `trace.metrics.Metrics.positions`; survivals: of all outputs, as there
    same_tokens: tokens before each output first differs from plain decoding's
    margins: at each such position, the gap between the target's probabilities of the two tokens
    rounds: tokens and seconds of each repetition of the suite
    """

    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    drafting_steps: int = 0
    first_accepted: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    overhead_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    survivals: tuple[Foreseen, ...] = ()
    tested: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    hits: int = 0
    chances: int = 0
    outputs: int = 0
    same_outputs: int = 0
    same_tokens: int = 0
    plain_tokens: int = 0
    margins: list[float] = field(default_factory=list)
    rounds: dict[int, tuple[int, float]] = field(default_factory=dict)

    def add(self, result: LaneResult, plain: LaneResult, repetition: int = 0) -> None:
        """Count one output, and whether it equals plain decoding's."""
        metrics = result.metrics
        tokens, seconds = self.rounds.get(repetition, (0, 0.0))
        self.rounds[repetition] = (
            tokens + metrics.new_tokens,
            seconds + metrics.elapsed_seconds,
        )
        self.tokens += metrics.new_tokens
        self.steps += metrics.steps
        self.drafted += metrics.drafted
        self.accepted += metrics.accepted
        self.drafting_steps += metrics.drafting_steps
        self.first_accepted += metrics.first_accepted
        self.survivals = together(self.survivals, metrics.survivals)
        for position, (tested, kept) in enumerate(metrics.positions, 1):
            self.tested[position] += tested
            self.kept[position] += kept
        self.hits += metrics.hits
        self.chances += metrics.chances
        self.draft_seconds += metrics.draft_seconds
        self.verify_seconds += metrics.verify_seconds
        self.overhead_seconds += metrics.overhead_seconds
        self.elapsed_seconds += metrics.elapsed_seconds
        if not result.ids:  # computed, not run: there is no output to compare
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
        """New tokens per second of decoding, by repetition; those without any time are left out."""
        return {
            number: tokens / seconds
            for number, (tokens, seconds) in self.rounds.items()
            if tokens and seconds
        }


@dataclass(slots=True)
class Report:
    """Totals by task and lane; `plain` is the lane that the others are compared with."""

    plain: str
    totals: dict[str, dict[str, Totals]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Totals))
    )

    def add(self, task: str, results: Iterable[LaneResult], repetition: int = 0) -> None:
        """Count one prompt's results. repetition: which run of the whole suite this is"""
        results = list(results)
        plain = next(result for result in results if result.name == self.plain)
        for result in results:
            self.totals[task][result.name].add(result, plain, repetition)

    def drop(self, lane: str) -> None:
        """Forget a lane that broke: it answered other prompts than the rest."""
        for lanes in self.totals.values():
            lanes.pop(lane, None)

    def ratios(self, lane: str, other: str, task: str) -> dict[int, float]:
        """Tokens a second of one lane over another's on a task, by repetition."""
        mine, theirs = (self.totals[task][name].rates for name in (lane, other))
        return {number: rate / theirs[number] for number, rate in mine.items() if number in theirs}

    def mean_ratios(self, lane: str, other: str) -> list[float]:
        """The mean over tasks of these ratios, a value for each repetition."""
        by_repetition: dict[int, list[float]] = defaultdict(list)
        for task in self.totals:
            for number, ratio in self.ratios(lane, other, task).items():
                by_repetition[number].append(ratio)
        return [mean(ratios) for ratios in by_repetition.values()]

    @property
    def lanes(self) -> list[str]:
        """Lane names in order."""
        return list(next(iter(self.totals.values()))) if self.totals else []

    def rows(self) -> list[dict[str, object]]:
        """One row for each task and lane, then the mean over tasks for each lane.

        Rates and speedups are medians over repetitions of the suite, `speedup_quartiles` their spread. `survival_error` is
        the expected calibration error of the chances that a lane foresaw for its drafted tokens, in the end of all tasks together.
        """
        rows = [
            self._row(task, lane, totals)
            for task, lanes in self.totals.items()
            for lane, totals in lanes.items()
        ]
        for lane in self.lanes:
            of_lane = [row for row in rows if row["lane"] == lane]
            summary: dict[str, object] = {"task": "mean", "lane": lane}
            for key in of_lane[0]:
                values = [row[key] for row in of_lane if isinstance(row[key], int | float)]
                summary.setdefault(key, mean(values) if values else None)
            foreseen = reduce(together, (lanes[lane].survivals for lanes in self.totals.values()))
            summary["survival_error"] = calibration_error(foreseen)
            rows.append(summary | _spread(self.mean_ratios(lane, self.plain)))
        return rows

    def _row(self, task: str, lane: str, totals: Totals) -> dict[str, object]:
        return {
            "task": task,
            "lane": lane,
            "tokens_per_second": median(totals.rates.values()) if totals.rates else 0.0,
            **_spread(self.ratios(lane, self.plain, task).values()),
            "first_accept_rate": _ratio(totals.first_accepted, totals.drafting_steps),
            **{
                f"accept_{position}": _ratio(totals.kept[position], totals.tested[position])
                for position in POSITIONS
            },
            "survival_error": calibration_error(totals.survivals),
            "drafted_accept_rate": _ratio(totals.accepted, totals.drafted),
            "tokens_per_step": _ratio(totals.tokens, totals.steps),
            "draft_ms_per_token": _ratio(1000 * totals.draft_seconds, totals.drafted) or None,
            "verify_ms_per_step": _ratio(1000 * totals.verify_seconds, totals.steps) or None,
            "hit_rate": _ratio(totals.hits, totals.chances),
            **{
                f"{part}_share": _ratio(seconds, totals.elapsed_seconds)
                for part, seconds in (
                    ("draft", totals.draft_seconds),
                    ("verify", totals.verify_seconds),
                    ("overhead", totals.overhead_seconds),
                )
            },
            "same_output_rate": _ratio(totals.same_outputs, totals.outputs),
            "same_prefix_rate": _ratio(totals.same_tokens, totals.plain_tokens),
            "flip_margin": median(totals.margins) if totals.margins else None,
            "outputs": totals.outputs,
        }


def _spread(ratios: Iterable[float]) -> dict[str, object]:
    """The median of repeated measurements, and their quartiles when there are several."""
    values = list(ratios)
    lower_upper = quantiles(values, n=4, method="inclusive")[::2] if len(values) > 1 else None
    return {"speedup": median(values) if values else None, "speedup_quartiles": lower_upper}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "tokens_per_second": ("tokens/s", lambda value: f"{value:.0f}"),
    "speedup": ("speedup", lambda value: f"{value:.2f}x"),
    "speedup_quartiles": ("quartiles", lambda value: f"{value[0]:.2f}-{value[1]:.2f}x"),
    "first_accept_rate": ("first accepted", lambda value: f"{100 * value:.0f} %"),
    "drafted_accept_rate": ("drafts accepted", lambda value: f"{100 * value:.0f} %"),
    "tokens_per_step": ("tokens/step", lambda value: f"{value:.2f}"),
    "draft_ms_per_token": ("draft ms/token", lambda value: f"{value:.2f}"),
    "verify_ms_per_step": ("verify ms/step", lambda value: f"{value:.1f}"),
    "hit_rate": ("prepared drafts used", lambda value: f"{100 * value:.0f} %"),
    "same_output_rate": ("same output", lambda value: f"{100 * value:.0f} %"),
    "same_prefix_rate": ("same until", lambda value: f"{100 * value:.0f} %"),
    "flip_margin": ("tie margin", lambda value: f"{value:.3f}"),
}


def markdown(rows: list[dict[str, object]]) -> str:
    """A table of rows as Markdown, also readable in a terminal; a column that holds nothing is left out."""
    shown = [key for key in COLUMNS if any(row[key] is not None for row in rows)]
    heads = ["task", "lane", *(COLUMNS[key][0] for key in shown)]
    body = [
        [str(row["task"]), str(row["lane"]), *(_cell(row, key) for key in shown)] for row in rows
    ]
    return aligned(heads, body)


def _cell(row: Mapping[str, object], key: str) -> str:
    return "-" if row[key] is None else COLUMNS[key][1](row[key])


SUMMARY: dict[str, str] = {
    "tokens_per_second": "tokens/s",
    "speedup": "speedup",
    "first_accept_rate": "first accepted",
    "drafted_accept_rate": "drafts accepted",
    "tokens_per_step": "tokens/step",
    "draft_ms_per_token": "draft ms/token",
}


def summary(
    rows: list[dict[str, object]],
    memory_mb: Mapping[str, float],
    training_minutes: Mapping[str, float] | None = None,
) -> str:
    """One row for each lane: its mean over tasks, its worst task, and what its method takes.

    memory_mb: beside the target, by method, of those that take any
    training_minutes: by method, of those with trained weights
    """
    heads = ["lane", *SUMMARY.values(), "worst task", "memory MB", "training min"]
    body = []
    for mean_row in _means(rows):
        lane = str(mean_row["lane"])
        method = lane.partition(":")[0]
        tasks = [row for row in rows if row["lane"] == lane and row["task"] != "mean"]
        worst = min(tasks, key=lambda row: row["speedup"] or 0.0)  # type: ignore[arg-type, return-value]
        cells = [_cell(mean_row, key) for key in SUMMARY]
        shown = f"{worst['task']} {worst['speedup']:.2f}x" if worst["speedup"] else "-"
        taken = (memory_mb.get(method), (training_minutes or {}).get(method))
        body.append(
            [lane, *cells, shown, *("-" if value is None else f"{value:.0f}" for value in taken)]
        )
    return aligned(heads, body)


def by_position(rows: list[dict[str, object]]) -> str:
    """How likely a drafted token is kept once it is tested, by its position in the draft; means over tasks.

    A row for each lane that drafted; the chance to get as far as a position is the product up to it. The last column
    is the calibration error of the forecasts of these chances.
    """
    body = []
    for row in _means(rows):
        shares = [row[f"accept_{position}"] for position in POSITIONS]
        if any(share is not None for share in shares):
            cells = ["-" if share is None else f"{100 * share:.0f} %" for share in shares]  # type: ignore[operator]
            error = row["survival_error"]
            cells.append("-" if error is None else f"{100 * error:.1f} %")  # type: ignore[operator]
            body.append([str(row["lane"]), *cells])
    heads = ["lane", *(f"token {position}" for position in POSITIONS), "calibration error"]
    return aligned(heads, body)


def against(report: Report, peers: Sequence[str]) -> str:
    """Markdown: our lanes' tokens a second over each peer's, means over tasks, medians over repetitions."""
    others = [peer for peer in peers if peer in report.lanes]
    ours = [lane for lane in report.lanes if lane not in others]
    body = []
    for lane in ours:
        ratios = [report.mean_ratios(lane, peer) for peer in others]
        body.append([lane, *(f"{median(values):.2f}x" if values else "-" for values in ratios)])
    return aligned(["our lane", *(f"over {peer}" for peer in others)], body) if others else ""


def readme(rows: list[dict[str, object]], plain: str) -> str:
    """The README's table: a row a lane, the fastest first, its speedup over plain decoding on each task."""
    tasks = list(dict.fromkeys(str(row["task"]) for row in rows if row["task"] != "mean"))
    cells = {(row["lane"], row["task"]): _cell(row, "speedup") for row in rows}
    lines = [
        f"| method | {' | '.join(task.replace('_', ' ') for task in tasks)} | mean | tokens/step | first accepted |",
        "|---" + "|---:" * (len(tasks) + 3) + "|",
    ]
    for row in sorted(_means(rows), key=lambda row: -(row["speedup"] or 0.0)):  # type: ignore[operator]
        if row["lane"] != plain:
            parts = [cells.get((row["lane"], task), "-") for task in tasks]
            parts += [f"**{_cell(row, 'speedup')}**"]
            parts += [_cell(row, key) for key in ("tokens_per_step", "first_accept_rate")]
            lines.append(f"| `{row['lane']}` | {' | '.join(parts)} |")
    return "\n".join(lines)


def _means(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [row for row in rows if row["task"] == "mean"]


def aligned(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up."""
    widths = [max(map(len, column)) for column in zip(heads, *body, strict=True)]
    rows = [heads, ["-" * width for width in widths], *body]
    return "\n".join("| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in rows)
