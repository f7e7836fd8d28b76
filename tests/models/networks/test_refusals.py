"""Published drafters that do not fit their target, or that are not computed here, are refused before a pass."""

import math
from functools import partial

import pytest
import tiny_dflash as dflash
import tiny_eagle3 as eagle3
import torch
from drafter_folders import HIDDEN, LAYERS, VOCABULARY, network_of, reading_of
from safetensors.torch import load_file, save_file

from specdemo.config.errors import UserError
from specdemo.models.networks.layouts.family import TargetFacts


def flat(own=None, facts=(), **more):
    """Write a drafter as z-lab does. own, more: replace entries of `dflash_config` and config.json"""
    return lambda folder: dflash.write_flat(folder, dflash.make(**dict(facts)), own, **more)


def speculators(family, facts=(), **more):
    return lambda folder: family.write_speculators(folder, family.make(**dict(facts)), **more)


def dspark(**more):
    model = partial(dflash.make, rank=6, anchored=True)
    return lambda folder: dflash.write_dspark(folder, model(), **more)


LINEAR = {"type": "linear", "factor": math.nan}
CONFIGS = [
    ("no mask_token_id", flat({"mask_token_id": None})),
    ("mask_token_id is 64; allowed: numbers from 0 to 63", flat({"mask_token_id": 64})),
    ("no block_size", flat(block_size=None)),
    ("block_size is 1; allowed: numbers from 2 to 256", flat(block_size=1)),
    ("block_size is 100000; allowed", flat(block_size=100_000)),
    ("block_size is 4.0; allowed", flat({"block_size": 4.0})),
    (r"target_layer_ids is \[-2, 3\]; allowed: .* 0 to 7", flat({"target_layer_ids": [-2, 3]})),
    ("target_layer_ids is 3; allowed", flat({"target_layer_ids": 3})),
    ("fc.weight has the shape .*64. in place of .*96", flat({"target_layer_ids": [1, 2, 3]})),
    ("num_attention_heads is many; allowed", flat(num_attention_heads="many")),
    ("num_key_value_heads is 3; allowed: divisors of", flat(num_key_value_heads=3)),
    ("head_dim is 7; allowed: even numbers", flat(head_dim=7)),
    ("num_hidden_layers is 1000000000; allowed", flat(num_hidden_layers=10**9)),
    ("draft_vocab_size is 65; allowed: numbers from 1 to 64", flat(draft_vocab_size=65)),
    ("rms_norm_eps is nan; allowed", flat(rms_norm_eps=math.nan)),
    ("rope_theta is 0; allowed", flat(rope_theta=0)),
    ("rope_scaling is .*; allowed: an object", flat(rope_scaling=["yarn"])),
    ("rope_scaling is .*; allowed: finite", flat(rope_scaling=LINEAR)),
    ("forget what is far back", flat(sliding_window=8, layer_types=["sliding_attention"])),
    ("partial_rotary_factor is 0.5; allowed: 1", flat(partial_rotary_factor=0.5)),
    ("no conv_kernel_size", flat(architectures=["DFlash2DraftModel"])),
    ("no conv_kernel_size", flat({"selector_rank": 256})),
    ("projector_type is domino; allowed: dflash", flat({"projector_type": "domino"})),
    ("attention_mode is mla; allowed: gqa", flat({"attention_mode": "mla"})),
    ("target_hidden_size is 48; allowed: 32", flat({"target_hidden_size": 48})),
    ("nothing is known of use_swa", flat({"use_swa": True})),
    ("output_multiplier is much; allowed", flat({"output_multiplier": "much"})),
    (
        r"ids is \[2, 9\]; allowed: .* 0 to 8. It was made for owner/made-for-this",
        speculators(dflash, {"reads": (2, 9)}),
    ),
    ("no selector_top_k", flat({"selector_top_k": None}, dflash.SECOND)),
    ("conv_group_size is 5; allowed: divisors of 32", flat({"conv_group_size": 5}, dflash.SECOND)),
    ("shape .* in place of", flat({"conv_kernel_size": 3}, dflash.SECOND)),
    ("shape .* in place of", flat({"selector_rank": 5}, dflash.SECOND)),
    ("selector_top_k is 65; allowed", flat({"selector_top_k": 65}, dflash.SECOND)),
    ("markov_head_type is gated; allowed: vanilla", dspark(markov_head_type="gated")),
    ("no tensor confidence_head", dspark(enable_confidence_head=True)),
    ("no Markov head", dspark(enable_confidence_head=True, markov_rank=0)),
    ("shape .* in place of", dspark(markov_rank=5)),
    ("architectures is .*Gemma4DSparkModel", dspark(architectures=["Gemma4DSparkModel"])),
    (
        "fc.weight has the shape .*64. in place of .*96",
        speculators(eagle3, eagle_aux_hidden_state_layer_ids=[1, 2, 3]),
    ),
]


@pytest.mark.parametrize(("sentence", "write"), CONFIGS)
def test_an_entry_of_a_config_that_is_not_computed_here_is_refused(tmp_path, sentence, write):
    """Each entry of a config is used or refused."""
    with pytest.raises(UserError, match=sentence):
        network_of(write(tmp_path / "drafter"))


NARROW = "states of 32 numbers, and this target's have 48"
SMALL = "vocabulary has 64 tokens, and this target's has 65"
LAYERS_OFF = "layer_ids is .1, 2.; allowed: different whole numbers from 0 to 1"
NAMED = ".*made for owner/made-for-this"
TARGETS = [
    (flat(), NARROW, {"hidden_size": 48}),
    (flat(), SMALL, {"vocabulary": 65}),
    (flat(), "one of 8 layers, and this target has 7", {"layers": 7}),
    (speculators(eagle3), NARROW + NAMED, {"hidden_size": 48}),
    (speculators(eagle3), SMALL + NAMED, {"vocabulary": 65}),
    (speculators(eagle3), LAYERS_OFF + NAMED, {"layers": 1}),
]


@pytest.mark.parametrize(("write", "sentence", "facts"), TARGETS)
def test_a_drafter_of_another_target_is_refused_by_its_config(tmp_path, write, sentence, facts):
    own = {"hidden_size": HIDDEN, "vocabulary": VOCABULARY, "layers": LAYERS}
    target = TargetFacts("tiny", **own | facts)
    with pytest.raises(UserError, match=f"(?s){sentence}"):
        reading_of(write(tmp_path / "drafter"), target, weights=False)


def flat_eagle3(folder):
    return eagle3.write_flat(folder, eagle3.make())


DFLASH = speculators(dflash, {"words": 48})
TENSORS = [
    (DFLASH, "no tensor hidden_norm", lambda t: t.pop("hidden_norm.weight")),
    (DFLASH, "no tensor layers.1.self_attn.q_norm", lambda t: t.pop("layers.1.self_attn.q_norm.weight")),
    (DFLASH, "nothing is known of its tensor layers.2", lambda t: t.update({"layers.2.x": torch.zeros(2)})),
    (DFLASH, r"d2t\[0\] is 64; allowed: numbers from 0 to 63", lambda t: t.update(d2t=torch.full((48,), 64))),
    (DFLASH, "fc.weight is .*nan.*; allowed: finite", lambda t: t["fc.weight"][3].fill_(torch.nan)),
    (DFLASH, "norm.weight is .*inf.*; allowed: finite", lambda t: t["norm.weight"][:1].fill_(torch.inf)),
    (flat_eagle3, "no tensor midlayer.hidden_norm", lambda t: t.pop("midlayer.hidden_norm.weight")),
    (flat_eagle3, "nothing is known of its tensor gate", lambda t: t.update(gate=torch.zeros(2))),
    (flat_eagle3, r"d2t\[24\] is 40; allowed: numbers from -24 to 39", lambda t: t.update(d2t=torch.full((48,), 40))),
    (flat_eagle3, "lm_head.weight is .*nan.*; allowed: finite", lambda t: t["lm_head.weight"][3].fill_(torch.nan)),
    (flat_eagle3, "name different tokens", lambda t: t.update(d2t=torch.zeros(48, dtype=torch.long))),
    (flat_eagle3, "of its tensor mask_hidden", lambda t: t.update(mask_hidden=torch.zeros(1, 1, 64))),
    *(
        (write, sentence, change)
        for write in (DFLASH, flat_eagle3)
        for sentence, change in (
            ("no tensor d2t", lambda t: t.pop("d2t")),
            ("the shape", lambda t: t.update({"norm.weight": torch.ones(31)})),
            ("does not name different", lambda t: t.update(d2t=-torch.arange(48))),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("write", "sentence", "change"), TENSORS)
def test_tensors_that_are_not_what_the_config_says_are_refused(tmp_path, write, sentence, change):
    path = write(tmp_path / "drafter") / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(UserError, match=sentence):
        network_of(path.parent)
