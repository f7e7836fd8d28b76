"""A lap counts own work and passes, and not the wait for others."""

from __future__ import annotations

import time

import pytest

from specdemo.engine.clock import Lap, StepClock
from specdemo.engine.passes import ForwardOutput, ForwardRequest, Sharing, answered, immediate

OWN, PASS, WAIT = 0.02, 0.08, 0.15
NEAR = 0.015


def work():
    """Computes, asks for one pass, computes."""
    time.sleep(OWN)
    request = ForwardRequest(None, None)
    yield request
    time.sleep(OWN)
    return request.result().logits


def driven(lap: Lap, sharing: Sharing):
    """Answer the one request of a lap after a while. returns: what the work returned"""
    driving = lap.of(work())
    request = next(driving)
    time.sleep(sharing.seconds + WAIT)
    request.output = ForwardOutput("logits", sharing=sharing)
    with pytest.raises(StopIteration) as end:
        next(driving)
    return end.value.value


def test_a_pass_is_shared_and_a_wait_is_nobodys():
    lap = Lap()
    assert driven(lap, Sharing(4, 4, PASS)) == "logits"
    assert lap.seconds == pytest.approx(2 * OWN + PASS, abs=NEAR)
    assert lap.share == pytest.approx(2 * OWN + PASS / 4, abs=NEAR)
    assert lap.waited == pytest.approx(WAIT, abs=NEAR)


def test_the_parts_of_a_step_add_up():
    clock = StepClock()
    with clock.running():
        driven(clock.draft, Sharing(2, 2, PASS))
        driven(clock.verify, Sharing(2, 2, PASS))
        time.sleep(OWN)
    assert clock.overhead == pytest.approx(OWN, abs=NEAR)
    assert clock.until_judged == pytest.approx(2 * OWN + PASS + 2 * WAIT, abs=2 * NEAR)
    parts = clock.draft.seconds + clock.until_judged + clock.overhead
    assert clock.total == pytest.approx(parts)


def test_laps_inside_laps_agree():
    """A drafter times its model's steps inside the lap of the loop."""
    outer, inner = Lap(), Lap()

    def nested():
        result = inner.of(work())
        return result

    driving = outer.of(nested())
    request = next(driving)
    request.output = ForwardOutput(None, sharing=Sharing(3, 3, PASS))
    with pytest.raises(StopIteration):
        next(driving)
    assert outer.share == pytest.approx(inner.share, abs=0.001)


def test_closing_a_lap_closes_the_work():
    closed = []

    def endless():
        try:
            while True:
                yield ForwardRequest(None, None)
        finally:
            closed.append(True)

    driving = Lap().of(endless())
    next(driving)
    driving.close()
    assert closed


def test_plain_functions_ask_for_nothing():
    assert immediate(lambda: 3)() == 3
