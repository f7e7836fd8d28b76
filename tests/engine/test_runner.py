"""Runs that share a thread and passes write what they would write alone, and nobody waits for a slow viewer."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from conftest import drafter_for, header, reference_greedy
from transformers import LlamaForCausalLM

from specdemo.drafters.arms import Arm
from specdemo.drafters.auto import Auto
from specdemo.drafters.composite import Composite
from specdemo.drafters.look_back import LookBack
from specdemo.drafters.nothing import Nothing
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.fallback import Fallback
from specdemo.drafters.policies.forecast import Forecast
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.forward import ForwardRequest, answer_together, immediate
from specdemo.engine.limits import Limits
from specdemo.engine.loop import generate, steps
from specdemo.engine.module_decoder import ModuleDecoder
from specdemo.engine.runner import Runner
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.settings import Sampling
from specdemo.trace.events import RunStarted, Verified
from specdemo.trace.metrics import output_ids

PROMPTS = [[3, 14, 15, 9], [26, 5, 35], [8, 9, 7, 9, 3], [2, 3, 8]]
METHODS = ["nothing", "draft_model", "tree", "ngram"]
WAIT = 30.0


def lane(decoder, drafter, prompt, new_tokens=24, sampling=None, begin=steps):
    return begin(
        CachedModel(decoder),
        drafter,
        prompt,
        shaper=Shaper(sampling or Sampling()),
        limits=Limits(new_tokens, frozenset()),
        started=header(),
    )


def together(runner, lanes):
    """Look at every run in a thread of its own, all begun before the first step."""
    found: list[list | BaseException] = [[] for _ in lanes]
    seen, free = threading.Event(), threading.Event()

    def hold():
        seen.set()
        assert free.wait(WAIT)

    def look(index):
        try:
            found[index] = list(views[index])
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            found[index] = error

    views = [runner.run(steps) for steps in lanes]
    held = threading.Thread(target=runner.call, args=(hold,))
    threads = [threading.Thread(target=look, args=(index,)) for index in range(len(lanes))]
    held.start()
    assert seen.wait(WAIT)
    for thread in threads:
        thread.start()
    while runner._inbox.qsize() < len(lanes):
        pass
    free.set()
    for thread in (held, *threads):
        thread.join(WAIT)
        assert not thread.is_alive(), "a run waits for ever"
    return found


@pytest.mark.parametrize("make", [ModuleDecoder, LeanDecoder])
def test_each_run_writes_what_it_would_write_alone(
    target_weights: LlamaForCausalLM, draft_weights, make
):
    decoder = make(target_weights)
    drafters = [drafter_for(method, CachedModel(draft_weights)) for method in METHODS]
    lanes = [lane(decoder, *pair) for pair in zip(drafters, PROMPTS, strict=True)]
    found = together(Runner(), lanes)
    for events, prompt in zip(found, PROMPTS, strict=True):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 24)
    judged = [event for events in found for event in events if isinstance(event, Verified)]
    assert max(event.runs or 1 for event in judged) == len(PROMPTS)


class Slow(Nothing):
    """Proposes nothing, after a while; keeps what it learns."""

    def __init__(self, seconds=0.0):
        self.seconds, self.outcomes = seconds, []

    @immediate
    def propose(self, committed, budget):
        time.sleep(self.seconds)
        return Proposal()

    def observe(self, outcome):
        self.outcomes.append(outcome)


def test_a_step_is_not_charged_for_the_drafts_of_others_but_for_its_own_by_all(target_weights):
    decoder, slow, quick = LeanDecoder(target_weights), Slow(0.05), Slow()
    lanes = [lane(decoder, one, PROMPTS[0], new_tokens=6) for one in (slow, quick)]
    found = together(Runner(), lanes)
    shared = 0
    for drafter, events in zip((slow, quick), found, strict=True):
        judged = [event for event in events if isinstance(event, Verified)]
        learned = list(zip(judged, drafter.outcomes, strict=True))
        for event, outcome in learned[:-1]:  # after the last one nobody drafts
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
    def for_itself(steps):
        for item in steps:
            if isinstance(item, ForwardRequest):
                item.alone = True
            yield item

    decoder = LeanDecoder(target_weights)
    lanes = [lane(decoder, Nothing(), prompt, new_tokens=8) for prompt in PROMPTS[:3]]
    found = together(Runner(), [for_itself(lanes[0]), *lanes[1:]])
    runs = [{event.runs or 1 for event in events if isinstance(event, Verified)} for events in found]  # fmt: skip
    assert runs[0] == {1}
    assert 2 in runs[1]
    assert 3 not in runs[1] | runs[2]
    for events, prompt in zip(found, PROMPTS, strict=False):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 8)


def test_a_runner_says_how_many_go_on(target_weights):
    decoder, runner = LeanDecoder(target_weights), Runner()
    seen = []

    class Counting(Slow):
        @immediate
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
    alone = list(lane(decoder, Nothing(), PROMPTS[0], sampling=sampling, begin=generate))
    assert all(event.runs is None for event in alone if isinstance(event, Verified))
    lanes = [lane(decoder, Nothing(), PROMPTS[0], sampling=sampling)]
    lanes += [lane(decoder, Nothing(), prompt) for prompt in PROMPTS[1:]]
    assert output_ids(together(Runner(), lanes)[0]) == output_ids(alone)


def test_a_viewer_that_does_not_look_holds_nobody_up(target_weights):
    runner, decoder = Runner(), LeanDecoder(target_weights)
    asleep = runner.run(lane(decoder, Nothing(), PROMPTS[0]))
    assert isinstance(next(asleep), RunStarted)
    (events,) = together(runner, [lane(decoder, Nothing(), PROMPTS[1])])
    assert output_ids(events) == reference_greedy(target_weights, PROMPTS[1], 24)
    assert output_ids(list(asleep)) == reference_greedy(target_weights, PROMPTS[0], 24)


def test_a_viewer_may_look_now_and_then(target_weights):
    lanes = lane(LeanDecoder(target_weights), Nothing(), PROMPTS[0], new_tokens=200)
    begun, last, looks, events = time.monotonic(), 0.0, 0, []
    for event in Runner().run(lanes, every=0.05):
        events.append(event)
        looks += time.monotonic() - last > 0.02
        last = time.monotonic()
    assert output_ids(events) == reference_greedy(target_weights, PROMPTS[0], 200)
    assert 3 <= looks <= 2 + (time.monotonic() - begun) / 0.05


def test_closing_a_run_ends_it_where_it_computes(target_weights):
    runner, decoder, ended = Runner(), LeanDecoder(target_weights), []

    def endless():
        try:
            yield from lane(decoder, Nothing(), PROMPTS[0], new_tokens=10_000)
        finally:
            ended.append(threading.current_thread().name)

    view = runner.run(endless())
    next(view)
    view.close()
    assert ended == ["specdemo-engine"]
    assert runner.call(lambda: threading.current_thread().name) == "specdemo-engine"


def test_what_breaks_is_raised_where_the_run_is_looked_at():
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


def test_a_pass_that_breaks_breaks_those_who_asked_and_nobody_later(target_weights):
    lean = LeanDecoder(target_weights)

    class Breaking:
        """Fails once when two runs ask."""

        config, piece = lean.config, lean.piece
        broken = False

        def run(self, passes):
            if len(passes) == 2 and not self.broken:
                self.broken = True
                raise RuntimeError("no memory")
            return lean.run(passes)

    runner, decoder = Runner(), Breaking()
    lanes = [lane(decoder, Nothing(), prompt) for prompt in PROMPTS[:2]]
    assert all(isinstance(error, RuntimeError) for error in together(runner, lanes))
    lanes = [lane(decoder, Nothing(), prompt) for prompt in PROMPTS[:2]]
    for events, prompt in zip(together(runner, lanes), PROMPTS, strict=False):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 24)


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("no sense")])
def test_what_breaks_the_thread_ends_the_runs_and_the_next_ones_work(
    target_weights, monkeypatch, error
):
    runner, decoder = Runner(), LeanDecoder(target_weights)
    lanes = [lane(decoder, Nothing(), prompt) for prompt in PROMPTS[:2]]
    passes = []

    def broken():
        passes.append(1)
        if len(passes) == 3:
            raise error

    def answer(requests):
        broken()
        answer_together(requests)

    monkeypatch.setattr("specdemo.engine.runner.answer_together", answer)
    found = together(runner, lanes)
    assert all(isinstance(one, RuntimeError) for one in found)
    assert all(type(error).__name__ in str(one) for one in found)
    lanes = [lane(decoder, Nothing(), prompt) for prompt in PROMPTS[:2]]
    for events, prompt in zip(together(runner, lanes), PROMPTS, strict=False):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 24)


def test_a_session_imports_no_torch():
    code = "import sys, specdemo.session.studio; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def shared(decoder):
    """The decoder, and how many runs shared each of its passes."""
    counts = []

    class Counting:
        config, piece = decoder.config, decoder.piece

        def run(self, passes):
            counts.append(len(passes))
            return decoder.run(passes)

    return Counting(), counts


@pytest.mark.parametrize(
    ("method", "temperature"),
    [("draft_model", 0.0), ("draft_model", 1.0), ("tree", 1.0), ("auto", 0.0)],
)
def test_runs_with_the_same_draft_model_share_its_passes(
    target_weights, draft_weights, method, temperature
):
    """The drafts are of different lengths, and yet the target's passes stay shared."""
    sampling = Sampling(temperature=temperature, seed=3)

    def made(decoder, draft):
        return [
            lane(
                decoder,
                drafter_for(
                    method,
                    CachedModel(draft),
                    sampling=sampling,
                    policy="constant",
                    lookahead=lookahead,
                ),
                prompt,
                sampling=sampling,
            )
            for prompt, lookahead in zip(PROMPTS[:2], (2, 5), strict=True)
        ]

    target, targets = shared(LeanDecoder(target_weights))
    draft, drafts = shared(LeanDecoder(draft_weights))
    found = together(Runner(), made(target, draft))
    assert drafts.count(2) > 5
    shared_steps = [event for event in found[0] if isinstance(event, Verified) and event.runs == 2]
    assert len(shared_steps) == targets.count(2) - 1  # of which one read both prompts
    assert targets == sorted(targets, reverse=True)  # alone only after the other one has ended
    lanes = made(LeanDecoder(target_weights), LeanDecoder(draft_weights))
    for events, alone in zip(found, lanes, strict=True):
        assert output_ids(events) == output_ids(list(Runner().run(alone)))


def test_a_run_that_is_closed_while_it_waits_closes_its_drafter(target_weights, draft_weights):
    """Parallel drafts in a thread beside the target's pass: it ends with the run."""
    runner, waiting, free = Runner(), threading.Event(), threading.Event()
    lean = LeanDecoder(target_weights)

    class Held:
        """Stops in the pass of the first step until it is let go."""

        config, piece = lean.config, lean.piece

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
    """Knows how often it was closed, and breaks when it is asked to."""

    def __init__(self, error=None):
        super().__init__()
        self.error, self.closed = error, 0

    def observe(self, outcome):
        if self.error:
            raise self.error

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("method", ["Forecast", "Fallback", "LookBack", "Composite", "Auto"])
def test_what_wraps_a_drafter_closes_it(method):
    drafter, costs = Closing(), Costs(CostProfile())
    arm = Arm("model", drafter)
    wrapped = {
        "Forecast": lambda: Forecast(drafter, costs, Calibration(), 0.0),
        "Fallback": lambda: Fallback(drafter),
        "LookBack": lambda: LookBack(drafter, 0.5),
        "Composite": lambda: Composite([], arm, costs),
        "Auto": lambda: Auto([], arm, costs),
    }[method]()
    wrapped.close()
    assert drafter.closed == 1


def test_a_drafter_is_closed_however_its_run_ends(target_weights):
    decoder = LeanDecoder(target_weights)
    drafter = Closing()
    list(lane(decoder, drafter, PROMPTS[0], new_tokens=4, begin=generate))
    assert drafter.closed == 1
    broken = Closing(RuntimeError("no memory"))
    with pytest.raises(RuntimeError, match="no memory"):
        list(lane(decoder, broken, PROMPTS[0], begin=generate))
    assert broken.closed == 1


PIECE = 40  # rows: more than a step has


def noted(decoder):
    """The decoder, liking pieces of PIECE rows, and the rows of each run in each of its passes."""
    passes = []

    class Noting:
        config, piece = decoder.config, PIECE

        def run(self, inputs):
            passes.append([len(one.token_ids) for one in inputs])
            return decoder.run(inputs)

    return Noting(), passes


def long_prompt(start, pieces):
    return [(start + 7 * place) % 60 + 1 for place in range(pieces * PIECE + 1)]


def test_long_prompts_are_read_in_turn_between_the_steps_of_others(target_weights):
    """Two long prompts of five pieces and a run that decodes: it takes a step with each piece, and none waits for another."""
    decoder, passes = noted(LeanDecoder(target_weights))
    prompts = [long_prompt(3, 5), long_prompt(5, 5), PROMPTS[0]]
    found = together(Runner(), [lane(decoder, Nothing(), one, new_tokens=12) for one in prompts])
    reading = [rows for rows in passes if PIECE in rows]
    assert all(rows.count(PIECE) == 1 for rows in reading)
    assert len(reading) == 10
    assert all(
        len(rows) > 1 for rows in reading[2:]
    )  # once it has read as well, a step goes with each
    for events, prompt in zip(found, prompts, strict=True):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 12)


def test_a_fresh_visitor_waits_for_one_piece_of_each_reader_at_most(target_weights):
    """The first token comes a bounded number of passes after the prompt, however long the prompts before it are."""
    decoder, passes = noted(LeanDecoder(target_weights))
    runner, longs, begun = Runner(), 3, []

    def fresh():
        begun.append(len(passes))
        yield from lane(decoder, Nothing(), long_prompt(9, 1), new_tokens=1)
        begun.append(len(passes))

    lanes = [lane(decoder, Nothing(), long_prompt(n, 8), new_tokens=2) for n in range(longs)]
    together(runner, [*lanes, fresh()])
    first, last = begun
    assert last - first <= longs + 2  # a piece of each, its own, and its step
    assert len(passes) > 3 * longs


def test_a_long_prompt_that_a_draft_reads_holds_nobody_up(target_weights, draft_weights):
    target, targets = noted(LeanDecoder(target_weights))
    draft, drafts = noted(LeanDecoder(draft_weights))
    steps_before = []

    class Noting:
        """Counts the target's passes before each of the draft's."""

        config, piece = draft.config, PIECE

        def run(self, inputs):
            steps_before.append(len(targets))
            return draft.run(inputs)

    drafter = drafter_for("draft_model", CachedModel(Noting()), policy="constant", lookahead=2)
    lanes = [lane(target, drafter, long_prompt(4, 6), new_tokens=4)]
    lanes += [lane(target, Nothing(), PROMPTS[0], new_tokens=24)]
    found = together(Runner(), lanes)
    pieces = [n for n, rows in zip(steps_before, drafts, strict=True) if rows == [PIECE]]
    assert len(pieces) == 6
    assert len(set(pieces)) == 6  # a step of the other one between any two
    assert output_ids(found[1]) == reference_greedy(target_weights, PROMPTS[0], 24)
    assert output_ids(found[0]) == reference_greedy(target_weights, long_prompt(4, 6), 4)


@pytest.mark.parametrize("length", [PIECE, 3])
def test_short_prompts_are_read_together_as_far_as_they_fill_a_piece(target_weights, length):
    decoder, passes = noted(LeanDecoder(target_weights))
    decoder.piece = 4 * length
    prompts = [[n, *range(1, length + 1)] for n in range(6)]
    together(Runner(), [lane(decoder, Nothing(), prompt, new_tokens=2) for prompt in prompts])
    assert [rows.count(length) for rows in passes if length in rows] == [4, 2]
