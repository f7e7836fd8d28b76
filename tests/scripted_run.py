"""Events of a run whose steps a test gives."""

from specdemo.trace.events import FinishReason, ModelInfo, RunFinished, RunStarted

TINY = ModelInfo("tiny", precision="fp32")


def run_events(lane, method, prompt, steps, cancel, step, *, told=None, reason=None, **header):
    """Steps of a tenth of a second, until the run is cancelled. step: yields the events of a number; told: settings"""
    yield RunStarted(lane, method, prompt, told or {}, TINY, **header)
    for number in range(steps):
        if cancel.is_set():
            yield RunFinished(lane, FinishReason.CANCELLED, number, 0.1 * number)
            return
        yield from step(number)
    yield RunFinished(lane, reason or FinishReason.LENGTH, steps, 0.1 * steps)
