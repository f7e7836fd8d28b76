"""The card of a drafter in words, and the picture of its training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from specdemo.drafters.methods import TRAINED
from specdemo.training.card import Card, render, title
from specdemo.training.plot import nat_ticks, step_ticks, write_plot

SVG = "{http://www.w3.org/2000/svg}"
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
    assert "(training.svg)" in text
    assert "1.500" not in text


def test_what_a_card_lacks_is_left_out_of_the_readme():
    text = render(replace(CARD, layers=(), losses=(), checks=(), results={}), 1)
    assert "started as" not in text
    assert "training.svg" not in text
    assert "Not measured." in text


def test_the_plot_is_xml_and_holds_both_series(tmp_path: Path):
    write_plot(replace(CARD, target="<tiny> & co"), tmp_path / "training.svg")
    root = ElementTree.parse(tmp_path / "training.svg").getroot()  # noqa: S314 - our own file
    lines = {line.get("class"): line.get("points").split() for line in root.iter(f"{SVG}polyline")}
    assert {name: len(points) for name, points in lines.items()} == {"losses": 4, "checks": 2}
    heights = [float(point.partition(",")[2]) for point in lines["losses"]]
    assert heights == sorted(heights)  # the loss falls, and down is more
    said = {text.text for text in root.iter(f"{SVG}text")}
    assert {"training", "held out", "steps", "0", "40"} <= said
    assert any("<tiny> & co" in text for text in said)


def test_a_plot_of_nothing_is_drawn_too(tmp_path: Path):
    write_plot(replace(CARD, losses=(), checks=()), tmp_path / "training.svg")
    root = ElementTree.parse(tmp_path / "training.svg").getroot()  # noqa: S314 - our own file
    assert [line.get("points") for line in root.iter(f"{SVG}polyline")] == ["", ""]


def test_axes_enclose_what_they_show():
    assert step_ticks(40) == [0, 10, 20, 30, 40]
    assert step_ticks(1) == [0, 1]
    assert step_ticks(2340)[-1] >= 2340
    assert nat_ticks([1.1, 4.2]) == [1, 1.5, 2, 3, 5]
    assert len(nat_ticks([2.0])) == 2
    assert nat_ticks([0.0, 9.9])[-1] == 10
