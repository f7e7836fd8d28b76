"""MTP layers that come with a target run as their format defines, for that target alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import drafter_for, reference_greedy, run_lane
from safetensors.torch import load_file, save_file
from tiny_mtp import KINDS, LAYERS, Reference, write_target

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.engine.target import Features
from specdemo.models.networks.chain import CompactModel
from specdemo.models.networks.folders import TargetTensors
from specdemo.models.networks.layouts import mtp
from specdemo.models.networks.layouts.family import TargetFacts, drafter_files
from specdemo.models.pair import load_pair
from specdemo.trace.events import Verified
from specdemo.trace.metrics import output_ids

HIDDEN = 32
TEXT = [5, 17, 9, 40, 2, 61, 33, 8]
DRAFTED = [12, 3, 55]


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """A folder of each kind."""
    root = tmp_path_factory.mktemp("targets")
    return {kind: write_target(root / kind, kind) for kind in KINDS}


def facts(folder: Path, **other: int) -> TargetFacts:
    config = json.loads((folder / "config.json").read_text())
    sizes = {
        "hidden_size": config["hidden_size"],
        "vocabulary": config["vocab_size"],
        "layers": config["num_hidden_layers"],
    }
    return TargetFacts("tiny", **sizes | other)


def felt() -> torch.Tensor:
    """(tokens, H): the target's states before the pending token, after its last norm."""
    generator = torch.Generator().manual_seed(4)
    return torch.randn(len(TEXT) - 1, HIDDEN, generator=generator)


def opened(folder: Path, states: torch.Tensor | None = None) -> CompactModel:
    """Open the layer of a folder, in float32, with a target that has these states."""
    files = drafter_files(str(folder), folder / "cache")
    reading = mtp.read(files, facts(folder))
    assert reading.reads == (LAYERS,)
    tensors = load_file(folder / "model.safetensors")
    embedding, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    features = Features(reading.reads)
    if states is not None:
        features.write(0, [states])
        features.gather(range(len(states)))
    shared = TargetTensors(
        embedding, torch.device("cpu"), torch.float32, four_bit=False, output=head
    )
    return CompactModel(reading.load(shared), features)


def test_the_layer_of_glm_computes_what_its_format_says(targets):
    """Read in two parts, a chain on its own states, and a tree: each as the reference without a cache."""
    folder = targets["glm4_moe"]
    states = felt()
    drafter, reference = opened(folder, states), Reference(folder, states)
    drafter.read(TEXT[:3])
    found = [drafter.read(TEXT[3:]), *(drafter.read([token]) for token in DRAFTED)]
    same(torch.stack(found), reference.logits([*TEXT, *DRAFTED])[-len(found) :])
    rows = drafter.grow([20, 30], [-1, -1])
    below = drafter.grow([31], [1])
    same(rows[:1], reference.logits([*TEXT, *DRAFTED, 20])[-1:])
    same(torch.cat([rows[1:], below]), reference.logits([*TEXT, *DRAFTED, 30, 31])[-2:])


@pytest.mark.parametrize("kind", KINDS)
def test_the_layer_of_each_kind_computes_what_transformers_does(targets, kind):
    """Also one with a sliding window, and one of compressed keys."""
    from transformers import AutoModelForCausalLM
    from transformers.modeling_layers import MtpModel

    folder = targets[kind]
    main = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    main._keys_to_ignore_on_load_unexpected = [r"^mtp\.", rf"model\.layers\.{LAYERS}\."]
    theirs = MtpModel.from_pretrained(main).eval()
    states = felt()
    with torch.no_grad():
        output = theirs.forward_layer(
            0,
            states[None],
            torch.arange(1, len(TEXT))[None],
            None,
            input_ids=torch.tensor([TEXT[1:]]),
        )
        wanted = main.lm_head(output)[0, -1]
    drafter = opened(folder, states)
    drafter.read(TEXT[:4])
    same(drafter.read(TEXT[4:]), wanted)


TRAPS = {
    "embedding first": {"embedding_first": False},
    "enorm": {"embedding_normed": False},
    "hnorm, over states behind the last norm": {"state_normed": False},
    "what is fed back is behind shared_head.norm": {"feeds_normed": False},
    "the text's first token": {"skips_first": False},
    "embedding and head are the target's": {"own_head": True},
    "half of a head turns": {"half_turned": False},
}


@pytest.fixture(scope="module")
def said(targets):
    """Logits of the layer of GLM after the text and one drafted token."""
    drafter = opened(targets["glm4_moe"], felt())
    drafter.read(TEXT)
    return drafter.read(DRAFTED[:1])


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_makes_a_difference(targets, said, trap):
    """A reader that ignores one of these computes something else, which the tests above would find."""
    reference = Reference(targets["glm4_moe"], felt(), **TRAPS[trap])
    ignored = reference.logits([*TEXT, DRAFTED[0]])[-1]
    assert (said - ignored).abs().max() > 0.05


def test_a_target_drafts_for_itself_what_transformers_writes(targets, tmp_path):
    """Chain and tree, greedy, with the layer in its own files."""
    from transformers import AutoModelForCausalLM

    folder = targets["glm4_moe"]
    settings = AppSettings(
        target=str(folder), drafter=str(folder), precision="fp32", device="cpu", cache_dir=tmp_path
    )
    said = []
    pair = load_pair(settings, lambda report: said.append(report.detail))
    assert any("drafter glm4_moe (MTP, licence" in (one or "") for one in said)
    assert pair.reads == (LAYERS,)
    info = pair.trained["feature"].info
    tensors = load_file(folder / "model.safetensors")
    begin = f"model.layers.{LAYERS}."
    own = {name: one for name, one in tensors.items() if name.startswith(begin)}
    repeated = sum(own[f"{begin}{name}"].numel() for name in mtp.SHARED)
    assert info.parameters == sum(one.numel() for one in own.values()) - repeated
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = [5, 6, 7, 5, 6, 7, 5, 6]
    for method in ("feature", "feature_tree"):
        target = pair.open_target()
        reader = pair.open_trained("feature", target)
        drafter = drafter_for(
            method, target, vocabulary=pair.vocabulary_size, target=target, policy="constant", lookahead=3,
            published=lambda _words, _features, reader=reader: {"feature": lambda: reader},
        )  # fmt: skip
        events = run_lane(None, drafter, prompt, target=target, max_new_tokens=12)
        assert output_ids(events) == reference_greedy(reference, prompt, 12)
        assert any(event.nodes for event in events if isinstance(event, Verified))


WRONG_TARGETS = {
    "states of 32 numbers, and this target's have 48": {"hidden_size": 48},
    "vocabulary of .* tokens, and this target has 65": {"vocabulary": 65},
    "stands behind 2 layers, and this target has 3": {"layers": 3},
}


@pytest.mark.parametrize("sentence", WRONG_TARGETS)
def test_the_layer_of_another_target_is_refused(targets, tmp_path, sentence):
    folder = targets["glm4_moe"]
    files = drafter_files(str(folder), tmp_path)
    with pytest.raises(UserError, match=sentence):
        mtp.read(files, facts(folder, **WRONG_TARGETS[sentence]))


def changed(folder: Path, to: Path, said: dict, change) -> Path:
    """A copy with another config and other tensors."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text()) | said
    (to / "config.json").write_text(json.dumps(config))
    path = to / "model.safetensors"
    tensors = load_file(path)
    if change:
        change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    return to


BEGIN = f"model.layers.{LAYERS}."


@pytest.mark.parametrize(
    ("sentence", "said", "change"),
    [
        ("layers of step3 are not computed here", {"model_type": "step3"}, None),
        ("it has 3 MTP layers", {"num_nextn_predict_layers": 3}, None),
        ("quantised", {"quantization_config": {"quant_method": "fp8"}}, None),
        ("no tensor model.layers.2.eh_proj", {}, lambda t: t.pop(f"{BEGIN}eh_proj.weight")),
        ("eh_proj.weight is .*nan.*; allowed: finite", {}, lambda t: t[f"{BEGIN}eh_proj.weight"].fill_(torch.nan)),
        ("quantised", {}, lambda t: t.update({f"{BEGIN}mlp.up_proj.weight_scale_inv": torch.ones(2)})),
        ("is not as its config.json says", {}, lambda t: t.pop(f"{BEGIN}self_attn.q_norm.weight")),
        ("is not as its config.json says", {}, lambda t: t.update({f"{BEGIN}odd.weight": torch.ones(2)})),
    ],
)  # fmt: skip
def test_what_is_not_computed_here_is_refused(targets, tmp_path, sentence, said, change):
    folder = changed(targets["glm4_moe"], tmp_path / "it", said, change)
    with pytest.raises(UserError, match=sentence):
        opened(folder)


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), wanted.float(), atol=2e-4, rtol=2e-4)
