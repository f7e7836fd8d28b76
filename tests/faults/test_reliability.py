"""The table of faults names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def functions_of(path: Path) -> set[str]:
    return set(re.findall(r"^ *def (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_row_has_a_test_and_every_test_is_there():
    rows = [
        line for line in PAGE.splitlines() if line.startswith("| ") and "what happens" not in line
    ]
    assert len(rows) >= 25
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for file, name in named:
            assert name in functions_of(ROOT / file), row


def test_every_test_of_a_fault_has_a_row():
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for name in functions_of(path):
            if name.startswith("test_") and path != Path(__file__):
                assert name in PAGE, (path.name, name)
