"""The generated parts of the documents: tables from JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from specdemo.bench.results import Result, summary_table, tasks_table
from specdemo.cli import docs

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
    rows = []
    for lane, speedups in {"nothing": (1.0, 1.0), "tree": (2.0, 0.5), "slow": (0.25, 0.5)}.items():
        rows += [
            {"task": task, "lane": lane, "speedup": speedup}
            for task, speedup in zip(("math_qa", "rag"), speedups, strict=True)
        ]
        rows.append(
            {
                "task": "mean",
                "lane": lane,
                "speedup": sum(speedups) / 2,
                "tokens_per_second": 100.0,
                "first_accept_rate": 0.5,
                "drafted_accept_rate": None,
                "tokens_per_step": 2.0,
                "draft_ms_per_token": None,
            }
        )
    return {
        "title": "A bench",
        "machine": "A processor",
        "date": "2026-01-01",
        "about": "Two prompts.",
        "command": "python -m specdemo bench",
        "memory_mb": {"tree": 0},
        "training_minutes": {},
        "rows": rows,
        "tables": [asdict(summary_table(rows, {"tree": 0})), asdict(tasks_table(rows, "nothing"))],
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
    assert "| `tree` | 2.00×   | 0.50× | **1.25×** | 2.00        | 50 %           |" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| tree "))
    assert [cell.strip() for cell in row.split("|")[-4:-1]] == ["rag 0.50×", "0", "-"]


def test_the_readme_shows_chosen_lanes_the_fastest_first(tmp_path: Path) -> None:
    write(tmp_path, "1.json", a_bench(readme=["slow", "tree"]))
    table = docs.readme_table(tmp_path).splitlines()
    assert [line.split("`")[1] for line in table[2:4]] == ["tree", "slow"]
    cells = [cell.strip() for cell in table[2].split("|")[1:-1]]
    assert cells == ["`tree`", "**1.25×**", "2.00× math qa", "0.50× rag", "50 %", "2.00"]
    assert table[-1] == "A processor, 2026-01-01. Two prompts."


def test_plain_tables_keep_their_order(tmp_path: Path) -> None:
    for name, title in (("2.json", "Second"), ("1.json", "First")):
        data = {"title": title, "machine": "m", "date": "d", "about": "a"}
        table = {"columns": ["what", "ms"], "rows": [["pass", 3], ["draft", "0.5"]]}
        write(tmp_path, name, {**data, "tables": [table]})
    text = docs.measured_tables(tmp_path)
    assert text.index("## First") < text.index("## Second")
    assert "| pass  | 3   |\n| draft | 0.5 |" in text
