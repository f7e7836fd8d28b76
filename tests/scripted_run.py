"""Events of a run whose steps a test gives, and a studio of such runs."""

import threading
from types import SimpleNamespace

from specdemo.config.settings import AppSettings
from specdemo.session.admission import Admission
from specdemo.session.meter import Meter
from specdemo.trace.events import FinishReason, ModelInfo, RunFinished, RunStarted

TINY = ModelInfo("tiny", precision="fp32")


class CountingStudio:
    """Conversations whose events a method `run` yields; counts those that are open, their maximum and the closed ones."""

    ready, error, replay_only, whole = True, None, None, False
    settings, target, admission = AppSettings(), TINY, Admission(lambda: 8, 8)

    def __init__(self):
        self.lock, self.meter = threading.Lock(), Meter()
        self.open_now = self.most_open = self.closed = 0

    def open(self):
        with self.lock:
            self.open_now += 1
            self.most_open = max(self.most_open, self.open_now)
        own = SimpleNamespace(host=self, run=self.run, events=self.run, close=self.close)
        own.perform = lambda work, arguments, cancel: work(own, cancel, **arguments)
        return own

    def close(self):
        with self.lock:
            self.open_now -= 1
            self.closed += 1


def run_events(lane, method, prompt, steps, cancel, step, *, told=None, reason=None, **header):
    """Steps of a tenth of a second, until the run is cancelled. step: yields the events of a number; told: settings"""
    yield RunStarted(lane, method, prompt, told or {}, TINY, **header)
    for number in range(steps):
        if cancel.is_set():
            yield RunFinished(lane, FinishReason.CANCELLED, number, 0.1 * number)
            return
        yield from step(number)
    yield RunFinished(lane, reason or FinishReason.LENGTH, steps, 0.1 * steps)
