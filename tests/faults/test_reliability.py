"""The tables of faults in docs/reliability.md name the files of their tests; durations use a monotonic clock."""

import itertools
import re
import time

from conftest import run_lane
from programs import ROOT

from specdemo.drafters.base import Plain
from specdemo.trace.events import RunFinished, Verified

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
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/faults/test_*.py")}
    assert {name for name in files if name not in PAGE} == set()


def test_a_run_does_not_notice_that_the_clock_jumps(monkeypatch, target_weights):
    jumps = itertools.cycle((0.0, 4e9, -1.0, 1e9))
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    events = run_lane(target_weights, Plain(), [1, 2, 3], max_new_tokens=12)
    steps = [event for event in events if isinstance(event, Verified)]
    elapsed = [step.elapsed_seconds for step in steps]
    assert elapsed == sorted(elapsed)
    assert 0 < elapsed[-1] < 60
    assert isinstance(events[-1], RunFinished)


def test_only_the_age_of_files_is_read_from_the_clock_on_the_wall():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("specdemo/**/*.py")
        if re.search(
            r"\btime\.time\(|\butcnow\(|datetime\.now\(\)", path.read_text(encoding="utf-8")
        )
    }
    assert found <= {"specdemo/files/store.py", "specdemo/models/measurements.py"}
