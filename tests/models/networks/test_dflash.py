"""Published DFlash, JetSpec, DFlash 2 and DSpark drafters run as their format defines in each layout; others are refused."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch
from passes import in_one_pass
from safetensors.torch import load_file, save_file
from tiny_dflash import DFlash, Reference, make, write_dspark, write_flat, write_speculators

from specdemo.config.errors import UserError
from specdemo.engine.target import Features
from specdemo.models.networks.dflash import DFlashDecoder, DFlashModel
from specdemo.models.networks.folders import TargetTensors
from specdemo.models.networks.layouts import dflash
from specdemo.models.networks.layouts.families import DRAFTER_FAMILIES
from specdemo.models.networks.layouts.family import TargetFacts, drafter_files, loader_of

HIDDEN, VOCABULARY, LAYERS = 32, 64, 8
TARGET = TargetFacts("tiny", HIDDEN, VOCABULARY, LAYERS)
TEXT = [5, 17, 9, 40, 2, 61, 33]
EMBEDDING, HEAD = torch.randn(2, VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(9))
SECOND = {"taps": 2, "chosen": 6, "window": 4}


def states_of(model: DFlash, tokens: int) -> torch.Tensor:
    """(tokens, reads x H) hidden states of the target."""
    generator = torch.Generator().manual_seed(4)
    return 3 * torch.randn(tokens, len(model.reads) * HIDDEN, generator=generator)


def decoder(folder: Path) -> DFlashDecoder:
    """Open a drafter folder in float32."""
    files = drafter_files(str(folder), folder / "cache")
    (family,) = [one for one in DRAFTER_FAMILIES if one.takes(files.config)]
    reading = family.read(files, TARGET)
    found = reading.load(TargetTensors(EMBEDDING, torch.device("cpu"), torch.float32, False, HEAD))
    assert reading.kinds == (("block",) if found.weights.markov else ("block", "jet"))
    assert isinstance(found, DFlashDecoder)
    return found


def opened(folder: Path) -> DFlashModel:
    """A conversation whose target has read nothing."""
    found = decoder(folder)
    return DFlashModel(found, Features(found.weights.reads))


def know(drafter: DFlashModel, states: torch.Tensor, begin: int, end: int) -> None:
    """The target has read tokens."""
    drafter.features.rollback(begin)
    drafter.features.write(begin, list(states[begin:end].split(HIDDEN, dim=-1)))
    drafter.features.gather(range(end - begin))


def guessed(drafter: DFlashModel, states: torch.Tensor) -> torch.Tensor:
    """Draft after the whole text, read in one pass."""
    know(drafter, states, 0, len(TEXT) - 1)
    return drafter.guess(TEXT)


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), wanted.float(), atol=2e-4, rtol=2e-4)


COMMITTED = [12, 3, 55]
Z_LAB = {"theta": 1e6}
SCALED = {"embedding_scale": 3.0, "multiplier": 0.25, "cap": 2.0, "layers": 1}
JETSPEC = {"causal": True}
SPECULATORS = {"words": 48, "reads": (2, 4, 5)}
ANCHORED = {"anchored": True}
LAYOUTS = {
    "z-lab": (write_flat, Z_LAB),
    "z-lab, scaled": (write_flat, SCALED),
    "JetSpec": (write_flat, JETSPEC),
    "speculators": (write_speculators, SPECULATORS),
    "speculators, from the anchor": (write_speculators, ANCHORED),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_runs_as_its_format_says(tmp_path, layout):
    """A prompt in chunks, a step that commits three tokens, and another text from the middle on: as without a cache."""
    write, facts = LAYOUTS[layout]
    model, longer = make(**facts), [*TEXT, *COMMITTED]
    states = states_of(model, len(longer))
    drafter = opened(write(tmp_path / "drafter", model))
    reference = Reference(model, EMBEDDING, HEAD, states)
    assert drafter.weights.reads == model.reads
    assert list(drafter.words.tokens) == reference.tokens()
    drafter.decoder.chunk = 3
    know(drafter, states, 0, len(TEXT) - 1)
    drafter.read(TEXT[:-1])
    same(drafter.guess(TEXT[-1:]), reference.guess(TEXT))
    assert drafter.length == len(TEXT)
    know(drafter, states, len(TEXT) - 1, len(longer) - 1)
    same(drafter.guess(COMMITTED), reference.guess(longer))
    assert len(drafter.states) == drafter.weights.depth == model.block - (not model.anchored)
    drafter.rollback(4)
    other = [*TEXT[:4], 30, 31]
    states = torch.cat([states[:4], -states[4:]])
    know(drafter, states, 4, len(other) - 1)
    same(
        drafter.guess(other[4:]),
        Reference(model, EMBEDDING, HEAD, states).guess(other),
    )


@pytest.mark.parametrize("facts", [JETSPEC, SECOND])
def test_blocks_of_several_conversations_are_one_pass(tmp_path, facts):
    """Texts of other lengths, and one that is only read. No block sees another."""
    model = make(**facts)
    states = states_of(model, 9)
    found = decoder(write_flat(tmp_path / "drafter", model))
    drafters = [DFlashModel(found, Features(model.reads)) for _ in range(3)]
    works = []
    for drafter, length in zip(drafters, (7, 3, 6), strict=True):
        know(drafter, states, 0, length - 1)
        works.append(partial(drafter.read if length == 6 else drafter.guess, TEXT[:length]))
    results = in_one_pass(works)
    reference = Reference(model, EMBEDDING, HEAD, states)
    for logits, length in zip(results, (7, 3), strict=False):
        same(logits, reference.guess(TEXT[:length]))
    know(drafters[2], states, 5, 6)
    same(drafters[2].guess([7]), reference.guess([*TEXT[:6], 7]))


TRAPS = {
    "states by the layers that give them": (write_flat, Z_LAB, {}, {"shifted": True}),
    "the mask's id": (write_flat, Z_LAB, {"mask": 7}, {}),
    "a block sees itself both ways": (write_flat, Z_LAB, {"causal": True}, {}),
    "a causal block": (write_flat, JETSPEC, {"causal": False}, {}),
    "the block begins at the pending token": (write_flat, Z_LAB, {"begins": 1}, {}),
    "norms of queries and keys": (write_flat, Z_LAB, {"norms": False}, {}),
    "norm of mixed states": (write_flat, Z_LAB, {"mixed_norm": False}, {}),
    "a layer's norm is the block's": (write_flat, Z_LAB, {"text_norm": True}, {}),
    "the target's head": (write_flat, Z_LAB, {"head_is_embedding": True}, {}),
    "rope_theta": (write_flat, Z_LAB, {"theta": 1e4}, {}),
    "input_embedding_scale": (write_flat, SCALED, {"embedding_scale": 1.0}, {}),
    "output_multiplier": (write_flat, SCALED, {"multiplier": 1.0}, {}),
    "final_logit_softcapping": (write_flat, SCALED, {"cap": 0.0}, {}),
    "block_size": (write_flat, Z_LAB, {"block": 5}, {}),
    "sample_from_anchor": (write_speculators, ANCHORED, {"anchored": False}, {}),
    "what goes in is convolved": (write_flat, SECOND, {"convolves": (False, True)}, {}),
    "what comes out is convolved": (write_flat, SECOND, {"convolves": (True, False)}, {}),
    "kernels depend on the place": (write_flat, SECOND, {"dynamic": False}, {}),
    "kernels of what comes out, too": (write_flat, SECOND, {"from_input": False}, {}),
    "kernels are written tap by tap": (write_flat, SECOND, {"tap_first": False}, {}),
    "layers forget what is far back": (write_flat, SECOND, {"window": 0}, {}),
    "a block sees all of itself": (write_flat, SECOND, {"window_causal": True}, {}),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_makes_a_difference(tmp_path, trap):
    """A reader that ignores one of these computes something else, which the test above would find."""
    write, facts, wrong, other = TRAPS[trap]
    model = make(**facts)
    states = states_of(model, len(TEXT))
    found = guessed(opened(write(tmp_path / "drafter", model)), states)
    same(found, Reference(model, EMBEDDING, HEAD, states).guess(TEXT))
    read = -states if "shifted" in other else states  # layers of another kind
    ignored = Reference(model, EMBEDDING, HEAD, read, **wrong).guess(TEXT)
    places = min(len(found), len(ignored))
    assert (found[:places] - ignored[:places]).abs().max() > 0.05


def test_states_are_named_by_layers_or_counted_from_both_ends(tmp_path):
    """speculators counts states, the others the layers before them; unnamed ones are spread over the target."""
    three = make(reads=(2, 4, 6), layers=3)
    for number, own in enumerate(({}, {"target_layer_ids": None})):
        folder = write_flat(tmp_path / str(number), three, own)
        assert opened(folder).weights.reads == (2, 4, 6)
    one = make(reads=(5,), layers=1)
    folder = write_flat(tmp_path / "one", one, {"target_layer_ids": None})
    assert opened(folder).weights.reads == (5,)
    with pytest.raises(UserError, match="no aux_hidden_state_layer_ids"):
        opened(write_speculators(tmp_path / "two", three, aux_hidden_state_layer_ids=None))


def test_a_block_size_within_dflash_config_counts(tmp_path):
    folder = write_flat(tmp_path / "drafter", make(), {"block_size": 5}, block_size=None)
    assert opened(folder).weights.rows == 5


def test_causal_is_said_in_three_ways(tmp_path):
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
        assert [one.title for one in DRAFTER_FAMILIES if one.takes(config)] == [title]
        assert opened(folder).weights.causal == (title == "JetSpec")


def test_embedding_and_head_are_the_targets_own_tensors(tmp_path):
    """Copies of them in the file take no memory; others are the drafter's own."""
    model = make()
    found = decoder(write_flat(tmp_path / "none", model))
    assert found.weights.embedding.data_ptr() == EMBEDDING.data_ptr()
    model.tensors["embed_tokens.weight"] = EMBEDDING.clone()
    model.tensors["lm_head.weight"] = HEAD.clone()
    same = decoder(write_flat(tmp_path / "same", model)).weights
    assert same.embedding.data_ptr() == EMBEDDING.data_ptr()
    model.tensors["lm_head.weight"] = -HEAD
    other = decoder(write_flat(tmp_path / "other", model)).weights
    row = torch.randn(1, HIDDEN)
    torch.testing.assert_close(other.head(row), -same.head(row))


def test_a_head_in_4_bits_is_packed_part_by_part(tmp_path, monkeypatch):
    """The parts are the whole, bit by bit."""
    files = drafter_files(str(write_flat(tmp_path / "drafter", make())), tmp_path)
    shared = TargetTensors(EMBEDDING, torch.device("cpu"), torch.bfloat16, True, HEAD)
    row = torch.randn(3, HIDDEN).bfloat16()
    whole = loader_of(files, shared).head()(row)
    monkeypatch.setattr("specdemo.models.networks.folders.HEAD_ROWS", 32)
    assert loader_of(files, shared).head()(row).equal(whole)
    torch.testing.assert_close(whole.float(), row.float() @ HEAD.T, atol=2.5, rtol=0)


WRONG_TARGETS = {
    "states of 32 numbers, and this target's have 48": {"hidden_size": 48},
    "vocabulary has 64 tokens, and this target's has 65": {"vocabulary": 65},
    "one of 8 layers, and this target has 7": {"layers": 7},
}


@pytest.mark.parametrize("sentence", WRONG_TARGETS)
def test_a_drafter_of_another_target_is_refused(tmp_path, sentence):
    files = drafter_files(str(write_flat(tmp_path / "drafter", make())), tmp_path)
    facts = {"hidden_size": HIDDEN, "vocabulary": VOCABULARY, "layers": LAYERS}
    with pytest.raises(UserError, match=sentence):
        dflash.read(files, TargetFacts("tiny", **facts | WRONG_TARGETS[sentence]))


def test_states_that_a_target_has_not_are_refused(tmp_path):
    folder = write_speculators(tmp_path / "drafter", make(reads=(2, 9)))
    with pytest.raises(
        UserError, match=r"ids is \[2, 9\]; allowed: .* 0 to 8. It was made for owner/made-for-this"
    ):
        opened(folder)
    folder = write_flat(tmp_path / "other", make(), {"target_layer_ids": [1, 2, 3]})
    with pytest.raises(UserError, match="mixes 64 numbers of states, and the 3 that it names"):
        opened(folder)


@pytest.mark.parametrize(
    ("sentence", "own", "more"),
    [
        ("no mask_token_id", {"mask_token_id": None}, {}),
        ("mask_token_id is 64; allowed: numbers from 0 to 63", {"mask_token_id": 64}, {}),
        ("no block_size", {}, {"block_size": None}),
        ("block_size is 1; allowed: numbers from 2 to 256", {}, {"block_size": 1}),
        ("block_size is 100000; allowed", {}, {"block_size": 100_000}),
        ("block_size is 4.0; allowed", {"block_size": 4.0}, {}),
        (r"target_layer_ids is \[-2, 3\]; allowed: .* 0 to 7", {"target_layer_ids": [-2, 3]}, {}),
        ("target_layer_ids is 3; allowed", {"target_layer_ids": 3}, {}),
        ("num_attention_heads is many; allowed", {}, {"num_attention_heads": "many"}),
        ("num_key_value_heads is 3; allowed: divisors of", {}, {"num_key_value_heads": 3}),
        ("head_dim is 7; allowed: even numbers", {}, {"head_dim": 7}),
        ("num_hidden_layers is 1000000000; allowed", {}, {"num_hidden_layers": 10**9}),
        ("draft_vocab_size is 65; allowed: numbers from 1 to 64", {}, {"draft_vocab_size": 65}),
        ("rms_norm_eps is nan; allowed", {}, {"rms_norm_eps": math.nan}),
        ("rope_theta is 0; allowed", {}, {"rope_theta": 0}),
        ("rope_scaling is .*; allowed: an object", {}, {"rope_scaling": ["yarn"]}),
        (
            "rope_scaling is .*; allowed: finite",
            {},
            {"rope_scaling": {"type": "linear", "factor": math.nan}},
        ),
        (
            "forget what is far back",
            {},
            {"sliding_window": 8, "layer_types": ["sliding_attention"]},
        ),
        ("partial_rotary_factor is 0.5; allowed: 1", {}, {"partial_rotary_factor": 0.5}),
        ("no conv_kernel_size", {}, {"architectures": ["DFlash2DraftModel"]}),
        ("no conv_kernel_size", {"selector_rank": 256}, {}),
        ("projector_type is domino; allowed: dflash", {"projector_type": "domino"}, {}),
        ("attention_mode is mla; allowed: gqa", {"attention_mode": "mla"}, {}),
        ("target_hidden_size is 48; allowed: 32", {"target_hidden_size": 48}, {}),
        ("nothing is known of use_swa", {"use_swa": True}, {}),
        ("output_multiplier is much; allowed", {"output_multiplier": "much"}, {}),
    ],
)
def test_what_is_not_computed_here_is_refused(tmp_path, sentence, own, more):
    """Each entry of a config is used or refused."""
    with pytest.raises(UserError, match=sentence):
        opened(write_flat(tmp_path / "drafter", make(), own, **more))


@pytest.mark.parametrize(
    ("sentence", "change"),
    [
        ("no tensor hidden_norm", lambda t: t.pop("hidden_norm.weight")),
        ("no tensor layers.1.self_attn.q_norm", lambda t: t.pop("layers.1.self_attn.q_norm.weight")),
        ("no tensor d2t", lambda t: t.pop("d2t")),
        ("nothing is known of its tensor layers.2", lambda t: t.update({"layers.2.x": torch.zeros(2)})),
        ("the shape", lambda t: t.update({"norm.weight": torch.ones(31)})),
        ("does not name different", lambda t: t.update(d2t=-torch.arange(48))),
        (r"d2t\[0\] is 64; allowed: numbers from 0 to 63", lambda t: t.update(d2t=torch.full((48,), 64))),
        ("fc.weight is .*nan.*; allowed: finite", lambda t: t["fc.weight"][3].fill_(torch.nan)),
        ("norm.weight is .*inf.*; allowed: finite", lambda t: t["norm.weight"][:1].fill_(torch.inf)),
    ],
)  # fmt: skip
def test_tensors_that_are_not_what_the_config_says_are_refused(tmp_path, sentence, change):
    folder = write_speculators(tmp_path / "drafter", make(words=48))
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UserError, match=sentence):
        opened(folder)


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
