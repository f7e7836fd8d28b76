"""Long prompts are read in chunks: a run ends between two of them, others advance, and read tokens stay cached."""

import pytest
from conftest import ALL_METHODS, drafter_for, open_target, reference_greedy, steps_of, tiny_llama
from passes import driven

from specdemo.engine import passes
from specdemo.engine.passes import ForwardRequest, chunk_rows, chunks
from specdemo.engine.target import CachedModel, PrefixReader
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.trace.events import FinishReason, RunFinished, RunStarted
from specdemo.trace.metrics import output_ids

MOST = 8
PROMPT = [3 + place * 7919 % 60 for place in range(50)]
READERS = ["nothing", "draft_model", "auto", "online", "feature", "exit", "medusa", "block"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Give chunks of eight rows to every decoder that is created from now on."""
    monkeypatch.setattr(passes, "CHUNK_ROWS", (MOST, MOST))


@pytest.fixture
def made(draft_weights):
    """A method's drafter and its target."""

    def make(method):
        target = open_target(tiny_llama(0))  # a separate decoder with small chunks
        return drafter_for(method, CachedModel(LeanDecoder(draft_weights)), target=target), target

    return make


def test_a_piece_is_as_much_work_for_a_large_model_as_for_a_small_one(monkeypatch):
    monkeypatch.undo()
    assert chunk_rows("cpu", 30, 576, 1536) == 64
    assert chunk_rows("cpu", 28, 1536, 8960) == 16
    assert chunk_rows("cpu", 2, 32, 64) == 128
    assert chunk_rows("cuda", 28, 1536, 8960) == 512
    assert chunks(0, 0, 4) == []
    assert chunks(5, 9, 4) == [slice(0, 4), slice(4, 8), slice(8, 9)]


def test_a_piece_has_fewer_rows_the_more_text_they_look_back_at(monkeypatch):
    monkeypatch.undo()
    sizes = [part.stop - part.start for part in chunks(0, 8192, 64)]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], min(sizes), sum(sizes)) == (64, 16, 8192)
    assert chunks(3072, 100, 64)[0] == slice(0, 16)
    assert {part.stop - part.start for part in chunks(4096, 2048, 512)} == {512}


@pytest.mark.parametrize("method", ALL_METHODS)
def test_no_request_reads_more_than_a_piece(made, target_weights, method):
    drafter, target = made(method)
    events, rows = [], []
    for item in driven(steps_of(target, drafter, PROMPT, 4)):
        if isinstance(item, ForwardRequest):
            if not events:
                rows.append(len(item.input.token_ids))
                assert item.is_chunk == (rows[-1] == MOST)
        else:
            events.append(item)
    assert max(rows) == MOST
    assert output_ids(events) == reference_greedy(target_weights, PROMPT, 4)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("method", READERS)
def test_a_run_ends_between_two_pieces_and_the_next_reads_on(made, target_weights, method, closed):
    for stop in (1, 5, 8):
        drafter, target = made(method)
        answers, events = 0, []
        cancelled = lambda: answers >= stop and not closed  # noqa: B023, E731
        running = driven(steps_of(target, drafter, PROMPT, 4, cancelled=cancelled))
        for item in running:
            if isinstance(item, ForwardRequest):
                assert answers < stop
                answers += 1
                if closed and answers == stop:
                    running.close()
            else:
                events.append(item)
        if closed:
            assert not any(isinstance(event, RunFinished) for event in events)
        else:
            started, finished = events[0], events[-1]
            assert isinstance(started, RunStarted)
            assert started.prompt_tokens == len(PROMPT)
            assert finished.reason is FinishReason.CANCELLED
            assert finished.new_tokens == len(output_ids(events))
        read = min(MOST * (stop - closed), len(PROMPT) - 1)
        assert target.length >= read
        events = list(steps_of(target, drafter, PROMPT, 4))
        assert output_ids(events) == reference_greedy(target_weights, PROMPT, 4)
        assert events[0].cached_tokens >= read


def test_a_draft_keeps_the_pieces_that_it_has_read(draft_weights):
    reader = PrefixReader(CachedModel(LeanDecoder(draft_weights)))
    reading = driven(lambda: reader.prepare(PROMPT))
    for _ in range(3):
        next(reading)
    reading.close()
    assert reader.cached_ids == PROMPT[: 2 * MOST]
    left = len(list(driven(lambda: reader.prepare(PROMPT))))
    assert left == len(chunks(0, len(PROMPT) - 2 * MOST, MOST))
