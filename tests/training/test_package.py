"""The card of a drafter in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdemo.drafters.methods import TRAINED
from specdemo.training.package import Card, render, title

CARD = Card(
    target="tiny", precision="nf4", kind="feature", layers=(3,), words=8192, data=("made: 12 (MIT)",),
    tokens_seen=123_456, steps=40, minutes=2.0, seed=7,
    results={"loss": 0.5, "greedy_agreement_2": 0.625, "calibration_error": 0.01, "tokens": 4321},
    recipe={"batch": "4096 tokens"}, losses=((10, 4.0), (20, 2.0), (30, 1.5), (40, 1.25)),
    checks=((20, 2.2), (40, 1.4)), machine="here",
)  # fmt: skip


def test_a_result_has_a_name_in_words_at_every_place_of_the_draft():
    assert title("greedy_agreement_3").startswith("likeliest word is the target's, token 3 of")
    assert "token 12 of the draft, sampled text" in title("overlap_12")
    assert "before temperatures" in title("calibration_error_raw")
    assert "after temperatures" in title("calibration_error")
    assert "after any text" in title("greedy_agreement_all")
    assert title("something_else") == "something else"


@pytest.mark.parametrize("kind", TRAINED)
def test_the_readme_fits_every_kind(kind: str):
    text = render(replace(CARD, kind=kind), 3_500_000)
    assert f"# {kind.capitalize()} drafter for tiny" in text
    assert TRAINED[kind].card.partition("`{target}`")[0] in text
    assert "8,192" in text
    assert "{" not in text
    assert "| likeliest word is the target's, token 2 of the draft, greedy text | 0.6250 |" in text
    assert "| held-out answer tokens | 4,321 |" in text
    assert "started as layers 3 of the target" in text


def test_the_readme_tells_the_ends_of_the_curve_only():
    text = render(CARD, 1)
    assert "- training: 4.000 at step 10, 1.250 at step 40" in text
    assert "- held out: 2.200 at step 20, 1.400 at step 40" in text
    assert "1.500" not in text


def test_what_a_card_lacks_is_left_out_of_the_readme():
    text = render(replace(CARD, layers=(), losses=(), checks=(), results={}), 1)
    assert "started as" not in text
    assert "## Training" not in text
    assert "Not measured." in text
