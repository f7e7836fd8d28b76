"""Counts runs as their events pass, in Prometheus' format. Names are vLLM's wherever they mean the same."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from specdemo.config.strings import ASSETS, Json
from specdemo.trace.events import Event, FinishReason, RunFailed, RunFinished, RunStarted, Verified

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "abort",
}
# Names, descriptions, buckets and second labels of metrics; the first label of a counter is the model's name.
METRICS = ASSETS / "metrics.json"


class Meter:
    """Metrics of a process: number of runs, durations, accepted drafts.

    Contains numbers and model names, no user data. Thread-safe.

    waiting: runs that wait for their turn now; replicas: engines that answer now
    """

    def __init__(self) -> None:
        self.waiting: Callable[[], int] = lambda: 0
        self.replicas: Callable[[], int] = lambda: 1
        self._lock = threading.Lock()

    @cached_property
    def _figures(self) -> _Figures:
        return _Figures(self)

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self._made().registry)

    @property
    def content_type(self) -> str:
        from prometheus_client import CONTENT_TYPE_LATEST

        return CONTENT_TYPE_LATEST

    def _made(self) -> _Figures:
        with self._lock:  # a name can be registered once
            return self._figures

    def watch(self, events: Iterator[Event], waited: float = 0.0) -> Iterator[Event]:
        """Yield the same events. Time starts `waited` seconds before the first event is requested."""
        run = self.begin(waited)
        try:
            for event in events:
                run.count(event)
                yield event
        except GeneratorExit:
            run.reason = "abort"
            raise
        finally:
            run.end()
            if isinstance(events, Generator):  # other iterators need no closing
                events.close()

    def begin(self, waited: float = 0.0) -> MeteredRun:
        """Count a run whose events arrive mixed with those of others. waited: seconds since the request"""
        figures = self._made()
        figures.running.inc()
        return MeteredRun(figures, time.perf_counter() - waited)

    def waited(self, seconds: float) -> None:
        self._made().observe("request_queue_time_seconds", seconds)


class _Figures:
    """The registry with its metrics, named `specdemo:` and vLLM's name."""

    def __init__(self, meter: Meter) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

        self.registry: CollectorRegistry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        known: Json = json.loads(METRICS.read_text(encoding="utf-8"))
        gauges = {
            name: Gauge(f"specdemo:{name}", about, registry=self.registry)
            for name, about in known["gauges"].items()
        }
        self.running = gauges["num_requests_running"]
        gauges["num_requests_waiting"].set_function(lambda: meter.waiting())
        gauges["num_replicas"].set_function(lambda: meter.replicas())
        self._counters = {
            name: Counter(
                f"specdemo:{name}",
                one["about"],
                ["model_name", *([one["label"]] if "label" in one else [])],
                registry=self.registry,
            )
            for name, one in known["counters"].items()
        }
        self._histograms = {
            name: Histogram(
                f"specdemo:{name}",
                one["about"],
                buckets=known["buckets"][one["buckets"]],
                registry=self.registry,
            )
            for name, one in known["histograms"].items()
        }

    def count(self, name: str, amount: int, *labels: str) -> None:
        self._counters[name].labels(*labels).inc(amount)

    def observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)


class MeteredRun:
    """One run while it passes. reason: how it ends, in vLLM's words"""

    def __init__(self, figures: _Figures, asked: float) -> None:
        self._figures, self._asked = figures, asked
        self._model = ""
        self._spoken = False
        self.reason = "error"

    def count(self, event: Event) -> None:
        figures = self._figures
        match event:
            case RunStarted():
                self._model = event.target.name
                figures.count("prompt_tokens", event.prompt_tokens, self._model)
                figures.count("prefix_cache_queries", event.prompt_tokens, self._model)
                figures.count("prefix_cache_hits", event.cached_tokens, self._model)
                figures.observe("request_prompt_tokens", event.prompt_tokens)
                figures.observe("request_prefill_time_seconds", event.prefill_seconds)
            case Verified():
                if not self._spoken:
                    self._spoken = True
                    figures.observe(
                        "time_to_first_token_seconds", time.perf_counter() - self._asked
                    )
                self._step(event)
            case RunFinished():
                self.reason = REASONS[event.reason]
                figures.observe("request_decode_time_seconds", event.elapsed_seconds)
                figures.observe("request_generation_tokens", event.new_tokens)
                if event.new_tokens:
                    each = event.elapsed_seconds / event.new_tokens
                    figures.observe("request_time_per_output_token_seconds", each)
            case RunFailed():
                self.reason = "error"

    def _step(self, step: Verified) -> None:
        figures, model = self._figures, self._model
        figures.count("generation_tokens", len(step.committed), model)
        if step.nodes:
            figures.count("spec_decode_num_drafts", 1, model)
            figures.count("spec_decode_num_draft_tokens", len(step.nodes), model)
            figures.count("spec_decode_num_accepted_tokens", len(step.path), model)
            for position in range(len(step.path)):
                figures.count("spec_decode_num_accepted_tokens_per_pos", 1, model, str(position))

    def end(self) -> None:
        """Count the end of the run; a run without a header was refused and is not counted."""
        self._figures.running.dec()
        if self._model:
            seconds = time.perf_counter() - self._asked
            self._figures.observe("e2e_request_latency_seconds", seconds)
            self._figures.count("request_success", 1, self._model, self.reason)
