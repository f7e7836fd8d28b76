"""Published DFlash 2 drafters: convolutions, a selector of candidates, and layers that forget."""

from __future__ import annotations

import pytest
import torch
from opened_dflash import (
    EMBEDDING,
    HEAD,
    LAYERS,
    SECOND,
    TEXT,
    VOCABULARY,
    guessed,
    know,
    opened,
    same,
    states_of,
)
from tiny_dflash import Reference, make, write_flat, write_speculators

from specdemo.config.errors import UserError
from specdemo.models.networks.layouts import dflash
from specdemo.models.networks.layouts.family import TargetFacts, drafter_files

LAYOUTS_OF_SECOND = {
    "z-lab": (write_flat, SECOND),
    "z-lab, three taps": (write_flat, {"taps": 3, "chosen": 6, "group": 16, "cap": 2.0}),
    "speculators": (write_speculators, {**SECOND, "window_causal": True}),
}


@pytest.mark.parametrize("layout", LAYOUTS_OF_SECOND)
def test_dflash_2_convolves_and_chooses_among_candidates(tmp_path, layout):
    """After a text read in one pass, and after one that continues: each position, and the choice of the selector."""
    write, facts = LAYOUTS_OF_SECOND[layout]
    model = make(**facts)
    states = states_of(model, len(TEXT))
    reference = Reference(model, EMBEDDING, HEAD, states)
    drafter = opened(write(tmp_path / "it", model))
    know(drafter, states, 0, 3)
    same(drafter.guess(TEXT[:4]), reference.guess(TEXT[:4]))
    know(drafter, states, 3, len(TEXT) - 1)
    found, wanted = drafter.guess(TEXT[4:]), reference.guess(TEXT)
    same(found, wanted)
    selector = drafter.weights.markov
    assert selector is not None
    assert selector.by_token
    for place, token in enumerate((TEXT[-1], 44, 9)):
        scores = selector.corrected(found[place : place + 1], token, drafter.states[place])[0]
        sayable = scores.isfinite().nonzero().flatten().tolist()
        expected = reference.selected(place, wanted[place], token)
        assert sayable == sorted(expected)
        same(scores[sayable], torch.tensor([expected[one] for one in sayable]))
        assert selector.survival(place, drafter.states[place], token) is None


TRAPS_OF_SECOND = {
    "what goes in is convolved": {"convolves": (False, True)},
    "what comes out is convolved": {"convolves": (True, False)},
    "kernels depend on the place": {"dynamic": False},
    "kernels of what comes out, too": {"from_input": False},
    "kernels are written tap by tap": {"tap_first": False},
    "layers forget what is far back": {"window": 0},
    "a block sees all of itself": {"window_causal": True},
}


@pytest.mark.parametrize("trap", TRAPS_OF_SECOND)
def test_a_trap_of_dflash_2_makes_a_difference(tmp_path, trap):
    model = make(**SECOND)
    states = states_of(model, len(TEXT))
    found = guessed(opened(write_flat(tmp_path / "it", model)), states)
    ignored = Reference(model, EMBEDDING, HEAD, states, **TRAPS_OF_SECOND[trap]).guess(TEXT)
    assert (found - ignored).abs().max() > 0.05


def test_the_selector_heeds_the_state_of_a_place(tmp_path):
    model = make(**SECOND)
    states = states_of(model, len(TEXT))
    drafter = opened(write_flat(tmp_path / "it", model))
    found = guessed(drafter, states)
    scores = drafter.weights.markov.corrected(found[:1], TEXT[-1], drafter.states[0])[0]
    ignoring = Reference(model, EMBEDDING, HEAD, states, state_gates=False)
    ignored = ignoring.selected(0, ignoring.guess(TEXT)[0], TEXT[-1])
    assert max(abs(float(scores[one]) - ignored[one]) for one in ignored) > 0.05


@pytest.mark.parametrize(
    ("write", "key", "facts", "causal"),
    [
        (write_flat, "is_causal", {"window": 4}, True),
        (write_speculators, "sliding_window_non_causal", {"window": 4}, True),
        (write_speculators, "sliding_window_non_causal", SECOND, False),
    ],
)
def test_what_layers_that_forget_see_where_nothing_is_said(tmp_path, write, key, facts, causal):
    """They are causal, but for those of DFlash 2 in the layout of speculators."""
    model = make(**facts)
    drafter = opened(write(tmp_path / "it", model, **{key: None}))
    states = states_of(model, len(TEXT))
    wanted = Reference(model, EMBEDDING, HEAD, states, window_causal=causal).guess(TEXT)
    same(guessed(drafter, states), wanted)


@pytest.mark.parametrize(
    ("sentence", "own"),
    [
        ("no selector_top_k", {"selector_top_k": None}),
        ("conv_group_size is 5; allowed: divisors of 32", {"conv_group_size": 5}),
        ("shape .* in place of", {"conv_kernel_size": 3}),
        ("shape .* in place of", {"selector_rank": 5}),
        ("selector_top_k is 65; allowed", {"selector_top_k": 65}),
    ],
)
def test_other_selectors_and_convolutions_are_refused(tmp_path, sentence, own):
    with pytest.raises(UserError, match=sentence):
        opened(write_flat(tmp_path / "it", make(**SECOND), own))


def test_dflash_2_under_the_name_of_dflash_is_dflash_2(tmp_path):
    """One server has no other name for it."""
    folder = write_flat(tmp_path / "it", make(**SECOND), architectures=["DFlashDraftModel"])
    assert opened(folder).weights.convolutions
    other = drafter_files(str(folder), tmp_path)
    with pytest.raises(UserError, match="states of 32 numbers, and this target's have 48"):
        dflash.read(other, TargetFacts("tiny", 48, VOCABULARY, LAYERS))
