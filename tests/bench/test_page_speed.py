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


def test_a_chart_is_behind_for_as_long_as_the_player_shows_a_step_that_it_has_not():
    # Step 1 is drawn at once, step 2 two frames later, steps 3 and 4 together; step 5 never is, and does not count.
    frames = [(0.02, 1, 1), (0.02, 2, 1), (0.02, 2, 1), (0.02, 2, 2), (0.02, 3, 2), (0.02, 4, 4)]
    figures = page_speed.chart_figures([*frames, (0.02, 5, 4)])
    assert figures["most_seconds"] == pytest.approx(0.04)
    assert figures["median_seconds"] == pytest.approx(0.01)


def test_what_falls_short_is_said():
    figures = {
        "first_words_seconds": 1.2,
        "player_seconds": 2.4,
        "heap_bytes": {1: 20e6, 10: 21e6, 100: 22e6},
        "frames": page_speed.frame_figures([1 / 60]),
        "charts": {"median_seconds": 0.04, "p95_seconds": 0.08, "most_seconds": 0.12},
        "tokens": 512,
        "detail": True,
    }
    assert page_speed.failures(figures) == []
    late = {**figures["charts"], "p95_seconds": 0.13}
    slow = {**figures, "first_words_seconds": 2.5, "heap_bytes": {1: 20e6, 100: 90e6}}
    assert len(page_speed.failures({**slow, "charts": late})) == 3
    assert "1.20 s" in page_speed.table(figures)
    assert "22 MB" in page_speed.table(figures)
