"""Published EAGLE-3 drafters run as their format defines in each layout; others are refused."""

from pathlib import Path

import pytest
import torch
from drafter_folders import EMBEDDING, VOCABULARY, kept, network_of, same, states_of
from drafter_folders import TEXT as START
from tiny_eagle3 import Reference, make, write_flat, write_speculators

from specdemo.config.errors import UserError
from specdemo.engine.target import Features
from specdemo.models.networks.chain import CompactModel

TEXT = [*START, 8]
DRAFTED = [12, 3, 55]
SPECULATORS = {"normed_residual": True, "qwen": True, "reads": (2, 4, 5), "theta": 1e6}
DEEP = {"layers": 2, "norm_before_fc": True, "norm_output": True}
SPECFORGE = {"fc_norm": True, "norm_output": True, "reads": (2, 6, 8), "own_embedding": True}
LAYOUTS = {
    "speculators": (write_speculators, SPECULATORS),
    "speculators, two layers": (write_speculators, DEEP),
    "SafeAILab": (write_flat, {"reads": (2, 4, 5)}),
    "SpecForge": (write_flat, SPECFORGE),
    "all words": (write_speculators, {"words": VOCABULARY}),
}


def opened(folder: Path, states: torch.Tensor | None = None) -> CompactModel:
    """Open a drafter of a folder with a target that has these states."""
    network = network_of(folder)
    reads = network.weights.reads
    return CompactModel(network, Features(reads) if states is None else kept(reads, states))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_runs_as_its_format_says(tmp_path, layout):
    """Read in two parts, a chain on its own states, and a tree: each as the reference without a cache."""
    write, facts = LAYOUTS[layout]
    model = make(**facts)
    states = states_of(model, len(TEXT) - 1)
    drafter = opened(write(tmp_path / "drafter", model), states)
    reference = Reference(model, EMBEDDING, states)
    assert drafter.decoder.weights.reads == model.reads
    assert list(drafter.words.tokens) == reference.tokens()
    drafter.read(TEXT[:3])
    found = [drafter.read(TEXT[3:]), *(drafter.read([token]) for token in DRAFTED)]
    same(torch.stack(found), reference.logits([*TEXT, *DRAFTED])[-len(found) :])
    rows = drafter.grow([20, 30], [-1, -1])
    below = drafter.grow([31], [1])
    same(rows[:1], reference.logits([*TEXT, *DRAFTED, 20])[-1:])
    same(torch.cat([rows[1:], below]), reference.logits([*TEXT, *DRAFTED, 30, 31])[-2:])


def test_states_that_are_not_named_are_counted_from_both_ends(tmp_path):
    """speculators counts states, SafeAILab the layers before them: the same three of a target of eight layers."""
    model = make(reads=(2, 4, 5))
    one = write_speculators(tmp_path / "one", model, eagle_aux_hidden_state_layer_ids=None)
    two = write_flat(tmp_path / "two", model, eagle_config=None)
    plain = write_flat(tmp_path / "three", model, architectures=["LlamaForCausalLM"])
    for folder in (one, two, plain):
        assert opened(folder).weights.reads == (2, 4, 5)


def test_norm_output_needs_an_explicit_true(tmp_path):
    model = make(reads=(2, 4, 5))
    for said in (None, False, "default"):
        folder = write_flat(tmp_path / str(said), model, norm_output=said)
        assert not opened(folder).weights.feeds_normed


def test_stretched_positions_turn_as_transformers_turns_them(tmp_path):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    scaling = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }  # fmt: skip
    folder = write_flat(tmp_path / "drafter", make(), rope_scaling=scaling)
    cos, _ = opened(folder).decoder._rotary.full(40)
    config = LlamaConfig(head_dim=8, rope_parameters={**scaling, "rope_theta": 1e4})
    wanted, _ = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(40)[None])
    same(cos[:40], wanted[0])
    with pytest.raises(UserError, match="type is dynamic; allowed: default, linear"):
        opened(write_flat(tmp_path / "other", make(), rope_scaling={"type": "dynamic"}))
