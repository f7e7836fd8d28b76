"""Published DFlash, JetSpec, DFlash 2 and DSpark drafters run as their format defines in each layout; others are refused."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from drafter_folders import (
    CPU,
    EMBEDDING,
    HEAD,
    HIDDEN,
    TEXT,
    VOCABULARY,
    know,
    network_of,
    reading_of,
    same,
    states_of,
)
from passes import in_one_pass
from tiny_dflash import SECOND, Reference, make, write_dspark, write_flat, write_speculators

from specdemo.config.errors import UserError
from specdemo.engine.target import Features
from specdemo.models.networks.dflash import DFlashDecoder, DFlashModel
from specdemo.models.networks.folders import TargetTensors
from specdemo.models.networks.layouts.families import family_of
from specdemo.models.networks.layouts.family import TargetFacts, drafter_files


def opened(folder: Path) -> DFlashModel:
    """A conversation whose target has read nothing."""
    found = network_of(folder)
    assert isinstance(found, DFlashDecoder)
    return DFlashModel(found, Features(found.weights.form.reads))


def guessed(drafter: DFlashModel, states: torch.Tensor) -> torch.Tensor:
    """Draft after the whole text, read in one pass."""
    know(drafter.target_states, states, 0, len(TEXT) - 1)
    return drafter.guess(TEXT)


COMMITTED = [12, 3, 55]
SCALED = {"embedding_scale": 3.0, "multiplier": 0.25, "cap": 2.0, "layers": 1}
JETSPEC = {"causal": True}
ANCHORED = {"anchored": True}
LAYOUTS = {
    "z-lab": (write_flat, {"theta": 1e6}),
    "z-lab, scaled": (write_flat, SCALED),
    "JetSpec": (write_flat, JETSPEC),
    "speculators": (write_speculators, {"words": 48, "reads": (2, 4, 5)}),
    "speculators, from the anchor": (write_speculators, ANCHORED),
    "DSpark, without a Markov head": (write_dspark, ANCHORED),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_runs_as_its_format_says(tmp_path, layout):
    """A prompt in chunks, a step that commits three tokens, and another text from the middle on: as without a cache."""
    write, facts = LAYOUTS[layout]
    model, longer = make(**facts), [*TEXT, *COMMITTED]
    states = states_of(model, len(longer))
    drafter = opened(write(tmp_path / "drafter", model))
    reference = Reference(model, EMBEDDING, HEAD, states)
    assert drafter.weights.form.reads == model.reads
    assert list(drafter.words.tokens) == reference.tokens()
    drafter.decoder.chunk = 3
    know(drafter.target_states, states, 0, len(TEXT) - 1)
    drafter.read(TEXT[:-1])
    same(drafter.guess(TEXT[-1:]), reference.guess(TEXT))
    assert drafter.length == len(TEXT)
    know(drafter.target_states, states, len(TEXT) - 1, len(longer) - 1)
    same(drafter.guess(COMMITTED), reference.guess(longer))
    assert len(drafter.states) == drafter.weights.depth == model.block - (not model.anchored)
    drafter.rollback(4)
    other = [*TEXT[:4], 30, 31]
    states = torch.cat([states[:4], -states[4:]])
    know(drafter.target_states, states, 4, len(other) - 1)
    same(drafter.guess(other[4:]), Reference(model, EMBEDDING, HEAD, states).guess(other))


@pytest.mark.parametrize("facts", [JETSPEC, SECOND])
def test_blocks_of_several_conversations_are_one_pass(tmp_path, facts):
    """Texts of other lengths, and one that is only read. No block sees another."""
    model = make(**facts)
    states = states_of(model, 9)
    found = network_of(write_flat(tmp_path / "drafter", model))
    drafters = [DFlashModel(found, Features(model.reads)) for _ in range(3)]
    works = []
    for drafter, length in zip(drafters, (7, 3, 6), strict=True):
        know(drafter.target_states, states, 0, length - 1)
        works.append(partial(drafter.read if length == 6 else drafter.guess, TEXT[:length]))
    results = in_one_pass(works)
    reference = Reference(model, EMBEDDING, HEAD, states)
    for logits, length in zip(results, (7, 3), strict=False):
        same(logits, reference.guess(TEXT[:length]))
    know(drafters[2].target_states, states, 5, 6)
    same(drafters[2].guess([7]), reference.guess([*TEXT[:6], 7]))


def test_states_and_the_size_of_a_block_are_read_wherever_they_stand(tmp_path):
    """speculators counts states, the others the layers before them; unnamed ones are spread over the target."""
    three = make(reads=(2, 4, 6), layers=3)
    for number, own in enumerate(({}, {"target_layer_ids": None})):
        folder = write_flat(tmp_path / str(number), three, own)
        assert opened(folder).weights.form.reads == (2, 4, 6)
    one = make(reads=(5,), layers=1)
    folder = write_flat(tmp_path / "one", one, {"target_layer_ids": None})
    assert opened(folder).weights.form.reads == (5,)
    with pytest.raises(UserError, match="no aux_hidden_state_layer_ids"):
        opened(write_speculators(tmp_path / "two", three, aux_hidden_state_layer_ids=None))
    inner = write_flat(tmp_path / "inner", make(), {"block_size": 5}, block_size=None)
    assert opened(inner).weights.form.rows == 5


def test_each_of_three_keys_makes_a_drafter_causal(tmp_path):
    model = make()
    for number, (own, more, title) in enumerate(
        [
            ({"causal_head": True}, {}, "JetSpec"),
            ({"causal": True}, {}, "JetSpec"),
            ({}, {"is_causal": True}, "JetSpec"),
            ({"causal": False, "causal_head": True}, {}, "DFlash"),
            ({}, {}, "DFlash"),
        ]
    ):
        folder = write_flat(tmp_path / str(number), model, own, **more)
        config = json.loads((folder / "config.json").read_text())
        assert family_of(config) == title
        assert opened(folder).weights.form.causal == (title == "JetSpec")


def test_embedding_and_head_are_the_targets_own_tensors(tmp_path):
    """Copies of them in the file take no memory; others are the drafter's own."""
    model = make()
    found = network_of(write_flat(tmp_path / "none", model))
    assert found.weights.embedding.data_ptr() == EMBEDDING.data_ptr()
    model.tensors["embed_tokens.weight"] = EMBEDDING.clone()
    model.tensors["lm_head.weight"] = HEAD.clone()
    same = network_of(write_flat(tmp_path / "same", model)).weights
    assert same.embedding.data_ptr() == EMBEDDING.data_ptr()
    model.tensors["lm_head.weight"] = -HEAD
    other = network_of(write_flat(tmp_path / "other", model)).weights
    row = torch.randn(1, HIDDEN)
    torch.testing.assert_close(other.head(row), -same.head(row))


@pytest.mark.parametrize(("facts", "kinds"), [({}, ("block", "jet")), ({"rank": 6}, ("block",))])
def test_a_drafter_with_a_markov_head_serves_no_trees(tmp_path, facts, kinds):
    folder = write_dspark(tmp_path / "it", make(anchored=True, **facts))
    assert reading_of(folder).kinds == kinds


def test_a_head_in_4_bits_is_packed_part_by_part(tmp_path, monkeypatch):
    """The parts are the whole, bit by bit."""
    files = drafter_files(str(write_flat(tmp_path / "drafter", make())), tmp_path)
    shared = TargetTensors(EMBEDDING, CPU, torch.bfloat16, True, HEAD)
    row = torch.randn(3, HIDDEN).bfloat16()
    whole = files.loader(shared).head(VOCABULARY, HIDDEN)(row)
    monkeypatch.setattr("specdemo.models.networks.folders.HEAD_ROWS", 32)
    assert files.loader(shared).head(VOCABULARY, HIDDEN)(row).equal(whole)
    torch.testing.assert_close(whole.float(), row.float() @ HEAD.T, atol=2.5, rtol=0)


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
    know(drafter.target_states, states, 0, 3)
    same(drafter.guess(TEXT[:4]), reference.guess(TEXT[:4]))
    know(drafter.target_states, states, 3, len(TEXT) - 1)
    found, wanted = drafter.guess(TEXT[4:]), reference.guess(TEXT)
    same(found, wanted)
    selector = drafter.weights.markov
    assert selector is not None
    for place, token in enumerate((TEXT[-1], 44, 9)):
        scores = selector.corrected(found[place : place + 1], token, drafter.states[place])[0]
        sayable = scores.isfinite().nonzero().flatten().tolist()
        expected = reference.selected(place, wanted[place], token)
        assert sayable == sorted(expected)
        same(scores[sayable], torch.tensor([expected[one] for one in sayable]))
        assert selector.survival(place, drafter.states[place], token) is None


@pytest.mark.parametrize(
    ("write", "key", "facts", "causal"),
    [
        (write_flat, "is_causal", {"window": 4}, True),
        (write_speculators, "sliding_window_non_causal", {"window": 4}, True),
        (write_speculators, "sliding_window_non_causal", SECOND, False),
    ],
)
def test_window_layers_are_causal_except_in_speculators(tmp_path, write, key, facts, causal):
    """They are causal, but for those of DFlash 2 in the layout of speculators."""
    model = make(**facts, window_causal=causal)
    drafter = opened(write(tmp_path / "it", model, **{key: None}))
    states = states_of(model, len(TEXT))
    same(guessed(drafter, states), Reference(model, EMBEDDING, HEAD, states).guess(TEXT))


def test_dflash_2_under_the_name_of_dflash_is_dflash_2(tmp_path):
    """One server has no other name for it."""
    folder = write_flat(tmp_path / "it", make(**SECOND), architectures=["DFlashDraftModel"])
    assert opened(folder).weights.convolutions
    with pytest.raises(UserError, match="states of 32 numbers, and this target's have 48"):
        reading_of(folder, TargetFacts("tiny", 48, VOCABULARY, 8))


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
    assert markov.words is None
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
