"""A page on ZeroGPU: `test_zero.py` runs this file in a process of its own, which it makes such a Space."""

import os
import signal
import threading
from contextvars import Context
from dataclasses import replace
from types import SimpleNamespace

import pytest
import zero_space
from gradio.context import LocalContext
from programs import until
from spaces.zero import decorator
from starlette.datastructures import Headers
from tiny_files import make_tiny_model
from zero_space import service

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.engine import cost
from specdemo.session.remote import zero
from specdemo.session.remote.zero import zero_client
from specdemo.session.work.batch import Batch, BatchAnswer, BatchTotals
from specdemo.session.work.proposals import Comparison
from specdemo.session.work.race import run_race
from specdemo.trace.events import FinishReason, RunFailed, RunFinished, RunStarted, Verified
from specdemo.trace.metrics import output_ids

SHORT = RunSettings(method="ngram", max_new_tokens=12, memory=False)
LONG = RunSettings(method="nothing", max_new_tokens=4096, memory=False)
CONTEXT = 8192  # so that a run lasts for seconds
PROMPT = "the cat sat on"
TOKEN = "e30.e30.e30"  # a signed-in visitor's token: empty content in a valid form


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    folder = make_tiny_model(tmp_path_factory.mktemp("model"), max_position_embeddings=CONTEXT)
    settings = AppSettings(
        target=str(folder), draft=str(folder), store="none", trained="none", precision="fp32",
        threads=1, cache_dir=tmp_path_factory.mktemp("cache"),
    )  # fmt: skip
    door = zero_client(settings)
    door.load()
    assert door.error is None, door.error
    with pytest.MonkeyPatch.context() as patch:
        # Each worker measures again, and these tests need no good figures.
        few = {"MEASURED_ROWS": (1, 2), "DRAFTING": (4,), "CONTEXT": 8, "FAR_CONTEXT": 16}
        for name, value in few.items():
            patch.setattr(cost, name, value)
        yield door


@pytest.fixture(autouse=True)
def nothing_left():
    service.answers.clear()
    service.asked.clear()
    service.allowed.clear()
    service.released.clear()
    yield
    assert not service.answers
    assert "specdemo-engine" not in {thread.name for thread in threading.enumerate()}


def gpu(index):
    return 200, {**zero_space.GPU, "nvidiaIndex": index}, {}


def counted(door):
    """Return the new tokens, the runs that reached their length and the active runs from /metrics."""
    names = ("generation_tokens_total", 'finished_reason="length"', "num_requests_running ")
    lines = [line for line in door.meter.text().decode().splitlines() if line[0] != "#"]
    return tuple(
        sum(float(line.split()[-1]) for line in lines if name in line and "_created" not in line)
        for name in names
    )


def seconds_asked():
    return [int(asked["durationSeconds"]) for asked in service.asked]


def test_weights_are_placed_on_a_gpu_that_is_not_there_and_no_pass_is_made(door):
    placed = door.link._placed.pair
    assert next(placed.target.model.parameters()).device.type == "cuda"
    assert next(placed.drafts["draft"].network().model.parameters()).device.type == "cuda"
    assert door.target.name
    assert door.about.stop_ids
    assert {method.name for method in door.methods() if method.available} >= {"auto", "draft_model"}
    assert door.about.machine is None
    assert not service.asked


def test_a_run_is_a_task_in_a_fork_and_lossless(door):
    events = list(door.open().run(PROMPT, SHORT))
    plain, drafted = ([e for e in events if e.lane == lane] for lane in ("plain", "speculative"))
    assert output_ids(plain) == output_ids(drafted)
    assert len(output_ids(drafted)) == 12
    assert {type(event) for event in (plain[0], drafted[0])} == {RunStarted}
    assert isinstance(drafted[-1], RunFinished)
    (worker,) = service.allowed
    assert worker != os.getpid()
    assert seconds_asked() == [
        round(zero.WORKER_START_SECONDS + zero.SECONDS_FACTOR * 24 * zero.TOKEN_SECONDS)
    ]
    until(lambda: service.released, "the GPU is not given back")
    assert service.released == ["false"]


def test_the_first_worker_measures_the_passes_and_the_next_run_uses_the_figures(door):
    list(door.open().run(PROMPT, SHORT))
    link = door.link
    assert link._token == door.about.machine["verify"][0][1]
    assert link._start != zero.WORKER_START_SECONDS
    assert seconds_asked() == [round(link._start + zero.SECONDS_FACTOR * 24 * link._token)]
    assert not service.allowed  # the worker of the run before
    longer = door.open().run(PROMPT, RunSettings(max_new_tokens=4096))
    next(longer)
    longer.close()
    until(lambda: service.released == ["false"] * 2, "a GPU is not given back")
    assert seconds_asked()[0] < seconds_asked()[1]


def test_the_memory_of_a_visitor_travels_to_the_next_worker_until_it_is_forgotten(door):
    service.answers += [gpu(0), gpu(1), gpu(2)]
    conversation = door.open()
    for told in (1, 2, 1):
        ran = list(conversation.run(PROMPT, replace(SHORT, memory=True, baseline=False)))
        assert len(ran[0].history) == told - 1
        if told == 2:
            conversation.forget()
    assert len(set(service.allowed)) == 2  # two workers more
    conversation.close()
    assert conversation._visitor not in door.link._left


def test_a_visitor_goes_on_in_another_worker_and_another_visitor_begins_anew(door):
    service.answers += [gpu(1), gpu(2), gpu(1)]
    one, other = door.open("a"), door.open("b")
    first = list(one.run(PROMPT, SHORT))
    again = list(one.run(PROMPT, SHORT))  # on another GPU
    apart = list(other.run(PROMPT, SHORT))  # the same fork as the first one
    assert not service.allowed
    assert again[0].prompt_tokens > first[0].prompt_tokens == apart[0].prompt_tokens
    assert output_ids(apart) == output_ids(first)


def test_two_visitors_at_once_have_two_workers(door):
    service.answers += [gpu(1), gpu(2)]
    runs = [door.open().run(PROMPT, LONG) for _ in range(2)]
    said = [[next(run)] for run in runs]
    for _ in range(8):  # alternating, while both are active
        for events, run in zip(said, runs, strict=True):
            events.append(next(run))
    for run in runs:
        run.close()
    assert output_ids(said[0]) == output_ids(said[1])
    until(lambda: service.released == ["false"] * 2, "a GPU is not given back")


def test_stop_ends_the_task_and_the_worker_takes_the_next(door):
    conversation, cancel, events = door.open(), threading.Event(), []
    for event in conversation.run(PROMPT, LONG, cancel=cancel):
        events.append(event)
        if isinstance(event, Verified):
            cancel.set()
    assert events[-1].reason is FinishReason.CANCELLED
    assert 1 <= events[-1].new_tokens < 4096
    until(lambda: service.released, "the GPU is not given back")
    assert conversation.messages[1]["content"]
    assert isinstance(list(conversation.run(PROMPT, SHORT))[-1], RunFinished)
    assert not service.allowed


def test_a_killed_worker_is_a_sentence_and_the_text_so_far_is_kept(door):
    service.answers += [gpu(3), gpu(3)]
    conversation, events = door.open(), []
    for event in conversation.run(PROMPT, LONG):
        if isinstance(event, Verified) and event.step == 2:
            os.kill(service.allowed[-1], signal.SIGKILL)
        events.append(event)
    failed = events[-1]
    assert isinstance(failed, RunFailed)
    assert failed.message == UserError("gpu.aborted").message
    until(lambda: service.released, "the GPU is not given back")
    assert service.released == ["true"]
    last = list(conversation.run(PROMPT, SHORT))
    assert last[0].prompt_tokens > 10
    assert len(set(service.allowed)) == 2


def as_visitor(run, token=TOKEN, blocks=None):
    """Return the events of a run for the user with this token."""

    def work():
        headers = {"x-ip-token": token} if token else {}
        LocalContext.request.set(SimpleNamespace(headers=Headers(headers)))
        if blocks:
            LocalContext.blocks.set(blocks)
            LocalContext.event_id.set("event")
        return list(run)

    return Context().run(work)


REFUSED = [
    ({"left": 5, "wait": 3 * 3600}, "and you have 5 s left.", "run again after 3:00:00."),
    ({"left": 5, "wait": 0}, UserError("gpu.runs").message, UserError("gpu.runs").advice),
    (
        {"left": 500, "wait": -1},
        "more than one run may have",
        UserError("gpu.long", requested=0).advice,
    ),
]


@pytest.mark.parametrize(("body", "message", "advice"), REFUSED)
def test_a_refused_quota_is_a_sentence(door, body, message, advice):
    service.answers.append((429, body, {}))
    with pytest.raises(UserError) as told:
        as_visitor(door.open().run(PROMPT, SHORT))
    assert message in told.value.message
    assert advice in told.value.advice
    assert "need no GPU" in told.value.unaffected
    assert service.asked[0]["token"] == TOKEN
    assert not service.allowed


def test_an_unknown_visitor_and_a_service_that_is_down_are_sentences(door):
    service.answers += [(429, {"left": 0, "wait": 1}, {}), (503, {}, {}), (500, {}, {})]
    for message in (
        UserError("gpu.not_signed_in").message,
        UserError("gpu.busy").message,
        "The GPU could not be had",
    ):
        with pytest.raises(UserError) as told:
            as_visitor(door.open().run(PROMPT, SHORT), token="")
        assert told.value.message.startswith(message)


class Queue:
    """A stand-in of a page, with its visitors and the reports that they get."""

    def __init__(self):
        self.active_jobs, self.said = [], []

    def log_message(self, event_id, log, **told):
        self.said.append(log)


def test_a_visitor_reads_that_a_run_waits_for_a_gpu(door):
    page = SimpleNamespace(_queue=Queue(), server=SimpleNamespace(config=SimpleNamespace(port=0)))
    granted = "event: succeeded\ndata: " + zero_space.json.dumps(zero_space.GPU)
    queued = {"X-Queuing-Reason": "node"}
    service.answers += [
        (200, ["event: ping\n\n", granted], queued),
        (200, ["event: failed"], queued),
    ]
    events = as_visitor(door.open().run(PROMPT, SHORT), blocks=page)
    assert isinstance(events[-1], RunFinished)
    assert page._queue.said == [
        "Waiting for a GPU to become available",
        "Successfully acquired a GPU",
    ]
    with pytest.raises(UserError) as told:
        as_visitor(door.open().run(PROMPT, SHORT), blocks=page)
    assert told.value.message == UserError("gpu.busy").message


def test_a_race_several_prompts_and_drafts_side_by_side_are_one_task_each(door, monkeypatch):
    lanes = [SHORT, RunSettings(method="draft_model", max_new_tokens=12, memory=False)]
    race = list(run_race(door, PROMPT, lanes))
    assert [place for place, event in race if event is None] == [0, 1]
    assert [place for place, event in race if isinstance(event, RunFinished)] == [0, 1]
    assert len(service.asked) == 1

    before = counted(door)
    batch = list(Batch(door, [PROMPT, "a bird", " "], SHORT).answers())
    assert counted(door) == (before[0] + 24, before[1] + 2, 0)
    last = {part.number: part for part in batch if isinstance(part, BatchAnswer)}
    assert [last[number].state for number in range(3)] == ["done", "done", "failed"]
    assert "empty" in str(last[2].error)
    assert batch[-1].new_tokens == sum(answer.new_tokens for answer in last.values()) == 24
    assert len(service.asked) == 2

    few = [one for one in door.about.methods if one.name in ("nothing", "ngram", "draft_model")]
    # The others need a real GPU.
    monkeypatch.setattr(door, "about", replace(door.about, methods=few))
    comparison = Comparison(door)
    *_, text = comparison.write(PROMPT, RunSettings(max_new_tokens=8))
    guesses = {guess.method: guess for guess in comparison.guesses(text, 3, RunSettings())}
    assert guesses["draft_model"].verified
    assert list(guesses) == [method.name for method in door.methods() if method.name != "nothing"]
    assert len(service.asked) == 4
    until(lambda: len(service.released) == 4, "a GPU is not given back")


def test_a_batch_can_be_stopped(door):
    cancel = threading.Event()
    parts = []
    for part in Batch(door, [PROMPT] * 2, LONG, cancel=cancel).answers():
        parts.append(part)
        if isinstance(part, BatchAnswer) and part.new_tokens:
            cancel.set()
    *_, totals = parts
    assert isinstance(totals, BatchTotals)
    ends = {part.number: part.state for part in parts if isinstance(part, BatchAnswer)}
    assert set(ends.values()) == {"stopped"}
    assert counted(door)[2] == 0
    until(lambda: len(service.released) == 1, "a GPU is not given back")


def test_a_model_that_cannot_be_loaded_leaves_a_page_that_is_served(tmp_path):
    before = len(decorator.decorated_cache)
    door = zero_client(AppSettings(target=str(tmp_path / "nothing"), cache_dir=tmp_path))
    door.load()
    assert door.error
    assert not door.ready
    assert len(decorator.decorated_cache) > before
    door.start()  # the page was opened: nothing is tried again in another thread
    assert "specdemo-connect" not in {thread.name for thread in threading.enumerate()}
