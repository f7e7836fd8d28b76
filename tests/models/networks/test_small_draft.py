"""A draft model that says few words: it drafts those alone, by the logits of its own head, and the text stays the target's."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import VOCABULARY, drafter_for, reference_greedy, run_lane, tiny_llama

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.loading import LoadedModel
from specdemo.models.networks.small_draft import common_words, smaller
from specdemo.models.pair import LoadedPair, ModuleDraft, with_small_draft
from specdemo.trace.events import ModelInfo, Verified
from specdemo.trace.metrics import output_ids

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6, 11, 30, 2, 17]


def draft_of(model):
    decoder = LeanDecoder(model)
    return LoadedModel(model, decoder, ModelInfo("small", kernel="lean pass"), torch.device("cpu"), VOCABULARY)  # fmt: skip


def answers_of(target):
    """What the target has written, with a separator as a datastore has it."""
    return np.array([*reference_greedy(target, PROMPT, 48), VOCABULARY, *range(40)], np.uint16)


@pytest.mark.parametrize("bits", ["auto", "16"])
def test_it_drafts_those_words_and_the_text_is_the_targets(target_weights, bits):
    answers = answers_of(target_weights)
    pair = LoadedPair(
        SimpleNamespace(vocabulary_size=VOCABULARY),
        None,
        None,
        ModuleDraft(draft_of(target_weights)),
    )
    settings = AppSettings(draft_head=bits, draft_words=32)
    small = with_small_draft(pair, settings, answers)
    assert small.draft_info.kernel == "lean pass, 16-bit head of 32 words"
    draft = small.open_draft()
    words = set(common_words(answers, 32, VOCABULARY))
    assert set(draft.words.tokens) == words
    drafter = drafter_for("draft_model", draft, policy="constant", lookahead=4)
    events = run_lane(target_weights, drafter, PROMPT, max_new_tokens=32)
    assert output_ids(events) == reference_greedy(target_weights, PROMPT, 32)
    steps = [event for event in events if isinstance(event, Verified)]
    drafted = [node.token_id for event in steps for node in event.nodes]
    assert set(drafted) <= words
    # The draft is the target itself here: it is right wherever the words allow it.
    kept = sum(len(event.path) for event in steps)
    assert kept >= 0.5 * len(drafted) > 0


def test_what_nobody_asks_for_changes_nothing(target_weights):
    draft = draft_of(target_weights)
    assert smaller(draft, "auto", 0, None, VOCABULARY) == (draft, None)
    pair = LoadedPair(SimpleNamespace(), None, None, ModuleDraft(draft))
    assert with_small_draft(pair, AppSettings(), None) is pair
    compact = replace(pair, open_draft=lambda: None)
    assert with_small_draft(compact, AppSettings(draft_words=32), None) is compact


def test_fewer_bits_stand_in_the_kernels_name():
    small, words = smaller(draft_of(tiny_llama(3).bfloat16()), "8", 0, None, VOCABULARY)
    assert (small.info.kernel, words) == ("lean pass, 8-bit head", None)


def test_words_are_counted_in_whole_blocks():
    answers = np.array([*range(70), *range(40), 99, 99, 99])
    assert common_words(answers, 64, 80) == [*range(40), *range(46, 70)]
    assert common_words(answers, 1000, 80) == common_words(answers, 64, 80)
    for few in (None, np.arange(31)):
        with pytest.raises(UserError, match="no answers of this target"):
            common_words(few, 64, 80)
