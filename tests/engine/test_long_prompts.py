"""Long prompts are read in chunks between the steps of other runs."""

from __future__ import annotations

import pytest
from conftest import drafter_for, reference_greedy
from lanes import PROMPTS, lane, together

from specdemo.drafters.base import Plain
from specdemo.engine.runner import Runner
from specdemo.engine.target import CachedModel
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.trace.metrics import output_ids

PIECE = 40  # rows: more than a step has


def noted(decoder):
    """Create the decoder with chunks of `PIECE` rows, and record the rows of each run in each of its passes."""
    passes = []

    class Noting:
        config, chunk = decoder.config, PIECE

        def run(self, inputs):
            passes.append([len(one.token_ids) for one in inputs])
            return decoder.run(inputs)

    return Noting(), passes


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
    assert all(
        len(rows) > 1 for rows in reading[2:]
    )  # once it has read as well, a step goes with each
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


def test_a_long_prompt_that_a_draft_reads_holds_nobody_up(target_weights, draft_weights):
    target, targets = noted(LeanDecoder(target_weights))
    draft, drafts = noted(LeanDecoder(draft_weights))
    steps_before = []

    class Noting:
        """Counts the target's passes before each of the draft's."""

        config, chunk = draft.config, PIECE

        def run(self, inputs):
            steps_before.append(len(targets))
            return draft.run(inputs)

    drafter = drafter_for("draft_model", CachedModel(Noting()), policy="constant", lookahead=2)
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
