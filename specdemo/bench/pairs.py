"""Variants on several pairs of models, each with several samplings, in one bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specdemo.bench.lanes import PLAIN_METHOD
from specdemo.bench.results import (
    ABOUT,
    ALL,
    COLUMNS,
    Result,
    Row,
    Table,
    cell,
    tasks_table,
    totals,
)
from specdemo.bench.run import BenchOptions, run_bench
from specdemo.bench.suite import Item
from specdemo.config.errors import UserError
from specdemo.config.settings import OWN, RunSettings, Sampling
from specdemo.files.progress import ProgressCallback, silent
from specdemo.session.studio import Studio

LANES = "auto,ngram,draft_model,feature,draft_model:constant:4,feature:constant:4"
SHOWN = (
    "speedup", "speedup_quartiles", "speedup_mean", "speedup_lowest", "repeats", "speedup_all", "disturbed",
    "tokens_per_second", "drafted_accept_rate", "tokens_per_step", "draft_ms_per_token", "same_output_rate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PairResult:
    """Rows of the bench on one target with one sampling."""

    target: str
    preset: str
    rows: list[Row]

    def lines(self) -> list[list[object]]:
        """Return a line for each variant, with the task on which it gains least."""
        lines = []
        for row in totals(self.rows):
            tasks = [one for one in self.rows if one["lane"] == row["lane"] and one["task"] != ALL]
            known = [one for one in tasks if one["speedup"]]
            worst = min(known, key=lambda one: float(one["speedup"]), default=None)
            name = f"{worst['task'].replace('_', ' ')} {cell(worst, 'speedup')}" if worst else "-"
            key = [self.target, self.preset, row["lane"]]
            lines.append([*key, *(cell(row, column) for column in SHOWN), name])
        return lines


def sampling_of(name: str) -> RunSettings:
    """Return the settings of a preset, or of TEMPERATURE/TOP_P/REPETITION_PENALTY. Raises UserError."""
    try:
        temperature, top_p, penalty = map(float, name.split("/"))
    except ValueError:
        return RunSettings(preset=name).checked()
    sampling = Sampling(temperature=temperature, top_p=top_p, repetition_penalty=penalty)
    return RunSettings(preset=OWN, sampling=sampling).checked()


def compare_methods(
    studio: Studio,
    items: Sequence[Item],
    preset: str,
    options: BenchOptions,
    settings_of: Callable[[str], RunSettings],
    *,
    listen: Callable[[str], None],
    progress: ProgressCallback = silent,
) -> PairResult:
    """Run the variants that this pair has. preset: see `sampling_of`; settings_of: of a variant, but for its sampling"""
    available = {method.name for method in studio.methods() if method.available}
    lanes = [lane for lane in options.lanes.split(",") if lane.partition(":")[0] in available]
    if not lanes:
        raise UserError("method.unknown", method=options.lanes, names=", ".join(sorted(available)))
    usual, recommended = sampling_of(preset), studio.pair.recommended.sampling

    def drawn(lane: str) -> RunSettings:
        settings = settings_of(lane)
        always = ":constant" in lane  # such a variant drafts at each step
        return replace(
            settings,
            preset=usual.preset,
            sampling=usual.sampling,
            fallback=settings.fallback and not always,
        ).drawn(recommended)

    options = replace(options, lanes=",".join(lanes))
    bench = run_bench(studio, items, options, drawn, listen=listen, progress=progress)
    return PairResult(studio.pair.target.info.name, preset, bench.rows())


def pairs_result(results: Sequence[PairResult], prompts: int, tokens: int) -> Result:
    """Return the tables of all pairs. prompts: number in the suite; tokens: of each answer"""
    heads = ["target", "sampling", "lane", *(COLUMNS[key][0] for key in SHOWN), "worst task"]
    lines = [line for result in results for line in result.lines()]
    tables = [Table(heads, lines)]
    for result in results:
        table = tasks_table(result.rows, PLAIN_METHOD)
        tables.append(replace(table, title=f"{result.target}, {result.preset}"))
    about = f"{prompts} prompts, first turns, {tokens} new tokens. {ABOUT}"
    values = {
        "pairs": [{"target": one.target, "preset": one.preset, "rows": one.rows} for one in results]
    }
    return Result("Methods on pairs of models", about, tables, values=values)
