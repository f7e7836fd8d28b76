"""Adds up what lanes did on a suite: sums a task, then the mean over tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from specdemo.bench.lanes import LaneResult, same_prefix

POSITIONS = (1, 2, 3, 4, 5)  # in the draft, of which reports tell


@dataclass(slots=True)
class Totals:
    """What one lane did on one task. Times in seconds.

    tested, kept: drafts by position, see `trace.metrics.Metrics.positions`
    same_tokens: tokens before each output first differs from plain decoding's
    margins: at each such place, the gap between the target's probabilities of the two tokens
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
    tested: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    hits: int = 0
    chances: int = 0
    outputs: int = 0
    same_outputs: int = 0
    same_tokens: int = 0
    plain_tokens: int = 0
    margins: list[float] = field(default_factory=list)

    def add(self, result: LaneResult, plain: LaneResult) -> None:
        """Count one output, and whether it equals plain decoding's."""
        metrics = result.metrics
        self.tokens += metrics.new_tokens
        self.steps += metrics.steps
        self.drafted += metrics.drafted
        self.accepted += metrics.accepted
        self.drafting_steps += metrics.drafting_steps
        self.first_accepted += metrics.first_accepted
        for position, (tested, kept) in enumerate(metrics.positions, 1):
            self.tested[position] += tested
            self.kept[position] += kept
        self.hits += metrics.hits
        self.chances += metrics.chances
        self.draft_seconds += metrics.draft_seconds
        self.verify_seconds += metrics.verify_seconds
        self.overhead_seconds += metrics.overhead_seconds
        self.elapsed_seconds += metrics.elapsed_seconds
        self.outputs += 1
        self.same_outputs += result.ids == plain.ids
        same = same_prefix(result.ids, plain.ids)
        self.same_tokens += same
        self.plain_tokens += len(plain.ids)
        if same < min(len(result.ids), len(plain.ids)):
            self.margins.append(abs(result.probs[same] - plain.probs[same]))

    @property
    def tokens_per_second(self) -> float:
        """New tokens per second of decoding."""
        return self.tokens / self.elapsed_seconds if self.elapsed_seconds else 0.0


@dataclass(slots=True)
class Report:
    """Totals by task and lane; `plain` is the lane that the others are compared with."""

    plain: str
    totals: dict[str, dict[str, Totals]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Totals))
    )

    def add(self, task: str, results: Iterable[LaneResult]) -> None:
        """Count one prompt's results."""
        results = list(results)
        plain = next(result for result in results if result.name == self.plain)
        for result in results:
            self.totals[task][result.name].add(result, plain)

    @property
    def lanes(self) -> list[str]:
        """Lane names in order."""
        return list(next(iter(self.totals.values()))) if self.totals else []

    def rows(self) -> list[dict[str, object]]:
        """One row for each task and lane, then the mean over tasks for each lane."""
        rows = [
            self._row(task, lane, totals)
            for task, lanes in self.totals.items()
            for lane, totals in lanes.items()
        ]
        for lane in self.lanes:
            of_lane = [row for row in rows if row["lane"] == lane]
            numbers = [key for key, value in of_lane[0].items() if key not in ("task", "lane")]
            summary: dict[str, object] = {"task": "mean", "lane": lane}
            for key in numbers:
                values = [row[key] for row in of_lane if row[key] is not None]
                summary[key] = mean(values) if values else None
            rows.append(summary)
        return rows

    def _row(self, task: str, lane: str, totals: Totals) -> dict[str, object]:
        plain = self.totals[task][self.plain].tokens_per_second
        return {
            "task": task,
            "lane": lane,
            "tokens_per_second": totals.tokens_per_second,
            "speedup": totals.tokens_per_second / plain if plain else None,
            "first_accept_rate": _ratio(totals.first_accepted, totals.drafting_steps),
            **{
                f"accept_{position}": _ratio(totals.kept[position], totals.tested[position])
                for position in POSITIONS
            },
            "drafted_accept_rate": _ratio(totals.accepted, totals.drafted),
            "tokens_per_step": _ratio(totals.tokens, totals.steps),
            "draft_ms_per_token": _ratio(1000 * totals.draft_seconds, totals.drafted),
            "verify_ms_per_step": _ratio(1000 * totals.verify_seconds, totals.steps),
            "hit_rate": _ratio(totals.hits, totals.chances),
            "overhead_share": _ratio(totals.overhead_seconds, totals.elapsed_seconds),
            "same_output_rate": _ratio(totals.same_outputs, totals.outputs),
            "same_prefix_rate": _ratio(totals.same_tokens, totals.plain_tokens),
            "flip_margin": median(totals.margins) if totals.margins else None,
            "outputs": totals.outputs,
        }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "tokens_per_second": ("tokens/s", lambda value: f"{value:.0f}"),
    "speedup": ("speedup", lambda value: f"{value:.2f}x"),
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
    """A table of rows as Markdown, also readable in a terminal."""
    heads = ["task", "lane", *(title for title, _ in COLUMNS.values())]
    body = [
        [
            str(row["task"]),
            str(row["lane"]),
            *(
                "-" if row[key] is None else show(float(row[key]))
                for key, (_, show) in COLUMNS.items()
            ),  # type: ignore[arg-type]
        ]
        for row in rows
    ]
    return aligned(heads, body)


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

    memory_mb: beside the target, by method; training_minutes: by method, of those with trained weights
    """
    heads = ["lane", *SUMMARY.values(), "worst task", "memory MB", "training min"]
    body = []
    for mean_row in _means(rows):
        lane = str(mean_row["lane"])
        method = lane.partition(":")[0]
        tasks = [row for row in rows if row["lane"] == lane and row["task"] != "mean"]
        worst = min(tasks, key=lambda row: row["speedup"] or 0.0)  # type: ignore[arg-type, return-value]
        cells = [
            "-" if mean_row[key] is None else COLUMNS[key][1](float(mean_row[key]))  # type: ignore[arg-type]
            for key in SUMMARY
        ]
        shown = f"{worst['task']} {worst['speedup']:.2f}x" if worst["speedup"] else "-"
        taken = (memory_mb.get(method), (training_minutes or {}).get(method))
        body.append([lane, *cells, shown, *(f"{value:.0f}" if value else "-" for value in taken)])
    return aligned(heads, body)


def by_position(rows: list[dict[str, object]]) -> str:
    """How likely a drafted token is kept once it is tested, by its position in the draft; means over tasks.

    A row for each lane that drafted; the chance to get as far as a position is the product up to it.
    """
    body = []
    for row in _means(rows):
        shares = [row[f"accept_{position}"] for position in POSITIONS]
        if any(share is not None for share in shares):
            cells = ["-" if share is None else f"{100 * share:.0f} %" for share in shares]  # type: ignore[operator]
            body.append([str(row["lane"]), *cells])
    return aligned(["lane", *(f"token {position}" for position in POSITIONS)], body)


def _means(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [row for row in rows if row["task"] == "mean"]


def aligned(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up."""
    widths = [max(map(len, column)) for column in zip(heads, *body, strict=True)]
    rows = [heads, ["-" * width for width in widths], *body]
    return "\n".join("| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in rows)
