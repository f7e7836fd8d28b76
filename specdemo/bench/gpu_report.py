"""What `gpu` has measured as a file, as tables and as a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from platform import platform, python_version
from typing import Any

import specdemo
from specdemo.bench.gpu import ROWS, PairFindings
from specdemo.bench.html_report import drawn, facts_table, page, pass_costs
from specdemo.bench.html_report import table as html_table
from specdemo.bench.lanes import PLAIN
from specdemo.bench.peer import versions
from specdemo.bench.report import COLUMNS
from specdemo.session.loaded import machine_name

PACKAGES = ("torch", "transformers", "bitsandbytes", "triton", "numba")
LANE = (
    "tokens_per_second", "speedup", "first_accept_rate", "tokens_per_step", "draft_ms_per_token",
    "same_output_rate", "same_prefix_rate", "flip_margin",
)  # fmt: skip
TITLES = {
    "ladder": "The ladder", "draft": "A step of the draft", "same": "The same words in passes of several rows",
    "rates": "Tokens a second", "memory": "Memory",
    "missing": "Not measured",
}  # fmt: skip
ABOUT = {
    "ladder": "Milliseconds of a pass of the target by its rows, medians of passes in turn, and what each further row adds. "
    "Drafting k tokens takes a pass of k + 1 rows.",
    "draft": "One more token of the draft model, median, beside a pass of one row.",
    "same": "Greedy texts that passes of one row have written, read again in passes of more rows. The lead is the likeliest word's over "
    "the next one, in logits. Where all bits are the same, greedy text with drafts of one token less than these rows cannot differ.",
    "rates": "First turns, greedy, in turn; means over tasks. The same output is plain decoding's text; where it differs, same until is the "
    "share of the text before that, and the tie margin the difference in probability of the two words there, a median.",
    "memory": "Megabytes of the graphics card after these measurements.",
    "missing": "What was not measured, and why.",
}
Table = dict[str, Any]


def document(
    pairs: Sequence[PairFindings], *, minutes: float, seconds: float, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything as plain values; also a file of measurements as the documents read it.

    minutes, seconds: that were allowed and taken; notes: on pairs that are not in it
    """
    found = [pair.to_dict() for pair in pairs]
    facts = device_facts()
    machine = ", ".join(filter(None, (facts.get("graphics card"), machine_name())))
    return {
        "title": f"A pass by its rows on {facts.get('graphics card') or machine_name()}",
        "machine": machine,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "about": " ".join(ABOUT[name] for name in ("ladder", "same", "rates")),
        "command": shlex.join(["python", "-m", "specdemo", *sys.argv[1:]]),
        "device": facts,
        "versions": {
            "specdemo": specdemo.__version__,
            "python": python_version(),
            **versions(*PACKAGES),
        },
        "minutes": minutes,
        "seconds": round(seconds),
        "notes": list(notes),
        "pairs": found,
        "tables": tables(found),
    }


def device_facts() -> dict[str, str]:
    """The system, and the graphics card where there is one."""
    import torch

    facts = {"system": platform(), "CUDA": "none; the processor computes"}
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        facts |= {
            "CUDA": str(torch.version.cuda),
            "graphics card": card.name,
            "compute capability": f"{card.major}.{card.minor}",
            "multiprocessors": str(card.multi_processor_count),
            "memory": f"{card.total_memory / 1e9:.1f} GB",
        }
    return facts


def tables(pairs: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Tables of all pairs; those without a row are left out. pairs: as of `PairFindings.to_dict`"""
    each = [(pair["target"]["name"], pair) for pair in pairs]
    means = [(name, row) for name, pair in each for row in pair["rows"] if row["task"] == "mean"]
    shown = [key for key in LANE if any(_cell(row, key) != "-" for _, row in means)]
    found = [
        *(_ladders(name, pair["ladders"]) for name, pair in each if pair["ladders"]),
        _table("draft", ("target", "draft", "ms", "of a pass"), [
            [name, (pair["draft"] or {}).get("name", "-"), f"{1e3 * step:.2f}", _share(step, pair)]
            for name, pair in each if (step := pair["draft_step"])
        ]),
        _table("same", (
            "target", "rows", "tokens", "same bits", "same likeliest word", "largest difference",
            "smallest lead", "largest lead overtaken",
        ), [_same(name, one) for name, pair in each for one in pair["sameness"]]),
        _table("rates", ("target", "lane", *(COLUMNS[key][0] for key in shown)), [
            [name, row["lane"], *(_cell(row, key) for key in shown)] for name, row in means
        ]),
        _table("memory", ("target", "when", "MB"), [
            [name, when, f"{count / 1e6:.0f}"]
            for name, pair in each for when, count in pair["memory"].items()
        ]),
        _table("missing", ("target", "part", "why"), [
            [name, part, why] for name, pair in each for part, why in pair["left_out"].items()
        ]),
    ]  # fmt: skip
    return [one for one in found if one["rows"]]


def _table(kind: str, columns: Sequence[str], rows: list[list[str]]) -> Table:
    columns = list(columns)
    return {"title": TITLES[kind], "about": ABOUT[kind], "columns": columns, "rows": rows}


def _ladders(name: str, ladders: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each count of rows; of each way to compute, the pass and what its last row has added."""
    columns, cells = ["target", "rows"], [[name, str(rows)] for rows in ROWS]
    for ladder in ladders:
        columns += [f"{ladder['way']}, ms", "more"]
        times = [1e3 * seconds for seconds in ladder["seconds"]]
        steps = ["-", *(f"{after - before:+.2f}" for before, after in pairwise(times))]
        for line, ms, step in zip(cells, times, steps, strict=True):
            line += [f"{ms:.2f}", step]
    return _table("ladder", columns, cells)


def findings(pair: Mapping[str, Any]) -> list[str]:
    """What a reader takes from a pair at a glance, a sentence each. pair: as of `PairFindings.to_dict`"""
    said = []
    if pair["ladders"]:
        best = min(pair["ladders"], key=lambda one: one["seconds"][0])
        one, five = (1e3 * best["seconds"][rows - 1] for rows in (1, 5))
        said.append(
            f"{best['way']}: a pass of one row takes {one:.2f} ms; with four drafted tokens it takes {five / one:.2f} times that."
        )
    if pair["sameness"]:
        exact = 1
        for step in pair["sameness"]:
            if step["same_bits"] < step["tokens"]:
                break
            exact = step["rows"]
        said.append(
            f"Passes of up to {exact} rows gave every bit of passes of one row."
            if exact > 1
            else "Passes of two rows gave other bits than passes of one row: greedy texts may part at a tie."
        )
    means = [row for row in pair["rows"] if row["task"] == "mean" and row["speedup"]]
    if means:
        fastest = max(means, key=lambda row: row["speedup"])
        rate, lane = fastest["tokens_per_second"], fastest["lane"]
        said.append(
            "No lane is faster than plain decoding."
            if lane == PLAIN
            else f"Fastest: {lane} with {rate:.0f} tokens a second, {fastest['speedup']:.2f} times plain decoding."
        )
    return said


def _share(step: float, pair: Mapping[str, Any]) -> str:
    return f"1/{pair['ladders'][0]['seconds'][0] / step:.1f}" if pair["ladders"] else "-"


def _same(name: str, one: Mapping[str, Any]) -> list[str]:
    over = one["overtaken"]
    return [
        name, str(one["rows"]), str(one["tokens"]),
        *(f"{100 * one[key] / one['tokens']:.1f} %" for key in ("same_bits", "same_word")),
        f"{one['difference']:.3g}", f"{one['lead']:.3g}", "-" if over is None else f"{over:.3g}",
    ]  # fmt: skip


def _cell(row: Mapping[str, Any], key: str) -> str:
    compared = key not in LANE[-3:] or row["lane"] != PLAIN
    return COLUMNS[key][1](row[key]) if compared and row[key] is not None else "-"


def render(found: Mapping[str, Any]) -> str:
    """The page. found: as of `document`"""
    facts = {
        "machine": found["machine"],
        "date": found["date"],
        **found["device"],
        "versions": ", ".join(f"{name} {value}" for name, value in found["versions"].items()),
        "time": f"{found['seconds']} s of {found['minutes']:g} minutes",
        **{
            pair["target"]["name"]: f"{pair['target']['precision']}: {pair['target']['kernel']}"
            for pair in found["pairs"]
        },
    }
    parts = [
        facts_table(facts),
        f"<pre>{escape(found['command'])}</pre>",
        *(f"<p>{escape(note)}</p>" for note in found["notes"]),
    ]
    for pair in found["pairs"]:
        name = pair["target"]["name"]
        if said := findings(pair):
            points = "".join(f"<li>{escape(one)}</li>" for one in said)
            parts.append(f"<h2>{escape(name)}</h2><ul>{points}</ul>")
        lines = {
            one["way"]: list(zip(ROWS, one["seconds"], strict=True)) for one in pair["ladders"]
        }
        if lines:
            parts.append(drawn(pass_costs(lines, f"A pass of {name} by its rows")))
    before = ""
    for one in found["tables"]:
        if one["title"] != before:
            parts.append(f"<h2>{escape(one['title'])}</h2><p>{escape(one['about'])}</p>")
        first = 1 if len(found["pairs"]) == 1 else 0  # which target it is goes without saying
        parts.append(html_table(one["columns"][first:], [row[first:] for row in one["rows"]]))
        before = one["title"]
    return page(found["title"], parts)
