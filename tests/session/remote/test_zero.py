"""ZeroGPU, with the real `spaces` package: in a process of its own, since it changes torch for good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from specdemo.config.strings import strings
from specdemo.models.doctor import installed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = pytest.mark.skipif(
    not installed("spaces"), reason="needs spaces, see requirements-dev.txt"
)


def test_a_page_on_zero_gpu():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-x",
        "-p",
        "zero_space",
    ]
    done = subprocess.run(
        [*command, HERE / "zero_cases.py"],
        env={**os.environ, "PYTHONPATH": str(HERE)}, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_what_spaces_reports_is_said_in_german():
    import spaces

    source = (Path(spaces.__file__).parent / "zero" / "client.py").read_text(encoding="utf-8")
    assert all(f'"{text}"' in source for text in strings("gpu").REPORTED)
