"""Variants on several pairs of models, each with several samplings, in one bench."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from specdemo.bench.lanes import expand
from specdemo.bench.results import (
    ABOUT,
    ALL,
    ROW_COLUMNS,
    STRINGS,
    Result,
    Row,
    Table,
    cell,
    tasks_table,
    totals,
)
from specdemo.bench.run import BenchOptions, run_bench
from specdemo.config.errors import UserError
from specdemo.config.settings import BLOCK, COUPLED, OWN, RunSettings, Sampling
from specdemo.drafters.methods import METHODS
from specdemo.files.progress import ProgressCallback, silent
from specdemo.session.studio import Studio
from specdemo.session.text import Item
from specdemo.trace.events import NOTHING

USUAL_LANES = "auto,ngram,draft_model,feature,draft_model:constant:4,feature:constant:4"
SHOWN_COLUMNS = (
    "speedup", "speedup_quartiles", "speedup_mean", "speedup_lowest", "repeats", "speedup_all", "disturbed",
    "tokens_per_second", "drafted_accept_rate", "tokens_per_step", "draft_ms_per_token", "same_output_rate",
)  # fmt: skip
RULE_KEYS = ("drafted_accept_rate", "tokens_per_step", "speedup", "speedup_all", "repeats")
SAME_KEYS = ("same_output_rate", "same_prefix_rate", "flip_margin")


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
            lines.append([*key, *(cell(row, column) for column in SHOWN_COLUMNS), name])
        return lines


def sampling_of(name: str) -> RunSettings:
    """Return the settings of a preset, or of TEMPERATURE/TOP_P/REPETITION_PENALTY[/TOP_K]. Raises UserError."""
    parts = name.split("/")
    try:
        temperature, top_p, penalty = map(float, parts[:3])
        (top_k,) = map(int, parts[3:] or ["0"])
    except ValueError:
        return RunSettings(preset=name).checked()
    sampling = Sampling(temperature, top_k, top_p, penalty)
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
    rules: Sequence[str] = (),
) -> Iterator[PairResult]:
    """Run the variants that this pair has.

    preset: see `sampling_of`; settings_of: of a variant, but for its sampling; rules: see `with_rules`
    yields: the results so far, after each prompt
    """
    available = {method.name for method in studio.methods() if method.available}
    names = expand(options.lanes, studio)
    lanes = [lane for lane in names if lane.partition(":")[0] in available]
    if not lanes:
        raise UserError("method.unknown", method=options.lanes, names=", ".join(sorted(available)))
    lanes = with_rules(lanes, rules) if rules else lanes
    usual = sampling_of(preset)

    def drawn(lane: str) -> RunSettings:
        settings = settings_of(lane)
        fallback = settings.fallback and ":constant" not in lane  # which drafts at each step
        return replace(settings, preset=usual.preset, sampling=usual.sampling, fallback=fallback)

    options = replace(options, lanes=",".join(lanes))
    for bench in run_bench(studio, items, options, drawn, listen=listen, progress=progress):
        yield PairResult(studio.pair.target.info.name, preset, bench.rows())


def with_rules(lanes: Sequence[str], rules: Sequence[str]) -> list[str]:
    """Return each variant once for each rule of verification; the rule for blocks only where chains are drawn.

    auto, draft_model with token, block, coupled -> auto:::token, auto:::coupled, draft_model:::token, ...
    """
    found = []
    for lane in lanes:
        method = METHODS[lane.partition(":")[0]]
        chains = method.tokens == "drawn" and "nodes" not in method.options
        shown = [rule for rule in rules if rule != BLOCK or chains]
        found += [f"{lane}{':' * (3 - lane.count(':'))}{rule}" for rule in shown]
    return found


def pairs_result(
    results: Sequence[PairResult], prompts: int, tokens: int, rules: Sequence[str] = ()
) -> Result:
    """Return the tables of all pairs. prompts: number in the suite; tokens: of each answer; rules: see `with_rules`"""
    if rules:
        return rules_result(results, tokens, rules)
    shown = [ROW_COLUMNS[key][0] for key in SHOWN_COLUMNS]
    lines = [line for result in results for line in result.lines()]
    tables = [Table(["target", "sampling", "lane", *shown, "worst task"], lines)]
    for result in results:
        table = tasks_table(result.rows, NOTHING)
        tables.append(replace(table, title=f"{result.target}, {result.preset}"))
    about = f"{prompts} prompts, first turns, {tokens} new tokens. {ABOUT}"
    values = {"pairs": [asdict(one) for one in results]}
    return Result("Methods on pairs of models", about, tables, values=values)


def rules_result(results: Sequence[PairResult], tokens: int, rules: Sequence[str]) -> Result:
    """Return a table with a line for each target, sampling and variant, and one with the bounds of drawn tokens."""
    lines, bounds = [], []
    for result in results:
        rows = {row["lane"]: row for row in totals(result.rows)}
        for lane in dict.fromkeys(name.rpartition(":")[0] for name in rows if ":" in name):
            own = [rows.get(f"{lane}:{rule}", {}) for rule in rules]
            key = [result.target, result.preset, lane.rstrip(":")]
            same = cell(rows.get(f"{lane}:{COUPLED}", {}), "same_output_rate")
            lines.append([*key, *(_side_by_side(own, name) for name in RULE_KEYS), same])
            drawn = [row for row in own if row.get("draws")]
            if draws := sum(row["draws"] for row in drawn):
                overlap = sum(row["draws"] * row["overlap"] for row in drawn) / draws
                pooled = {"draws": draws, "overlap": overlap, "draw_bound": overlap / (2 - overlap)}
                accepted = _side_by_side(own, "draw_accept_rate")
                bounds.append([*key, *(cell(pooled, name) for name in pooled), accepted])
    keys, same = ["target", "sampling", "lane"], f"same output, {COUPLED}"
    columns = ("draws", "overlap", "draw_bound", "draw_accept_rate")
    tables = [
        Table([*keys, *(ROW_COLUMNS[name][0] for name in RULE_KEYS), same], lines),
        Table([*keys, *(ROW_COLUMNS[name][0] for name in columns)], bounds, **STRINGS["bounds"]),
    ]
    prompts = max((row["answers"] for result in results for row in result.rows), default=0)
    about = f"{prompts} prompts, first turns, {tokens} new tokens. {' / '.join(rules)} in each cell. {ABOUT}"
    values = {"pairs": [asdict(one) for one in results]}
    return Result("Three rules of verification", about, tables, values=values)


def _side_by_side(rows: Sequence[Row], name: str) -> str:
    return " / ".join(cell(row, name) for row in rows)
