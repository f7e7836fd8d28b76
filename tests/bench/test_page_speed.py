"""The long run is made of real steps, in order; figures of frames and memory are what they say."""

from __future__ import annotations

import pytest

from specdemo.bench import page_speed
from specdemo.trace.codec import decode
from specdemo.trace.events import RunFinished, Verified


def test_the_long_run_is_one_whole_trace_of_recorded_steps():
    events = page_speed.long_run(tokens=300)
    read = [decode(page_speed.json.dumps(event)) for event in events]
    lane = [event for event in read if event.lane == "speculative"]
    verified = [event for event in lane if isinstance(event, Verified)]
    assert [event.step for event in verified] == list(range(len(verified)))
    times = [event.elapsed_seconds for event in verified]
    assert times == sorted(times)
    assert isinstance(lane[-1], RunFinished)
    count = sum(len(event.path) + 1 for event in verified)
    assert 300 <= count == lane[-1].new_tokens < 340


def test_figures_of_frames():
    gaps = [1 / 60] * 90 + [0.05] * 10
    figures = page_speed.frame_figures(gaps)
    assert figures["median_seconds"] == pytest.approx(1 / 60)
    assert figures["p95_seconds"] == pytest.approx(0.05)
    assert figures["dropped_share"] == pytest.approx(0.1)
    assert figures["frames_per_second"] == pytest.approx(100 / 2)


def test_what_falls_short_is_said():
    figures = {
        "first_paint_seconds": 1.2,
        "heap_bytes": {1: 20e6, 10: 21e6, 100: 22e6},
        "frames": page_speed.frame_figures([1 / 60]),
        "tokens": 512,
        "detail": True,
    }
    assert page_speed.failures(figures) == []
    slow = {**figures, "first_paint_seconds": 2.5, "heap_bytes": {1: 20e6, 100: 90e6}}
    assert len(page_speed.failures(slow)) == 2
    assert "1.20 s" in page_speed.table(figures)
    assert "22 MB" in page_speed.table(figures)
