"""A stopwatch counts a block's own work and its passes, not the wait for other runs."""

import time

import pytest
import torch
from conftest import Clock
from passes import Paused

from specdemo.engine.clock import Cancelled, Sharing, Stopwatch
from specdemo.engine.passes import ForwardOutput, request_pass

OWN, PASS, WAIT = 0.02, 0.08, 0.15
CLOCK = Clock()  # of this file's tests: another program's work takes none of its time


@pytest.fixture(autouse=True)
def scripted_time(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", CLOCK)


def work():
    """Compute, request one pass, compute."""
    CLOCK.now += OWN
    logits = request_pass(None, None).logits
    CLOCK.now += OWN
    return logits


def driven(code, sharing):
    """Run code and its only pass after a while. Returns its result."""
    stack = Paused(code)
    CLOCK.now += sharing.seconds + WAIT
    stack.request.output = ForwardOutput("logits", sharing=sharing)
    assert not stack.resume()
    return stack.result


def measured(watch, code):
    def run():
        with watch:
            return code()

    return run


def test_stopwatch_divides_a_shared_pass_and_leaves_the_wait_out():
    watch = Stopwatch()
    assert driven(measured(watch, work), Sharing(4, 4, PASS)) == "logits"
    assert watch.seconds == pytest.approx(2 * OWN + PASS)
    assert watch.fair_seconds == pytest.approx(2 * OWN + PASS / 4)
    assert watch.waited == pytest.approx(WAIT)
    assert watch.total == pytest.approx(2 * OWN + PASS + WAIT)
    assert watch.runs == 4


def test_stopwatch_inside_another_agrees_with_it():
    """A drafter times its model's steps inside the stage of the loop."""
    outer, inner = Stopwatch(), Stopwatch()
    driven(measured(outer, measured(inner, work)), Sharing(3, 3, PASS))
    assert outer.fair_seconds == pytest.approx(inner.fair_seconds)
    assert outer.runs == inner.runs == 3


def test_stage_gives_its_terms_to_the_passes_of_inner_stopwatches():
    stack = Paused(measured(Stopwatch(drafting=True, alone=True), measured(Stopwatch(), work)))
    assert stack.request.drafting
    assert stack.request.alone
    stack.close()


def test_stage_is_left_before_a_pass_once_it_is_cancelled():
    answers = [False, True]
    with pytest.raises(Cancelled):
        measured(Stopwatch(lambda: answers.pop(0)), work)()
    assert not answers
    request = Paused(work).request  # the next stage's terms are not those of the one that was left
    assert not request.drafting


def test_closing_a_stack_closes_the_code():
    closed = []

    def endless():
        try:
            while True:
                work()
        finally:
            closed.append(True)

    Paused(measured(Stopwatch(), endless)).close()
    assert closed


def test_stack_refuses_a_pass_in_inference_mode():
    """The mode belongs to the thread: the next run in it would have it too."""
    with pytest.raises(AssertionError, match="inference mode"):
        Paused(torch.inference_mode()(work))
    assert not torch.is_inference_mode_enabled()
