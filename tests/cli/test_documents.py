"""The generated parts of the documents: tables from JSON, and the declarations of events for the scripts."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from specdemo.bench.results import Result, lanes_table, tasks_table
from specdemo.trace.events import EVENTS
from tools import docs
from tools.docs import declarations

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / docs.MEASURED).glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_measurement_says_where_and_when(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    assert all(data[name] for name in ("title", "machine", "date", "about"))
    assert data["tables"]
    result = Result.from_dict(data)
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def a_bench(**more: object) -> dict[str, object]:
    """Return a file of measurements with two variants and two tasks."""
    rows = [
        {"task": task, "lane": lane, "speedup": speedup, "answers": 3, "repeats": 1}
        for lane, speedups in {
            "nothing": (1.0, 1.0),
            "tree": (2.0, 0.5),
            "slow": (0.25, 0.5),
        }.items()
        for task, speedup in zip(("math_qa", "all"), speedups, strict=True)
    ]
    return {
        "title": "A bench",
        "machine": "A processor",
        "date": "2026-01-01",
        "about": "Two prompts.",
        "command": "python -m specdemo bench",
        "pairs": [{"target": "tiny", "preset": "greedy", "rows": rows}],
        "tables": [asdict(lanes_table(rows)), asdict(tasks_table(rows, "nothing"))],
        **more,
    }


def write(root: Path, name: str, data: dict[str, object]) -> None:
    folder = root / docs.MEASURED
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(data), encoding="utf-8")


def test_a_bench_is_rendered_with_its_machine_date_and_command(tmp_path: Path) -> None:
    write(tmp_path, "1.json", a_bench())
    text = docs.measured_tables(tmp_path)
    assert text.startswith("## A bench\n\nA processor; 2026-01-01. Two prompts.")
    assert "```sh\npython -m specdemo bench\n```" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| tree ") and "2.00" in line)
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["2.00×", "0.50×", "1 of 3"]


def test_the_readme_shows_chosen_lanes(tmp_path: Path) -> None:
    write(tmp_path, "1.json", a_bench(readme=["slow", "tree"]))
    table = docs.readme_table(tmp_path).splitlines()
    assert [line.split("`")[1] for line in table[2:4]] == ["tree", "slow"]
    cells = [cell.strip() for cell in table[2].split("|")[1:-1]]
    assert cells == ["greedy", "`tree`", "0.50×", "-", "1 of 3", "-", "-"]
    assert table[-1] == "A processor, 2026-01-01. Two prompts."


def test_plain_tables_keep_their_order(tmp_path: Path) -> None:
    for name, title in (("2.json", "Second"), ("1.json", "First")):
        data = {"title": title, "machine": "m", "date": "d", "about": "a"}
        table = {"columns": ["what", "ms"], "rows": [["pass", 3], ["draft", "0.5"]]}
        write(tmp_path, name, {**data, "tables": [table]})
    text = docs.measured_tables(tmp_path)
    assert text.index("## First") < text.index("## Second")
    assert "| pass  | 3   |\n| draft | 0.5 |" in text


def interface(name: str) -> list[str]:
    body = declarations().split(f"export interface {name} {{\n")[1].split("\n}")[0]
    return [line.strip() for line in body.split("\n")]


def test_declarations_contain_every_event_with_all_its_fields():
    for name, cls in EVENTS.items():
        first, *rest = interface(cls.__name__)
        assert first == f'type: "{name}";'
        assert [line.split(":")[0].rstrip("?") for line in rest] == [f.name for f in fields(cls)]


def test_declarations_mark_fields_that_may_be_missing():
    verified = interface("Verified")
    assert "step: number;" in verified
    assert "next?: Node;" in verified  # it has no default, and None is left out of a line
    assert "places?: Place[];" in verified
    started = interface("RunStarted")
    assert "verify_costs?: [number, number][];" in started
    assert "settings: Record<string, any>;" in started
    assert 'export type FinishReason = "stop" | "length" | "cancelled";' in declarations()
