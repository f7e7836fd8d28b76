"""Auto beside single methods, on several pairs of models: what drafting and choosing give.

Plain decoding and all lanes answer each prompt in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from specdemo.bench.lanes import PLAIN
from specdemo.bench.run import BenchOptions, run_bench
from specdemo.bench.suite import Item
from specdemo.config.settings import GREEDY, RunSettings
from specdemo.files.progress import ProgressCallback, silent
from specdemo.session.loaded import machine_name
from specdemo.session.studio import Studio

AUTO = "auto"
SINGLES = ("ngram", "draft_model", "feature")
CHAIN = 4  # drafted tokens of the chain that always drafts
CHOICE = (
    "target", "sampling", "plain tokens/s", "auto", "worst task", "best single method",
    "auto over it", "same text",
)  # fmt: skip
DRAFTS = (
    "target", "sampling", "lane", "speedup", "first accepted", "tokens/step", "draft ms/token",
    "draft token over a pass",
)  # fmt: skip
TASKS = ("target", "sampling", "lane")


@dataclass(frozen=True, slots=True)
class PairResult:
    """What one target gave with one preset of sampling.

    rows: of the bench
    """

    target: str
    preset: str
    rows: list[dict[str, Any]]

    def of(self, lane: str, task: str = "mean") -> dict[str, Any]:
        """The row of a lane."""
        return next(row for row in self.rows if (row["lane"], row["task"]) == (lane, task))

    @property
    def lanes(self) -> list[str]:
        """All but plain decoding."""
        return [row["lane"] for row in self.rows if row["task"] == "mean" and row["lane"] != PLAIN]

    @property
    def tasks(self) -> list[str]:
        """In order."""
        return [row["task"] for row in self.rows if row["lane"] == PLAIN and row["task"] != "mean"]

    def choice(self) -> list[str]:
        """Its line of the table of choices."""
        auto = self.of(AUTO)
        single = max((self.of(lane) for lane in SINGLES if lane in self.lanes), key=_speedup)
        worst = min((self.of(AUTO, task) for task in self.tasks), key=_speedup)
        return [
            self.target, self.preset, f"{self.of(PLAIN)['tokens_per_second']:.1f}", _times(auto),
            f"{worst['task'].replace('_', ' ')} {_times(worst)}",
            f"{single['lane']} {_times(single)}", f"{_speedup(auto) / _speedup(single):.2f}",
            f"{100 * auto['same_output_rate']:.0f} %" if self.preset == GREEDY else "-",
        ]  # fmt: skip

    def drafts(self) -> list[list[str]]:
        """A line for each lane that drafts."""
        one_pass = self.of(PLAIN)["verify_ms_per_step"]
        lines = []
        for lane in self.lanes:
            row = self.of(lane)
            draft = row["draft_ms_per_token"]
            first = row["first_accept_rate"]
            lines.append([
                self.target, self.preset, lane, _times(row),
                f"{100 * first:.0f} %" if first is not None else "-", f"{row['tokens_per_step']:.2f}",
                f"{draft:.2f}" if draft else "-", f"1/{one_pass / draft:.0f}" if draft else "-",
            ])  # fmt: skip
        return lines

    def by_task(self) -> list[list[str]]:
        """A line for each lane: its speedup on each task."""
        return [
            [self.target, self.preset, lane, *(_times(self.of(lane, task)) for task in self.tasks)]
            for lane in self.lanes
        ]


def _speedup(row: dict[str, Any]) -> float:
    return float(row["speedup"] or 0.0)


def _times(row: dict[str, Any]) -> str:
    return f"{_speedup(row):.2f}x"


def measure_pair(
    studio: Studio,
    items: Sequence[Item],
    tokens: int,
    preset: str,
    *,
    listen: Callable[[str], None],
    progress: ProgressCallback = silent,
) -> PairResult:
    """Run the lanes that this pair has. tokens: of each answer; listen: see `run.Bench`"""
    here = {method.name for method in studio.methods() if method.available}
    singles = [lane for lane in SINGLES if lane in here]
    chains = [f"{lane}:constant:{CHAIN}" for lane in singles if lane != SINGLES[0]]
    recommended = studio.pair.recommended.sampling
    usual = RunSettings(max_new_tokens=tokens, memory=False, preset=preset)

    def settings_of(lane: str) -> RunSettings:
        method, _, policy = lane.partition(":")
        asked = replace(usual, method=method)
        if policy:
            asked = replace(asked, policy="constant", lookahead=CHAIN, fallback=False)
        return asked.drawn(recommended)

    options = BenchOptions(",".join([AUTO, *singles, *chains]), first_turns=True)
    bench = run_bench(studio, items, options, settings_of, listen=listen, progress=progress)
    return PairResult(studio.pair.target.info.name, preset, bench.report.rows())


def as_file(results: Sequence[PairResult], prompts: int, tokens: int) -> dict[str, Any]:
    """A file of measurements as the documents read it. prompts: of the suite; tokens: of each answer"""
    tasks = [name.replace("_", " ") for name in results[0].tasks]
    tables = [
        (CHOICE, [result.choice() for result in results]),
        (DRAFTS, [line for result in results for line in result.drafts()]),
        ((*TASKS, *tasks), [line for result in results for line in result.by_task()]),
    ]
    return {
        "title": "Auto beside single methods, both pairs",
        "machine": machine_name(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "about": f"{prompts} prompts, first turns, {tokens} new tokens.",
        "tables": [{"columns": list(columns), "rows": rows} for columns, rows in tables],
    }
