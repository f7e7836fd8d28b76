"""Folders of trained drafters, and published layouts: the same when read back, and others are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drafter_folders import CPU, HIDDEN, LAYERS, kept, reading_of
from drafter_folders import VOCABULARY as WORDS
from safetensors.torch import load_file, save_file
from tiny_dflash import DFlash
from tiny_dflash import Reference as BlockReference
from tiny_eagle3 import EPSILON, HEAD, HEADS, INNER, KV_HEADS, Eagle3, Reference
from transformers import LlamaConfig

from specdemo.cli.parser import main
from specdemo.config.errors import UserError
from specdemo.files.sources import ModelFiles
from specdemo.models.networks.chain import CompactDecoder, CompactModel
from specdemo.models.networks.dflash import DFlashDecoder, DFlashModel
from specdemo.models.networks.folders import (
    EMBEDDING,
    TargetTensors,
    load_compact,
    load_dflash,
    load_state,
)
from specdemo.models.networks.layouts.family import drafter_files
from specdemo.training.block import plan_blocks
from specdemo.training.data import Row
from specdemo.training.networks import DFlashNetwork, Eagle3Network, FeatureNetwork
from specdemo.training.package import (
    Card,
    card_part,
    draft_config,
    package,
    render,
    title,
    write_published,
)

READS = (2, 4, 5)
TEXT = [5, 17, 9, 40, 2, 61, 33, 8]
KEPT = torch.arange(0, WORDS, 2)  # the reduced vocabulary
CONFIG = LlamaConfig(
    architectures=["LlamaForCausalLM"], vocab_size=WORDS, hidden_size=HIDDEN, intermediate_size=INNER,
    num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD,
    rms_norm_eps=EPSILON, tie_word_embeddings=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> ModelFiles:
    """The part of a target that a drafter and its export read."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    CONFIG.save_pretrained(folder)
    torch.manual_seed(5)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    save_file({EMBEDDING: torch.randn(WORDS, HIDDEN).bfloat16()}, folder / "model.safetensors")
    return ModelFiles(folder, "tiny", "")


@pytest.fixture(scope="module")
def embedding(target) -> torch.Tensor:
    return load_file(target.folder / "model.safetensors")[EMBEDDING]


def trained(
    target: ModelFiles, out: Path, kind: str, state: dict[str, torch.Tensor], **facts
) -> Path:
    card = Card("tiny", "bf16", kind, (), len(KEPT), ("prompts",), 0, 0, 0.0, 0)
    package(state, KEPT, target.folder, out / kind, card, facts)
    return out / kind


def feature(target: ModelFiles, out: Path, made: type[FeatureNetwork] = Eagle3Network) -> Path:
    """A feature drafter whose every tensor matters."""
    network = disturbed(made(draft_config(CONFIG, 1), len(READS), torch.empty(0), 1.0))
    form = {"form": "eagle3"} if made is Eagle3Network else {}
    return trained(
        target, out, "feature", network.folded(), reads=list(READS), feedback=True, **form
    )


def block(target: ModelFiles, out: Path, *, causal: bool = False) -> Path:
    """A drafter of the form of DFlash whose every tensor matters."""
    network = disturbed(DFlashNetwork(draft_config(CONFIG, 2), len(READS), torch.empty(0), 63))
    facts = {"form": "dflash", "depth": 3, "mask": 63, "causal": causal}
    kind = "jet" if causal else "block"
    return trained(target, out, kind, network.folded(), reads=list(READS), **facts)


def disturbed(network: Any) -> Any:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            spread = 0.4 if parameter.ndim == 1 else 1.5 / parameter.shape[-1] ** 0.5
            parameter.copy_((parameter.ndim == 1) + spread * torch.randn_like(parameter))
    return network


def read_back(folder: Path, embedding: torch.Tensor, dtype: torch.dtype):
    """Load the drafter by the family of its config."""
    reading = reading_of(folder)
    files = drafter_files(str(folder), folder / "cache")
    return files, reading, reading.load(TargetTensors(embedding, CPU, dtype, four_bit=False))


def test_a_feature_drafter_is_written_as_speculators_has_eagle3(target, embedding, tmp_path):
    """The drafter has the same logits here, read back, and by the format of its tensors."""
    folder = feature(target, tmp_path)
    out = write_published(folder, target, tmp_path / "out", "speculators")
    files, reading, decoder = read_back(out, embedding, torch.bfloat16)
    assert (reading.kinds, reading.reads, files.licence) == (("feature",), READS, "")
    states = 3 * torch.randn(len(TEXT) - 1, len(READS) * HIDDEN)
    here = CompactDecoder(load_compact(folder, TargetTensors(embedding, CPU, four_bit=False)))
    own, other = CompactModel(here, kept(READS, states)), CompactModel(decoder, kept(READS, states))
    for read in (TEXT, [12]):  # the second from its own state; here it has the text's tokens too
        assert torch.equal(own.read(read)[: len(KEPT)], other.read(read))

    tensors = load_file(out / "model.safetensors")
    state = load_state(folder)
    for name, written in {
        "fc.weight": "inject.project.weight",
        "norm.weight": "norm.weight",
        **{name: name for name in state if name.startswith("layers.")},
    }.items():
        assert torch.equal(tensors[name], state[written].bfloat16()), name
    assert (KEPT - torch.arange(len(KEPT))).equal(tensors["d2t"])
    model = Eagle3(
        hidden=HIDDEN, vocabulary=WORDS, words=len(KEPT), reads=READS, norm_output=True, fc_norm=True,
        tensors={name: one.float() if one.is_floating_point() else one for name, one in tensors.items()},
    )  # fmt: skip
    _, _, whole = read_back(out, embedding.float(), torch.float32)
    again = CompactModel(whole, kept(READS, states))
    said = Reference(model, embedding.float(), states)
    assert list(again.words.tokens) == said.tokens() == KEPT.tolist()
    found = torch.stack([again.read(TEXT), again.read([12]), again.read([3])])
    torch.testing.assert_close(found, said.logits([*TEXT, 12, 3])[-3:], rtol=1e-3, atol=1e-3)


def test_the_config_says_all_that_the_layout_names(target, tmp_path):
    write_published(feature(target, tmp_path), target, tmp_path / "out", "speculators")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    (proposal,) = config["speculators_config"].pop("proposal_methods")
    assert set(proposal) == {
        "proposal_type", "speculative_tokens", "verifier_accept_k", "accept_tolerance",
    }  # fmt: skip
    assert config["speculators_config"] == {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "verifier": {"name_or_path": "tiny", "architectures": ["LlamaForCausalLM"]},
    }
    layer = config["transformer_layer_config"]
    assert layer == layer | {
        "model_type": "llama", "intermediate_size": INNER, "rope_theta": 10_000.0, "head_dim": HEAD,
    }  # fmt: skip
    assert config == config | {
        "draft_vocab_size": len(KEPT), "target_hidden_size": HIDDEN, "norm_output": True, "fc_norm": True,
        "eagle_aux_hidden_state_layer_ids": list(READS), "norm_before_residual": False,
        "norm_before_fc": False, "embed_requires_grad": False,
    }  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
def test_a_block_drafter_is_written_as_z_lab_has_dflash(target, embedding, tmp_path, causal):
    """Here, read back, by the format and in training: one computation."""
    folder = block(target, tmp_path, causal=causal)
    out = write_published(folder, target, tmp_path / "out", "dflash")
    files, reading, decoder = read_back(out, embedding, torch.bfloat16)
    assert (reading.kinds, reading.reads) == (("block", "jet"), READS)
    assert (files.config["num_target_layers"], files.config["block_size"]) == (LAYERS, 4)
    states = 3 * torch.randn(len(TEXT) - 1, len(READS) * HIDDEN)
    here = DFlashDecoder(load_dflash(folder, TargetTensors(embedding, CPU, four_bit=False)))
    own, other = (DFlashModel(one, kept(READS, states)).guess(TEXT) for one in (here, decoder))
    assert torch.equal(own, other[:, KEPT])  # read back, it has the whole vocabulary

    tensors = {name: one.float() for name, one in load_file(out / "model.safetensors").items()}
    state, whole = load_state(folder), embedding.float()
    assert {name: one.bfloat16().float().tolist() for name, one in state.items() if name != "word_ids"} == {
        name: one.tolist() for name, one in tensors.items()
    }  # fmt: skip
    model = DFlash(reads=READS, block=4, mask=63, causal=causal, tensors=tensors)
    wanted = BlockReference(model, whole, whole, states).guess(TEXT)
    _, _, exact = read_back(out, whole, torch.float32)
    found = DFlashModel(exact, kept(READS, states)).guess(TEXT)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)

    network = DFlashNetwork(draft_config(CONFIG, 2), len(READS), whole, 63)
    network.unfold(tensors)
    longer = [*TEXT, 1, 2, 3]
    row = Row("x", np.array(longer), len(TEXT) - 1, 0)
    plan = plan_blocks([row], 3, [0], causal=causal, mask=63)
    before = torch.zeros(1, len(longer), states.shape[1])
    before[0, : len(states)] = states
    parts = (torch.from_numpy(part) for part in (plan.token_ids, plan.where, plan.seen))
    with torch.no_grad():
        final = network.read(before, *parts).flatten(0, 1)[torch.from_numpy(plan.here[:3])]
    torch.testing.assert_close(final @ whole.T, wanted, rtol=1e-3, atol=1e-3)
    assert plan.place[:3].tolist() == [1, 2, 3]
    assert plan.there[:3].tolist() == [len(TEXT) - 1, len(TEXT), len(TEXT) + 1]


def above(*to) -> Path:
    """A drafter of our own form on top of a draft model."""
    return trained(*to, "block", {"norm.weight": torch.ones(HIDDEN)}, extends=2, reads=[1])


REFUSED = {
    "own form": ("speculators", lambda *to: feature(*to, made=FeatureNetwork), "kind feature and the form own"),
    "block": ("speculators", above, "is of the kind block"),
    "block of our own form": ("dflash", above, "kind block and the form own"),
    "not a block": ("dflash", feature, "is of the kind feature"),
    "layout": ("gguf", feature, "no layout 'gguf'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_drafter_that_a_layout_cannot_describe_is_refused_and_not_written(target, tmp_path, case):
    layout, make, why = REFUSED[case]
    with pytest.raises(UserError, match=why):
        write_published(make(target, tmp_path), target, tmp_path / "out", layout)
    assert not (tmp_path / "out").exists()


def test_another_target_and_a_folder_with_something_in_it_are_refused(target, tmp_path):
    folder = feature(target, tmp_path)
    other = tmp_path / "other"
    LlamaConfig.from_dict(CONFIG.to_dict() | {"vocab_size": 99}).save_pretrained(other)
    files = ModelFiles(other, "other", "")
    with pytest.raises(UserError, match="not trained for other"):
        write_published(folder, files, tmp_path / "out", "speculators")
    with pytest.raises(UserError, match="something in"):
        write_published(folder, target, tmp_path, "speculators")


def test_the_command_writes_what_runs_here(target, tmp_path, capsys):
    folder = feature(target, tmp_path)
    arguments = ["export-drafter", str(folder), str(tmp_path / "out"), "--layout", "speculators"]
    assert main([*arguments, "--target", str(target.folder)]) == 0
    assert f"--drafter {tmp_path / 'out'}" in capsys.readouterr().err
    assert main(["export-drafter", str(tmp_path), str(tmp_path / "other"), *arguments[3:]]) == 1
    assert "no drafter" in capsys.readouterr().err


CARD = Card(
    target="tiny", precision="nf4", kind="feature", layers=(3,), words=8192, data=("made: 12 (MIT)",),
    tokens_seen=123_456, steps=40, minutes=2.0, seed=7,
    results={"loss": 0.5, "greedy_agreement_2": 0.625, "calibration_error": 0.01, "tokens": 4321},
    recipe={"batch": "4096 tokens"}, losses=((10, 4.0), (20, 2.0), (30, 1.5), (40, 1.25)),
    checks=((20, 2.2), (40, 1.4)), machine="here",
)  # fmt: skip


def test_a_result_has_the_pages_name_at_every_place_of_the_draft():
    agreement = title("greedy_agreement")
    assert title("greedy_agreement_12") == f"{agreement}, token 12"
    assert title("greedy_agreement_all") != f"{agreement}, all"
    assert title("something_else") == "something else"


@pytest.mark.parametrize("kind", card_part("words", "drafters"))
def test_the_readme_fits_every_kind(kind: str):
    text = render(replace(CARD, kind=kind), 3_500_000)
    assert f"# {kind.capitalize()} drafter for tiny" in text
    assert card_part("words", "drafters")[kind].partition("`{target}`")[0] in text
    assert "8,192" in text
    assert "{" not in text
    assert "| same most likely token as the target, greedy text, token 2 | 0.6250 |" in text
    assert "| held-out tokens | 4,321 |" in text
    assert "started as layers 3 of the target" in text


def test_the_readme_gives_only_the_ends_of_the_curve():
    text = render(CARD, 1)
    assert "- training: 4.000 at step 10, 1.250 at step 40" in text
    assert "- held out: 2.200 at step 20, 1.400 at step 40" in text
    assert "1.500" not in text


def test_the_readme_leaves_out_facts_that_the_card_lacks():
    text = render(replace(CARD, layers=(), losses=(), checks=(), results={}), 1)
    assert "started as" not in text
    assert "## Training" not in text
    assert "Not measured." in text
