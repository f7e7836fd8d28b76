"""Counts runs as their events pass, in Prometheus' format. Names are vLLM's wherever they mean the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import prometheus_client

from specdemo.config.strings import ASSETS, Json
from specdemo.trace.events import Event, FinishReason, RunFailed, RunFinished, RunStarted, Verified

REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "abort",
}
# Metrics by kind and name, each with the options of its class in `prometheus_client`; buckets have names.
METRICS = ASSETS / "metrics.json"


class Meter:
    """Metrics of a process: number of runs, durations, accepted drafts.

    Contains numbers and model names, no user data. Thread-safe.

    waiting: runs that wait for their turn now; replicas: engines that answer now
    """

    content_type = prometheus_client.CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.waiting: Callable[[], int] = lambda: 0
        self.replicas: Callable[[], int] = lambda: 1
        self._registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self._registry)
        self._metrics: dict[str, Any] = {}  # by vLLM's name, before which `specdemo:` is put
        kinds: Json = json.loads(METRICS.read_text(encoding="utf-8"))
        buckets = kinds.pop("buckets")
        for kind, metrics in kinds.items():
            for name, options in metrics.items():
                if kind == "Histogram":
                    options["buckets"] = buckets[options["buckets"]]
                made = getattr(prometheus_client, kind)
                self._metrics[name] = made(f"specdemo:{name}", registry=self._registry, **options)
        self._metrics["num_requests_waiting"].set_function(lambda: self.waiting())
        self._metrics["num_replicas"].set_function(lambda: self.replicas())

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self._registry)

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
        self._metrics["num_requests_running"].inc()
        return MeteredRun(self._metrics, time.perf_counter() - waited)

    def waited(self, seconds: float) -> None:
        self._metrics["request_queue_time_seconds"].observe(seconds)


class MeteredRun:
    """One run while it passes. metrics: by name; reason: how it ends, in vLLM's words"""

    def __init__(self, metrics: dict[str, Any], asked: float) -> None:
        self._metrics, self._asked = metrics, asked
        self._model = ""
        self._spoken = False
        self.reason = "error"

    def count(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._model = event.target.name
                self._add("prompt_tokens", event.prompt_tokens)
                self._add("prefix_cache_queries", event.prompt_tokens)
                self._add("prefix_cache_hits", event.cached_tokens)
                self._observe("request_prompt_tokens", event.prompt_tokens)
                self._observe("request_prefill_time_seconds", event.prefill_seconds)
            case Verified():
                if not self._spoken:
                    self._spoken = True
                    self._observe("time_to_first_token_seconds", time.perf_counter() - self._asked)
                self._step(event)
            case RunFinished():
                self.reason = REASONS[event.reason]
                self._observe("request_decode_time_seconds", event.elapsed_seconds)
                self._observe("request_generation_tokens", event.new_tokens)
                if event.new_tokens:
                    each = event.elapsed_seconds / event.new_tokens
                    self._observe("request_time_per_output_token_seconds", each)
            case RunFailed():
                self.reason = "error"

    def _step(self, step: Verified) -> None:
        self._add("generation_tokens", len(step.committed))
        if step.nodes:
            self._add("spec_decode_num_drafts", 1)
            self._add("spec_decode_num_draft_tokens", len(step.nodes))
            self._add("spec_decode_num_accepted_tokens", len(step.path))
            for position in range(len(step.path)):
                self._add("spec_decode_num_accepted_tokens_per_pos", 1, str(position))

    def end(self) -> None:
        """Count the end of the run; a run without a header was refused and is not counted."""
        self._metrics["num_requests_running"].dec()
        if self._model:
            self._observe("e2e_request_latency_seconds", time.perf_counter() - self._asked)
            self._add("request_success", 1, self.reason)

    def _add(self, name: str, amount: int, *labels: str) -> None:
        self._metrics[name].labels(self._model, *labels).inc(amount)

    def _observe(self, name: str, value: float) -> None:
        self._metrics[name].observe(value)
