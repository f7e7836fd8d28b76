"""The tables of faults in docs/reliability.md name the files of their tests."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_every_row_names_test_files_that_exist():
    rows = [
        line for line in PAGE.splitlines() if line.startswith("| ") and "what happens" not in line
    ]
    assert len(rows) >= 25
    for row in rows:
        files = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert files, row
        assert all((ROOT / file).is_file() for file in files), row


def test_every_test_file_of_a_fault_is_named():
    for path in Path(__file__).parent.glob("test_*.py"):
        assert path == Path(__file__) or path.relative_to(ROOT).as_posix() in PAGE, path.name
