"""Runs that share a thread and passes have the same output as alone, long prompts in chunks, and a closed run ends."""

import threading
import time

import pytest
from conftest import drafter_for, header, reference_greedy
from lanes import PROMPTS, WAIT, Slow, Watched, lane, together

from specdemo.config.settings import Sampling
from specdemo.drafters.auto import Auto
from specdemo.drafters.base import Plain
from specdemo.drafters.copy_through import Arm
from specdemo.drafters.draft_model import LookBack
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.guard import Fallback, WithForecast
from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.passes import run_together
from specdemo.engine.runner import Runner
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.trace.events import RunStarted, Verified
from specdemo.trace.metrics import dropped, output_ids

METHODS = ["nothing", "draft_model", "tree", "ngram"]


def two_plain(runner, decoder):
    """Two concurrent plain runs: their events, or their errors."""
    return together(runner, [lane(decoder, Plain(), prompt) for prompt in PROMPTS[:2]])


def assert_plain(found, weights, new_tokens=24):
    """Each run has the greedy text of its prompt."""
    for events, prompt in zip(found, PROMPTS, strict=False):
        assert output_ids(events) == reference_greedy(weights, prompt, new_tokens)


@pytest.mark.parametrize("make", [ModuleDecoder, LeanDecoder])
def test_each_run_writes_what_it_would_write_alone(target_weights, draft_weights, make):
    decoder = make(target_weights)
    drafters = [drafter_for(method, CachedModel(draft_weights)) for method in METHODS]
    lanes = [lane(decoder, *pair) for pair in zip(drafters, PROMPTS, strict=True)]
    found = together(Runner(), lanes)
    assert_plain(found, target_weights)
    judged = [event for events in found for event in events if isinstance(event, Verified)]
    assert max(event.runs or 1 for event in judged) == len(PROMPTS)


def test_a_step_is_not_charged_for_the_drafts_of_others_but_for_its_own_by_all(target_weights):
    decoder, slow, quick = LeanDecoder(target_weights), Slow(0.05), Slow()
    lanes = [lane(decoder, one, PROMPTS[0], new_tokens=6) for one in (slow, quick)]
    found = together(Runner(), lanes)
    shared = 0
    for drafter, events in zip((slow, quick), found, strict=True):
        judged = [event for event in events if isinstance(event, Verified)]
        learned = list(zip(judged, drafter.outcomes, strict=True))
        for event, outcome in learned[:-1]:  # no run drafts after the last one
            if outcome.sharing.runs != 2:
                continue
            assert outcome.sharing.rows == 2
            assert outcome.verify_seconds < 0.04
            # The event counts the wait for the other one's draft.
            waited = event.verify_seconds - outcome.verify_seconds
            assert (waited > 0.04) == (drafter is quick)
            assert (outcome.draft_seconds >= 2 * 0.05) == (drafter is slow)
            shared += 1
    assert shared > 4


def test_a_run_that_wants_its_passes_for_itself_shares_none(target_weights):
    decoder = LeanDecoder(target_weights)
    lanes = [
        lane(decoder, Plain(), prompt, new_tokens=8, alone=number == 0)
        for number, prompt in enumerate(PROMPTS[:3])
    ]
    found = together(Runner(), lanes)
    runs = [{event.runs or 1 for event in events if isinstance(event, Verified)} for events in found]  # fmt: skip
    assert runs[0] == {1}
    assert 2 in runs[1]
    assert 3 not in runs[1] | runs[2]
    assert_plain(found, target_weights, 8)


def test_a_runner_says_how_many_go_on(target_weights):
    decoder, runner = LeanDecoder(target_weights), Runner()
    seen = []

    class Counting(Slow):
        def propose(self, committed, budget):
            seen.append(runner.going_on)
            return Proposal()

    together(runner, [lane(decoder, Counting(), PROMPTS[0], new_tokens=n) for n in (3, 6)])
    assert seen[:2] == [2, 2]
    assert seen[-1] == 1
    while runner.going_on:  # the last one is taken out after its last event
        pass


def test_sampled_runs_are_repeatable_whoever_else_is_there(target_weights):
    decoder, sampling = LeanDecoder(target_weights), Sampling(temperature=1.0, seed=4)
    alone = list(lane(decoder, Plain(), PROMPTS[0], sampling=sampling))
    assert all(event.runs is None for event in alone if isinstance(event, Verified))
    lanes = [lane(decoder, Plain(), PROMPTS[0], sampling=sampling)]
    lanes += [lane(decoder, Plain(), prompt) for prompt in PROMPTS[1:]]
    assert output_ids(together(Runner(), lanes)[0]) == output_ids(alone)


def test_a_viewer_that_does_not_look_delays_no_other_run(target_weights):
    runner, decoder = Runner(), LeanDecoder(target_weights)
    asleep = runner.run(lane(decoder, Plain(), PROMPTS[0]))
    assert isinstance(next(asleep), RunStarted)
    (events,) = together(runner, [lane(decoder, Plain(), PROMPTS[1])])
    assert output_ids(events) == reference_greedy(target_weights, PROMPTS[1], 24)
    assert output_ids(list(asleep)) == reference_greedy(target_weights, PROMPTS[0], 24)


def test_a_viewer_may_look_now_and_then(target_weights):
    lanes = lane(LeanDecoder(target_weights), Plain(), PROMPTS[0], new_tokens=200)
    begun, last, looks, events = time.monotonic(), 0.0, 0, []
    for event in Runner().run(lanes, every=0.01):
        events.append(event)
        looks += time.monotonic() - last > 0.004
        last = time.monotonic()
    assert output_ids(events) == reference_greedy(target_weights, PROMPTS[0], 200)
    assert 3 <= looks <= 2 + (time.monotonic() - begun) / 0.01


def test_an_error_is_raised_where_the_run_is_viewed():
    def broken():
        yield header()
        raise KeyError("sorry")

    runner = Runner()
    view = runner.run(broken())
    assert next(view) == header()
    with pytest.raises(KeyError, match="sorry"):
        next(view)
    with pytest.raises(ZeroDivisionError):
        runner.call(lambda: 1 // 0)
    assert runner.call(lambda: runner.call(lambda: 3)) == 3


def test_an_error_of_a_pass_ends_only_the_runs_of_that_pass(target_weights):
    errors = [RuntimeError("no memory")]

    def fail_once(passes):
        if len(passes) == 2 and errors:
            raise errors.pop()

    runner, decoder = Runner(), Watched(LeanDecoder(target_weights), fail_once)
    assert all(isinstance(error, RuntimeError) for error in two_plain(runner, decoder))
    assert_plain(two_plain(runner, decoder), target_weights)


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("no sense")])
def test_an_error_of_the_thread_ends_only_the_current_runs(target_weights, monkeypatch, error):
    runner, decoder = Runner(), LeanDecoder(target_weights)
    passes = []

    def answer(requests):
        passes.append(1)
        if len(passes) == 3:
            raise error
        run_together(requests)

    monkeypatch.setattr("specdemo.engine.runner.run_together", answer)
    found = two_plain(runner, decoder)
    assert all(isinstance(one, RuntimeError) for one in found)
    assert all(type(error).__name__ in str(one) for one in found)
    assert_plain(two_plain(runner, decoder), target_weights)


def test_an_error_in_a_shared_draft_ends_only_its_own_draft(target_weights, draft_weights):
    def fail(passes):
        """The draft cannot read a token of the first prompt."""
        if any(one.cache is broken._cache and one.positions[-1] > 14 for one in passes):
            raise IndexError("index out of range in self")

    decoder, shared_draft = LeanDecoder(target_weights), Watched(LeanDecoder(draft_weights), fail)
    drafts = [CachedModel(shared_draft) for _ in PROMPTS]
    broken = drafts[0]
    drafters = [drafter_for("draft_model", draft, policy="constant") for draft in drafts]
    lanes = [lane(decoder, one, prompt) for one, prompt in zip(drafters, PROMPTS, strict=True)]
    found = together(Runner(), lanes)
    assert_plain(found, target_weights)
    assert [bool(dropped(events)) for events in found] == [True, *[False] * (len(PROMPTS) - 1)]


PIECE = 40  # rows: more than a step has


def noted(decoder):
    """Create the decoder with chunks of `PIECE` rows, and record the rows of each run in each of its passes."""
    passes = []

    def record(inputs):
        passes.append([len(one.token_ids) for one in inputs])

    return Watched(decoder, record, PIECE), passes


@pytest.mark.parametrize(
    ("method", "temperature"),
    [("draft_model", 0.0), ("draft_model", 1.0), ("tree", 1.0), ("auto", 0.0)],
)
def test_runs_share_passes_of_their_draft_model(target_weights, draft_weights, method, temperature):
    """The drafts are of different lengths, and yet the target's passes stay shared."""
    sampling = Sampling(temperature=temperature, seed=3)

    def made(decoder, draft):
        for prompt, lookahead in zip(PROMPTS[:2], (2, 5), strict=True):
            drafter = drafter_for(
                method,
                CachedModel(draft),
                sampling=sampling,
                policy="constant",
                lookahead=lookahead,
            )
            yield lane(decoder, drafter, prompt, sampling=sampling)

    target, targets = noted(LeanDecoder(target_weights))
    draft, drafts = noted(LeanDecoder(draft_weights))
    found = together(Runner(), [*made(target, draft)])
    targets, drafts = ([len(rows) for rows in passes] for passes in (targets, drafts))
    assert drafts.count(2) >= (3 if method == "auto" else 6)  # `auto` drafts less
    shared_steps = [event for event in found[0] if isinstance(event, Verified) and event.runs == 2]
    assert len(shared_steps) == targets.count(2) - 1  # one of them read both prompts
    assert targets == sorted(targets, reverse=True)  # alone only after the other one has ended
    lanes = made(LeanDecoder(target_weights), LeanDecoder(draft_weights))
    for events, alone in zip(found, lanes, strict=True):
        assert output_ids(events) == output_ids(list(Runner().run(alone)))


def long_prompt(start, pieces):
    return [(start + 7 * place) % 60 + 1 for place in range(pieces * PIECE + 1)]


def test_long_prompts_are_read_in_turn_between_the_steps_of_others(target_weights):
    """Two long prompts of five chunks and a run that decodes: it advances one step per chunk, and none waits for another."""
    decoder, passes = noted(LeanDecoder(target_weights))
    prompts = [long_prompt(3, 5), long_prompt(5, 5), PROMPTS[0]]
    found = together(Runner(), [lane(decoder, Plain(), one, new_tokens=12) for one in prompts])
    reading = [rows for rows in passes if PIECE in rows]
    assert all(rows.count(PIECE) == 1 for rows in reading)
    assert len(reading) == 10
    # once it has read as well, a step goes with each
    assert all(len(rows) > 1 for rows in reading[2:])
    for events, prompt in zip(found, prompts, strict=True):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 12)


def test_a_fresh_visitor_waits_for_one_chunk_of_each_reader_at_most(target_weights):
    """The first token comes a bounded number of passes after the prompt, however long the prompts before it are."""
    decoder, passes = noted(LeanDecoder(target_weights))
    runner, longs, begun = Runner(), 3, []

    def fresh():
        begun.append(len(passes))
        yield from lane(decoder, Plain(), long_prompt(9, 1), new_tokens=1)
        begun.append(len(passes))

    lanes = [lane(decoder, Plain(), long_prompt(n, 8), new_tokens=2) for n in range(longs)]
    together(runner, [*lanes, fresh()])
    first, last = begun
    assert last - first <= longs + 2  # one chunk of each, its own, and its step
    assert len(passes) > 3 * longs


def test_a_long_prompt_that_a_draft_reads_delays_no_other_run(target_weights, draft_weights):
    target, targets = noted(LeanDecoder(target_weights))
    draft, drafts = noted(LeanDecoder(draft_weights))
    steps_before = []  # the target's passes before each of the draft's
    counted = Watched(draft, lambda _: steps_before.append(len(targets)))
    drafter = drafter_for("draft_model", CachedModel(counted), policy="constant", lookahead=2)
    lanes = [lane(target, drafter, long_prompt(4, 6), new_tokens=4)]
    lanes += [lane(target, Plain(), PROMPTS[0], new_tokens=24)]
    found = together(Runner(), lanes)
    pieces = [n for n, rows in zip(steps_before, drafts, strict=True) if rows == [PIECE]]
    assert len(pieces) == 6
    assert len(set(pieces)) == 6  # a step of the other one between any two
    assert output_ids(found[1]) == reference_greedy(target_weights, PROMPTS[0], 24)
    assert output_ids(found[0]) == reference_greedy(target_weights, long_prompt(4, 6), 4)


@pytest.mark.parametrize("length", [PIECE, 3])
def test_short_prompts_are_read_together_as_far_as_they_fill_a_piece(target_weights, length):
    decoder, passes = noted(LeanDecoder(target_weights))
    decoder.chunk = 4 * length
    prompts = [[n, *range(1, length + 1)] for n in range(6)]
    together(Runner(), [lane(decoder, Plain(), prompt, new_tokens=2) for prompt in prompts])
    assert [rows.count(length) for rows in passes if length in rows] == [4, 2]


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

    def hold(passes):
        """Stop in the pass of the first step until it is let go."""
        if any(one.positions[0] == len(PROMPTS[0]) - 1 for one in passes):
            waiting.set()
            assert free.wait(WAIT)

    def drafting():
        return [one.name for one in threading.enumerate() if "specdemo-draft" in one.name]

    drafter = drafter_for("parallel", CachedModel(draft_weights), policy="constant", lookahead=4)
    decoder = Watched(LeanDecoder(target_weights), hold)
    view = runner.run(lane(decoder, drafter, PROMPTS[0], new_tokens=1000))
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
def test_each_wrapper_closes_its_drafter(method):
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
