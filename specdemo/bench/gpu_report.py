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
from specdemo.session.machine import machine_name

PACKAGES = ("torch", "transformers", "bitsandbytes", "triton", "numba")
LANE = (
    "tokens_per_second", "speedup", "first_accept_rate", "tokens_per_step", "draft_ms_per_token",
    "same_output_rate", "same_prefix_rate", "flip_margin",
)  # fmt: skip
ABOUT = {
    "ladder": "Milliseconds of a pass of the target by its rows, medians of passes in turn; what each further row adds stands below.",
    "draft": "One more token of the draft model, median, beside a pass of one row.",
    "same": "Greedy texts that passes of one row have written, read again in passes of more rows. The lead is the likeliest word's over "
    "the next one, in logits. Where all bits are the same, greedy text with drafts of one token less than these rows cannot differ.",
    "rates": "First turns, greedy, in turn; means over tasks. The same text is plain decoding's.",
    "memory": "Megabytes of the graphics card after these measurements.",
    "head": "The output head in fewer bits, against the one in bfloat16.",
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
    return {
        "title": f"A pass by its rows on {machine_name()}",
        "machine": machine_name(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "about": " ".join(ABOUT[name] for name in ("ladder", "same", "rates")),
        "command": shlex.join(["python", "-m", "specdemo", *sys.argv[1:]]),
        "device": device_facts(),
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
    found = [
        _table("ladder", ("target", "pass", *map(str, ROWS)), [
            line for name, pair in each for one in pair["ladders"] for line in _ladder(name, one)
        ]),
        _table("draft", ("target", "draft", "ms", "of a pass"), [
            [name, (pair["draft"] or {}).get("name", "-"), f"{1e3 * step:.2f}", _share(step, pair)]
            for name, pair in each if (step := pair["draft_step"])
        ]),
        _table("same", (
            "target", "rows", "tokens", "same bits", "same likeliest word", "largest difference",
            "smallest lead", "largest lead overtaken",
        ), [_same(name, one) for name, pair in each for one in pair["sameness"]]),
        _table("rates", ("target", "lane", *(COLUMNS[key][0] for key in LANE)), [
            [name, row["lane"], *(_cell(row, key) for key in LANE)]
            for name, pair in each for row in pair["rows"] if row["task"] == "mean"
        ]),
        _table("memory", ("target", "when", "MB"), [
            [name, when, f"{count / 1e6:.0f}"]
            for name, pair in each for when, count in pair["memory"].items()
        ]),
        *(
            _table("head", ("target", *pair["heads"]["columns"]), [
                [name, *row] for row in pair["heads"]["rows"]
            ])
            for name, pair in each if pair["heads"]
        ),
        _table("missing", ("target", "part", "why"), [
            [name, part, why] for name, pair in each for part, why in pair["left_out"].items()
        ]),
    ]  # fmt: skip
    return [one for one in found if one["rows"]]


def _table(kind: str, columns: Sequence[str], rows: list[list[str]]) -> Table:
    return {"about": ABOUT[kind], "columns": list(columns), "rows": rows}


def _ladder(name: str, ladder: Mapping[str, Any]) -> list[list[str]]:
    times = [1e3 * seconds for seconds in ladder["seconds"]]
    steps = [after - before for before, after in pairwise(times)]
    return [
        [name, ladder["way"], *(f"{ms:.2f}" for ms in times)],
        ["", "each row more", "-", *(f"{ms:+.2f}" for ms in steps)],
    ]


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
    lines = {
        f"{pair['target']['name']}, {one['way']}": list(zip(ROWS, one["seconds"], strict=True))
        for pair in found["pairs"]
        for one in pair["ladders"]
    }
    facts = {
        "machine": found["machine"],
        "date": found["date"],
        **found["device"],
        "versions": ", ".join(f"{name} {value}" for name, value in found["versions"].items()),
        "time": f"{found['seconds']} s of {found['minutes']:g} minutes",
        **{pair["target"]["name"]: pair["target"]["kernel"] for pair in found["pairs"]},
    }
    parts = [
        facts_table(facts),
        f"<pre>{escape(found['command'])}</pre>",
        *(f"<p>{escape(note)}</p>" for note in found["notes"]),
        drawn(pass_costs(lines)) if lines else "",
    ]
    for one in found["tables"]:
        parts += [f"<p>{escape(one['about'])}</p>", html_table(one["columns"], one["rows"])]
    return page(found["title"], parts)
