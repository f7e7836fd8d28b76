"""Counts runs as their events pass, in Prometheus' format. Names are vLLM's wherever they mean the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from specdemo.trace.events import (
    Event,
    FinishReason,
    RunFailed,
    RunFinished,
    RunStarted,
    Verified,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "abort",
}
WAITS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)  # seconds
LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)  # tokens
PER_TOKEN = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # seconds


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
        """All figures as Prometheus reads them."""
        from prometheus_client import generate_latest

        return generate_latest(self._made().registry)

    @property
    def content_type(self) -> str:
        """MIME type of the text."""
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
        """Count the seconds that an admitted request waited."""
        self._made().queue_time.observe(seconds)


class _Figures:
    """The registry with its metrics, named `specdemo:` and vLLM's name."""

    def __init__(self, meter: Meter) -> None:
        from prometheus_client import (
            CollectorRegistry,
            Counter,
            Gauge,
            Histogram,
            ProcessCollector,
        )

        registry: CollectorRegistry = CollectorRegistry()
        self.registry = registry
        ProcessCollector(registry=registry)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"specdemo:{name}", about, ["model_name", *labels], registry=registry)

        def histogram(name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"specdemo:{name}", about, labels, buckets=buckets, registry=registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"specdemo:{name}", about, registry=registry)

        self.running = gauge("num_requests_running", "Runs that go on.")
        waiting = gauge("num_requests_waiting", "Runs that wait for their turn.")
        waiting.set_function(lambda: meter.waiting())
        replicas = gauge("num_replicas", "Engines that answer.")
        replicas.set_function(lambda: meter.replicas())
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts, those reused included.")
        self.cache_queries = counter(
            "prefix_cache_queries", "Tokens of prompts that were looked up."
        )
        self.cache_hits = counter("prefix_cache_hits", "Tokens of prompts found in the caches.")
        self.generation_tokens = counter("generation_tokens", "New tokens.")
        self.success = counter("request_success", "Runs that ended.", "finished_reason")
        self.drafts = counter("spec_decode_num_drafts", "Drafts that were verified.")
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "Drafted tokens.")
        self.accepted = counter("spec_decode_num_accepted_tokens", "Drafted tokens that were kept.")
        self.positions = counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Drafted tokens that were kept, by their position in the draft.",
            "position",
        )
        self.first_token = histogram(
            "time_to_first_token_seconds", "From the wish to the first new token.", WAITS
        )
        self.latency = histogram(
            "e2e_request_latency_seconds", "From the wish to the end of the run.", WAITS
        )
        self.queue_time = histogram(
            "request_queue_time_seconds", "From the wish to the turn of the run.", WAITS
        )
        self.prefill = histogram(
            "request_prefill_time_seconds", "Reading the prompt of a lane.", WAITS
        )
        self.decode = histogram(
            "request_decode_time_seconds", "From the read prompt to the end of a lane.", WAITS
        )
        self.prompt_length = histogram("request_prompt_tokens", "Tokens of a prompt.", LENGTHS)
        self.answer_length = histogram("request_generation_tokens", "New tokens.", LENGTHS)
        self.per_token = histogram(
            "request_time_per_output_token_seconds",
            "Decoding time of a lane over its new tokens.",
            PER_TOKEN,
        )


class MeteredRun:
    """One run while it passes. reason: how it ends, in vLLM's words"""

    def __init__(self, figures: _Figures, asked: float) -> None:
        self._figures, self._asked = figures, asked
        self._model = ""
        self._spoken = False
        self.reason = "error"

    def count(self, event: Event) -> None:
        """Add one event's figures."""
        figures = self._figures
        match event:
            case RunStarted():
                self._model = event.target.name
                figures.prompt_tokens.labels(self._model).inc(event.prompt_tokens)
                figures.cache_queries.labels(self._model).inc(event.prompt_tokens)
                figures.cache_hits.labels(self._model).inc(event.cached_tokens)
                figures.prompt_length.observe(event.prompt_tokens)
                figures.prefill.observe(event.prefill_seconds)
            case Verified():
                if not self._spoken:
                    self._spoken = True
                    figures.first_token.observe(time.perf_counter() - self._asked)
                self._step(event)
            case RunFinished():
                self.reason = REASONS[event.reason]
                figures.decode.observe(event.elapsed_seconds)
                figures.answer_length.observe(event.new_tokens)
                if event.new_tokens:
                    figures.per_token.observe(event.elapsed_seconds / event.new_tokens)
            case RunFailed():
                self.reason = "error"

    def _step(self, step: Verified) -> None:
        figures, model = self._figures, self._model
        new_tokens = len(step.path) + (step.next is not None)
        figures.generation_tokens.labels(model).inc(new_tokens)
        if step.nodes:
            figures.drafts.labels(model).inc()
            figures.draft_tokens.labels(model).inc(len(step.nodes))
            figures.accepted.labels(model).inc(len(step.path))
            for position in range(len(step.path)):
                figures.positions.labels(model, str(position)).inc()

    def end(self) -> None:
        """Count the end of the run; a run without a header was refused and is not counted."""
        self._figures.running.dec()
        if self._model:
            self._figures.latency.observe(time.perf_counter() - self._asked)
            self._figures.success.labels(self._model, self.reason).inc()
