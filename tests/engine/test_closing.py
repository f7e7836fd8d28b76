"""A run that is closed ends where it computes, and its drafter is closed however it ends."""

from __future__ import annotations

import threading

import pytest
from conftest import drafter_for
from lanes import PROMPTS, WAIT, Slow, lane

from specdemo.drafters.auto import Auto
from specdemo.drafters.base import Plain
from specdemo.drafters.copy_through import Arm
from specdemo.drafters.draft_model import LookBack
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.guard import Fallback, WithForecast
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.runner import Runner
from specdemo.engine.target import CachedModel
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.trace.events import RunStarted
from specdemo.trace.metrics import dropped


def test_closing_a_run_ends_it_where_it_computes(target_weights):
    runner, decoder, ended = Runner(), LeanDecoder(target_weights), []

    def endless():
        try:
            yield from lane(decoder, Plain(), PROMPTS[0], new_tokens=10_000)
        finally:
            ended.append(threading.current_thread().name)

    view = runner.run(endless())
    next(view)
    view.close()
    assert ended == ["specdemo-engine"]
    assert runner.call(lambda: threading.current_thread().name) == "specdemo-engine"


def test_a_run_that_is_closed_while_it_waits_closes_its_drafter(target_weights, draft_weights):
    """A thread that drafts next to the target's pass ends with the run."""
    runner, waiting, free = Runner(), threading.Event(), threading.Event()
    lean = LeanDecoder(target_weights)

    class Held:
        """Stops in the pass of the first step until it is let go."""

        config, chunk = lean.config, lean.chunk

        def run(self, passes):
            if any(one.positions[0] == len(PROMPTS[0]) - 1 for one in passes):
                waiting.set()
                assert free.wait(WAIT)
            return lean.run(passes)

    def drafting():
        return [one.name for one in threading.enumerate() if "specdemo-draft" in one.name]

    drafter = drafter_for("parallel", CachedModel(draft_weights), policy="constant", lookahead=4)
    view = runner.run(lane(Held(), drafter, PROMPTS[0], new_tokens=1000))
    assert isinstance(next(view), RunStarted)
    assert waiting.wait(WAIT)
    assert drafting()
    threading.Timer(0.05, free.set).start()
    view.close()
    assert not drafting()
    assert runner.going_on == 0


class Closing(Slow):
    """Counts how often it was closed, and raises on request."""

    def __init__(self, error=None):
        super().__init__()
        self.error, self.closed = error, 0

    def observe(self, outcome):
        if self.error:
            raise self.error

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("method", ["Forecast", "Fallback", "LookBack", "Auto"])
def test_what_wraps_a_drafter_closes_it(method):
    drafter, costs = Closing(), Costs(CostProfile())
    arm = Arm("model", drafter)
    wrapped = {
        "Forecast": lambda: WithForecast(drafter, costs, Calibration(), 0.0),
        "Fallback": lambda: Fallback(drafter, costs),
        "LookBack": lambda: LookBack(drafter, 0.5),
        "Auto": lambda: Auto([], arm, costs),
    }[method]()
    wrapped.close()
    assert drafter.closed == 1


def test_a_drafter_is_closed_however_its_run_ends(target_weights):
    decoder = LeanDecoder(target_weights)
    drafter = Closing()
    list(lane(decoder, drafter, PROMPTS[0], new_tokens=4))
    assert drafter.closed == 1
    broken = Closing(RuntimeError("no memory"))
    events = list(lane(decoder, broken, PROMPTS[0], new_tokens=4))
    assert dropped(events) == "RuntimeError: no memory"
    assert broken.closed == 1
