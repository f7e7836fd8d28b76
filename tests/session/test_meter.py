"""Metrics of runs in Prometheus' format: the counted values, their names, and the absence of user data."""

from types import SimpleNamespace

import pytest
from letters import letters_studio
from prometheus_client.parser import text_string_to_metric_families

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.session.admission import Admission
from specdemo.session.meter import Meter
from specdemo.session.studio import Conversation
from specdemo.trace.events import RunFailed
from specdemo.trace.metrics import measure

PROMPT = "secretsecretsecret"


@pytest.fixture(scope="module")
def studio():
    return letters_studio()


def figures(meter: Meter) -> dict[str, float]:
    """Values by name; those of one position after a hyphen."""
    found = {}
    for family in text_string_to_metric_families(meter.text().decode()):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                label = sample.labels.get("position") or sample.labels.get("finished_reason")
                found[f"{sample.name}-{label}" if label else sample.name] = sample.value
    return found


def test_a_run_is_counted_as_its_trace_says(studio):
    meter = studio.meter = Meter()
    settings = RunSettings(
        method="ngram", max_new_tokens=60, memory=False, baseline=False, fallback=False
    )
    events = []
    for event in studio.open().run(PROMPT, settings):
        events.append(event)
        if len(events) == 3:
            assert figures(meter)["specdemo:num_requests_running"] == 1
    said, run = figures(meter), measure(events)
    assert run.accepted > 0
    assert said["specdemo:num_requests_running"] == 0
    assert said["specdemo:prompt_tokens_total"] == events[0].prompt_tokens == len(PROMPT)
    assert said["specdemo:generation_tokens_total"] == run.new_tokens == 60
    assert said["specdemo:spec_decode_num_drafts_total"] == run.drafting_steps
    assert said["specdemo:spec_decode_num_draft_tokens_total"] == run.drafted
    assert said["specdemo:spec_decode_num_accepted_tokens_total"] == run.accepted
    first = "specdemo:spec_decode_num_accepted_tokens_per_pos_total-0"
    assert said[first] == run.first_accepted
    assert said["specdemo:request_success_total-length"] == 1
    assert said["specdemo:time_to_first_token_seconds_count"] == 1
    per_token = said["specdemo:request_time_per_output_token_seconds_sum"]
    assert per_token == pytest.approx(events[-1].elapsed_seconds / 60)
    assert said["specdemo:prefix_cache_queries_total"] == len(PROMPT)
    assert said["specdemo:prefix_cache_hits_total"] == 0
    assert said["specdemo:request_prompt_tokens_sum"] == len(PROMPT)
    assert said["specdemo:request_generation_tokens_sum"] == 60
    assert said["specdemo:request_prefill_time_seconds_sum"] == events[0].prefill_seconds
    assert said["specdemo:request_decode_time_seconds_sum"] == events[-1].elapsed_seconds
    shortest, longest = (
        said[f"specdemo:{name}_seconds_sum"]
        for name in ("time_to_first_token", "e2e_request_latency")
    )
    assert 0 < shortest < longest


def test_the_wait_for_a_turn_is_in_the_time_to_the_first_token(studio, clock):
    """As in vLLM, where a request waits in the engine's own queue."""
    meter, line = Meter(), Admission(lambda: 1, clock=clock)
    host = SimpleNamespace(**{**vars(studio), "meter": meter, "admission": line})
    host.loaded, host.known, host.together = studio.loaded, studio.known, 1
    settings = RunSettings(method="nothing", max_new_tokens=2, memory=False)
    with line.turn("another") as other, line.turn("me") as mine:
        clock.now += 40.0
        line.leave(other)
        assert mine.admitted
        list(Conversation(host, "me").run("abc", settings))
    list(Conversation(host, "me").run("abc", settings))
    said = figures(meter)
    for name in ("time_to_first_token", "e2e_request_latency"):
        assert 40.0 < said[f"specdemo:{name}_seconds_sum"] < 80.0


def test_each_end_of_a_run_is_counted_and_a_refused_run_is_not(studio):
    meter = studio.meter = Meter()
    settings = RunSettings(method="nothing", max_new_tokens=30, memory=False)
    run = studio.open().run("abc", settings)
    next(run)
    run.close()
    said = figures(meter)
    assert said["specdemo:request_success_total-abort"] == 1
    assert said["specdemo:num_requests_running"] == 0
    with pytest.raises(UserError, match="empty"):
        list(studio.open().run(" ", settings))
    events = [next(studio.open().run("abc", settings)), RunFailed("plain", "It broke.")]
    assert list(meter.watch(iter(events))) == events
    said = figures(meter)
    assert said["specdemo:request_success_total-error"] == 1
    assert said["specdemo:e2e_request_latency_seconds_count"] == 3


def test_the_names_are_those_of_vllm_and_nothing_of_a_visitor_is_among_the_values(studio):
    meter = studio.meter = Meter()
    list(studio.open().run(PROMPT, RunSettings(max_new_tokens=8, memory=False)))
    meter.waiting, meter.replicas = (lambda: 7), (lambda: 2)
    meter.waited(0.5)
    text = meter.text().decode()
    assert PROMPT not in text
    said = figures(meter)
    assert said["specdemo:num_requests_waiting"] == 7
    assert said["specdemo:num_replicas"] == 2
    assert said["specdemo:request_queue_time_seconds_sum"] == 0.5
    assert said["process_resident_memory_bytes"] > 0
    labels = {
        label
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        for label in sample.labels
    }
    assert labels <= {"model_name", "finished_reason", "position", "le"}
