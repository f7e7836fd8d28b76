"""Measurements of a graphics card on tiny models: every part, missing parts, the file and the page."""

import json
import time

import pytest
import torch
from conftest import drafter_for, open_draft
from errors import reported
from tiny_studio import TinyStudio, encode

from specdemo.bench import card
from specdemo.bench.card import (
    TIMED_ROWS,
    PairFindings,
    Sameness,
    card_result,
    compare,
    findings,
    measure_pair,
    tokens_within,
    ways,
)
from specdemo.bench.results import text
from specdemo.cli import console
from specdemo.cli.parser import main
from specdemo.config.errors import UserError
from specdemo.models.decoders.graphs import GraphDecoder
from specdemo.session.text import Item
from specdemo.trace.events import ModelInfo

ITEMS = [Item("one", "list", ("abcabc",)), Item("two", "code", ("abab",))]
HERE = ("nothing", "ngram", "draft_model")


@pytest.fixture
def studio(monkeypatch, target_weights, draft_weights):
    for name, less in {"ROUNDS": 2, "TOKENS": 16, "ANSWER_TOKENS": 16}.items():
        monkeypatch.setattr(card, name, less)
    monkeypatch.setattr(card, "encode_prompt", lambda _, prompt, __: encode(prompt))
    drafters = {
        name: lambda _, name=name: drafter_for(name, open_draft(draft_weights)) for name in HERE
    }
    return TinyStudio(
        target_weights, drafters, {"auto": "It is not here."}, draft_info=ModelInfo("small"),
        open_draft=lambda: open_draft(draft_weights),
    )  # fmt: skip


def test_every_part_is_measured_or_says_why_not(studio):
    *_, found = measure_pair(studio, ITEMS, 60.0)
    assert list(found.ladders) == ["lean pass", "transformers' own pass"]
    for seconds in found.ladders.values():
        assert len(seconds) == len(TIMED_ROWS)
        assert min(seconds) > 0
    assert found.costs["draft_step"] > 0
    assert [one.rows for one in found.sameness] == list(card.REREAD_ROWS)
    for one in found.sameness:
        assert one.same_word == one.tokens > 0
        assert one.difference < one.lead
    rows = {(row["lane"], row["task"]): row for row in found.rows}
    assert {lane for lane, _ in rows} == set(HERE)
    assert {task for _, task in rows} == {"code", "list", "all"}
    assert rows["draft_model", "all"]["same_output_rate"] == 1
    assert found.left_out == {
        "CUDA graphs": "They need a CUDA device; this model runs on the processor.",
        "auto": "It is not here.",
        "memory": "It is counted on a CUDA device only.",
    }
    result = card_result([found], minutes=1.0, seconds=9.0, notes=["<b> is left out: gone"])
    told = text(result)
    assert "<b> is left out: gone" in told
    for sentence in found.left_out.values():
        assert sentence in told


def pair_of(same_bits, speedups):
    """Return findings with two backends, passes of 2, 3 and 4 rows, and rows by speedup."""
    seconds = [0.002 * (1 + row / 10) for row in range(len(TIMED_ROWS))]
    return PairFindings(
        {"name": "tiny", "precision": "fp32", "kernel": "lean pass"}, None, {},
        ladders={"lean pass": [3 * one for one in seconds], "CUDA graphs": seconds},
        sameness=[
            Sameness(rows, 10, bits, 10, 0.1, 0.2, None)
            for rows, bits in zip((2, 3, 4), same_bits, strict=True)
        ],
        rows=[
            {"task": "all", "lane": lane, "speedup": speedup, "tokens_per_second": 100 * speedup}
            for lane, speedup in speedups.items()
        ],
    )  # fmt: skip


def test_the_card_begins_with_the_result():
    said = findings(pair_of((10, 10, 7), {"nothing": 1.0, "auto": 2.5}))
    assert said == [
        "CUDA graphs: a pass of one row takes 2.00 ms; with four drafted tokens it takes 1.40 times that.",
        "Passes of up to 3 rows gave every bit of passes of one row.",
        "Fastest: auto with 250 tokens per second, 2.50 times plain decoding.",
    ]
    slow = findings(pair_of((9, 10, 10), {"nothing": 1.0, "auto": 0.9}))
    assert "other bits" in slow[1]
    assert slow[2] == "No lane is faster than plain decoding."


def test_the_ladder_is_ordered_by_rows_and_has_no_empty_columns():
    pair = pair_of((10, 10, 7), {"nothing": 1.0})
    by_title = {one.title: one for one in card_result([pair], minutes=1.0, seconds=9.0).tables}
    ladder = by_title["Passes by rows"]
    assert ladder.columns == ["target", "rows", "lean pass, ms", "more", "CUDA graphs, ms", "more"]
    assert ladder.rows[4] == ["tiny", "5", "8.40", "+0.60", "2.80", "+0.20"]
    assert by_title["Tokens per second"].columns[0] == "tiny"
    assert "tie margin" not in by_title["Tokens per second"].columns


def test_a_part_that_breaks_or_has_no_time_leaves_the_others(studio, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.\nMore words.")

    monkeypatch.setattr(card, "_ladders", full)
    *_, found = measure_pair(studio, ITEMS, 60.0)
    assert found.left_out["ladder"] == "OutOfMemoryError: CUDA out of memory."
    assert found.sameness
    assert found.rows
    *_, late = measure_pair(studio, ITEMS, -1.0)
    assert set(late.left_out.values()) == {"There was no time left for it."}
    assert len(late.left_out) == 4
    tables = card_result([late], minutes=1.0, seconds=9.0).tables
    assert [table.columns[2] for table in tables].count("why") == 1
    assert tokens_within(64, time.monotonic() + 30.5, 1.0) == 30
    with pytest.raises(UserError, match="no time"):
        tokens_within(64, time.monotonic() + 5, 1.0)


def test_logits_are_compared_bit_by_bit_and_by_their_likeliest_word():
    alone = torch.tensor([[1.0, 3.0, 2.5], [2.0, 0.0, 1.75], [5.0, 0.0, 1.0], [0.0, 1.0, 4.0]])
    other = alone.clone()
    other[0, 0] += 0.125  # other bits, same word
    other[1, 2] += 0.5  # overtakes a lead of 0.25
    one = compare(4, alone, other)
    assert (one.rows, one.tokens, one.same_bits, one.same_word) == (4, 4, 2, 3)
    assert (one.difference, one.lead, one.overtaken) == (0.5, 0.25, 0.25)
    assert compare(2, alone, alone).overtaken is None


def test_a_card_has_graphs_beside_the_passes_that_they_record(studio):
    lean, target = studio.pair.target.decoder, studio.pair.target
    target.decoder = graphs = GraphDecoder(lean, lambda work: work)
    assert list(ways(studio.pair).values())[:2] == [graphs, lean]
    assert list(ways(studio.pair)) == ["CUDA graphs", "lean pass", "transformers' own pass"]
    graphs.records = False
    assert list(ways(studio.pair)) == ["lean pass", "transformers' own pass"]


def test_the_command_writes_its_file_and_goes_on_without_a_pair(studio, monkeypatch, tmp_path):
    def load(settings):
        if settings.target == "gone":
            raise reported("It is not there.")
        return studio

    monkeypatch.setattr(console, "load_studio", load)
    out = tmp_path / "card"
    assert main(["gpu", "--targets", "gone,tiny", "--minutes", "1", "--out", str(out)]) == 0
    values = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    assert values["notes"][:1] == ["gone is left out: It is not there."]
    assert [pair["target"]["name"] for pair in values["pairs"]] == ["tiny"]
    assert "lean pass" in json.dumps(values["tables"])
    assert main(["gpu", "--targets", "gone", "--out", str(out)]) == 1
