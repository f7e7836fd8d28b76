"""The page on a CPU Space: what needs no model is there before it."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits a process as Linux can")


def test_the_page_and_its_recorded_runs_wait_for_no_model_and_need_no_rights():
    from specdemo.bench.cold_start import measure

    nothing_downloaded = {"PIP_NO_INDEX": "1", "SPECDEMO_WHEEL": "/nowhere"}
    found = measure(nothing_downloaded, whole=False)
    assert found.state in ("loading", "failed")
    assert found.page <= found.recorded
