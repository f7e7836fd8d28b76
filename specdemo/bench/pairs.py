"""The method `auto` next to single methods on several pairs of models, in turn on each prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specdemo.bench.lanes import PLAIN_METHOD
from specdemo.bench.results import MEAN, Result, Row, Table, as_factor, as_percent, cell, means
from specdemo.bench.run import BenchOptions, run_bench
from specdemo.bench.suite import Item
from specdemo.config.settings import GREEDY, RunSettings
from specdemo.files.progress import ProgressCallback, silent
from specdemo.session.studio import Studio

AUTO_LANE = "auto"
SINGLES = ("ngram", "draft_model", "feature")
CHAIN_TOKENS = 4  # draft tokens per step of the variants with constant lookahead


@dataclass(frozen=True, slots=True)
class PairResult:
    """Rows of the bench on one target with one preset of sampling."""

    target: str
    preset: str
    rows: list[Row]

    def row(self, lane: str, task: str = MEAN) -> Row:
        """Return one row."""
        return next(row for row in self.rows if (row["lane"], row["task"]) == (lane, task))

    @property
    def lanes(self) -> list[str]:
        """All variants but plain decoding."""
        return [row["lane"] for row in means(self.rows) if row["lane"] != PLAIN_METHOD]

    @property
    def tasks(self) -> list[str]:
        """Tasks in order."""
        return [
            row["task"] for row in self.rows if row["lane"] == PLAIN_METHOD and row["task"] != MEAN
        ]

    def choice_row(self) -> list[str]:
        """Compare `auto` with the best single method."""
        auto = self.row(AUTO_LANE)
        single = max((self.row(lane) for lane in SINGLES if lane in self.lanes), key=_speedup)
        worst = min((self.row(AUTO_LANE, task) for task in self.tasks), key=_speedup)
        same = as_percent(auto["same_output_rate"]) if self.preset == GREEDY else "-"
        return [
            self.target, self.preset, f"{self.row(PLAIN_METHOD)['tokens_per_second']:.1f}", _factor(auto),
            f"{worst['task'].replace('_', ' ')} {_factor(worst)}",
            f"{single['lane']} {_factor(single)}", f"{_speedup(auto) / _speedup(single):.2f}", same,
        ]  # fmt: skip

    def draft_rows(self) -> list[list[str]]:
        """Return the acceptance and the cost of drafting of each variant."""
        one_pass = self.row(PLAIN_METHOD)["verify_ms_per_step"]
        lines = []
        for row in map(self.row, self.lanes):
            draft = row["draft_ms_per_token"]
            shown = [cell(row, key) for key in ("first_accept_rate", "tokens_per_step", "draft_ms_per_token")]  # fmt: skip
            share = f"1/{one_pass / draft:.0f}" if draft else "-"
            lines.append([self.target, self.preset, row["lane"], _factor(row), *shown, share])
        return lines

    def task_rows(self) -> list[list[str]]:
        """Return the speedup of each variant on each task."""
        return [
            [
                self.target,
                self.preset,
                lane,
                *(_factor(self.row(lane, task)) for task in self.tasks),
            ]
            for lane in self.lanes
        ]


def _speedup(row: Row) -> float:
    return float(row["speedup"] or 0.0)


def _factor(row: Row) -> str:
    return as_factor(_speedup(row))


def compare_methods(
    studio: Studio,
    items: Sequence[Item],
    tokens: int,
    preset: str,
    *,
    listen: Callable[[str], None],
    progress: ProgressCallback = silent,
) -> PairResult:
    """Run the variants that this pair has. tokens: of each answer; listen: see `run.Bench`"""
    available = {method.name for method in studio.methods() if method.available}
    singles = [lane for lane in SINGLES if lane in available]
    chains = [f"{lane}:constant:{CHAIN_TOKENS}" for lane in singles if lane != SINGLES[0]]
    recommended = studio.pair.recommended.sampling
    usual = RunSettings(max_new_tokens=tokens, memory=False, preset=preset)

    def settings_of(lane: str) -> RunSettings:
        method, _, policy = lane.partition(":")
        settings = replace(usual, method=method)
        if policy:
            settings = replace(settings, policy="constant", lookahead=CHAIN_TOKENS, fallback=False)
        return settings.drawn(recommended)

    options = BenchOptions(",".join([AUTO_LANE, *singles, *chains]), first_turns=True)
    bench = run_bench(studio, items, options, settings_of, listen=listen, progress=progress)
    return PairResult(studio.pair.target.info.name, preset, bench.totals.rows())


def pairs_result(results: Sequence[PairResult], prompts: int, tokens: int) -> Result:
    """Return the tables of all pairs. prompts: number in the suite; tokens: of each answer"""
    key = ["target", "sampling"]
    tasks = [name.replace("_", " ") for name in results[0].tasks]
    tables = [
        Table(
            [*key, "plain tokens/s", "auto", "worst task", "best single method", "auto over it", "same text"],
            [result.choice_row() for result in results],
        ),
        Table(
            [*key, "lane", "speedup", "first accepted", "tokens/step", "draft ms/token", "draft token over a pass"],
            [row for result in results for row in result.draft_rows()],
        ),
        Table([*key, "lane", *tasks], [row for result in results for row in result.task_rows()]),
    ]  # fmt: skip
    about = f"{prompts} prompts, first turns, {tokens} new tokens."
    return Result("Auto beside single methods, both pairs", about, tables)
