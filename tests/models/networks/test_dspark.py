"""Published DSpark drafters: a Markov head corrects each position by the token before it; other heads are refused."""

from __future__ import annotations

import pytest
from opened_dflash import EMBEDDING, HEAD, TEXT, VOCABULARY, guessed, opened, same, states_of
from tiny_dflash import Reference, make, write_dspark, write_flat, write_speculators

from specdemo.config.errors import UserError

DSPARK = {"rank": 6, "anchored": True}
SPECFORGE = {
    "projector_type": "dspark", "markov_rank": 6, "markov_head_type": "vanilla", "enable_confidence_head": True,
    "confidence_head_with_markov": True, "confidence_head_alpha": 1.0,
}  # fmt: skip
RED_HAT = {key: one for key, one in SPECFORGE.items() if key != "projector_type"} | {
    "speculators_model_type": "dspark",
    "architectures": ["DSparkDraftModel"],
}


@pytest.mark.parametrize("layout", ["DeepSpec", "SpecForge", "speculators", "not confident"])
def test_dspark_corrects_each_place_by_the_token_before_it(tmp_path, layout):
    """The Markov head has a row for each token of the target, also those outside the drafter's head."""
    words = 48 if layout == "speculators" else VOCABULARY
    model = make(**DSPARK, words=words, confident=layout != "not confident")
    if layout == "SpecForge":
        folder = write_flat(tmp_path / "it", model, SPECFORGE, architectures=["DSparkDraftModel"])
    elif layout == "speculators":
        folder = write_speculators(tmp_path / "it", model, **RED_HAT)
    else:
        folder = write_dspark(tmp_path / "it", model)
    states = states_of(model, len(TEXT))
    reference = Reference(model, EMBEDDING, HEAD, states)
    drafter = opened(folder)
    markov = drafter.weights.markov
    assert markov is not None
    assert markov.by_token
    found, wanted = guessed(drafter, states), reference.guess(TEXT)
    same(found, wanted)
    unsaid = next((one for one in range(VOCABULARY) if one not in reference.tokens()), 44)
    for place, token in enumerate((TEXT[-1], unsaid, 9)):
        one = markov.corrected(found[place : place + 1], token, drafter.states[place])[0]
        same(one, reference.corrected(wanted[place], token))
        assert (one - found[place]).abs().max() > 0.05
        sure = markov.survival(place, drafter.states[place], token)
        if model.confident:
            assert sure == pytest.approx(reference.confidence(place, token), abs=1e-4)
        else:
            assert sure is None


def test_dspark_without_a_markov_head_is_dflash_from_the_anchor(tmp_path):
    model = make(anchored=True)
    states = states_of(model, len(TEXT))
    drafter = opened(write_dspark(tmp_path / "it", model))
    same(guessed(drafter, states), Reference(model, EMBEDDING, HEAD, states).guess(TEXT))


@pytest.mark.parametrize(
    ("sentence", "more"),
    [
        ("markov_head_type is gated; allowed: vanilla", {"markov_head_type": "gated"}),
        ("no tensor confidence_head", {"enable_confidence_head": True}),
        ("no Markov head", {"enable_confidence_head": True, "markov_rank": 0}),
        ("shape .* in place of", {"markov_rank": 5}),
        ("architectures is .*Gemma4DSparkModel", {"architectures": ["Gemma4DSparkModel"]}),
    ],
)
def test_other_heads_are_refused(tmp_path, sentence, more):
    with pytest.raises(UserError, match=sentence):
        opened(write_dspark(tmp_path / "it", make(**DSPARK), **more))
