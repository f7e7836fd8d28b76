"""Published P-EAGLE drafters: what runs is what the format says, in each layout, and others are refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_eagle3 import Reference, make, write_flat, write_speculators

from specdemo.config.errors import UserError
from specdemo.engine.features import Features
from specdemo.engine.passes import answered
from specdemo.engine.prefix import FeatureReader
from specdemo.models.networks.compact import CompactModel
from specdemo.models.networks.layouts import eagle3, peagle
from specdemo.models.networks.layouts.family import Lent, TargetFacts
from specdemo.models.networks.layouts.source import drafter_files

HIDDEN, VOCABULARY, LAYERS = 32, 64, 8
TARGET = TargetFacts("tiny", HIDDEN, VOCABULARY, LAYERS)
TEXT = [5, 17, 9, 40, 2, 61, 33, 8]
EMBEDDING = torch.randn(VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(9))

SPECULATORS = {
    "layers": 2, "normed_residual": True, "qwen": True, "reads": (2, 4, 5), "theta": 1e6, "places": 4,
}  # fmt: skip
SPECFORGE = {"layers": 2, "fc_norm": True, "reads": (2, 4, 5), "places": 3}
BEHIND = {"norm_before_fc": True, "places": 3}
LAYOUTS = {
    "speculators": (write_speculators, SPECULATORS),
    "speculators, norm_before_fc": (write_speculators, BEHIND),
    "NeMo, SpecForge": (write_flat, SPECFORGE),
}


def states_of(count: int) -> torch.Tensor:
    """(tokens, reads x H): what the target felt before the pending token."""
    generator = torch.Generator().manual_seed(4)
    return 3 * torch.randn(len(TEXT) - 1, count * HIDDEN, generator=generator)


def opened(folder: Path, states: torch.Tensor | None = None) -> FeatureReader:
    """A drafter of a folder, in float32, beside a target that has these states."""
    files = drafter_files(str(folder), folder / "cache")
    reading = peagle.read(files, TARGET)
    lent = Lent(EMBEDDING, torch.device("cpu"), torch.float32, four_bit=False)
    features = Features(reading.reads)
    if states is not None:
        features.write(0, list(states.split(HIDDEN, dim=-1)))
        features.gather(range(len(states)))
    return FeatureReader(CompactModel(reading.load(lent), features))


def written(folder: Path, layout: str):
    """A model, its folder and the states of its target."""
    write, facts = LAYOUTS[layout]
    model = make(**facts)
    return model, write(folder / "drafter", model), states_of(len(model.reads))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_guesses_as_its_format_says(tmp_path, layout):
    """A block after one text, then after a longer and after another: what stood for places is never part of a text."""
    model, folder, states = written(tmp_path, layout)
    drafter, reference = opened(folder, states), Reference(model, EMBEDDING, states)
    assert drafter.model.weights.depth == model.places
    for text in (TEXT[:3], TEXT, [*TEXT[:5], 7]):
        drafter.follow(text)
        same(drafter.block_after(text), reference.guess(text))


def test_a_text_is_read_ahead_as_one_whose_end_guesses(tmp_path):
    model, folder, states = written(tmp_path, "speculators")
    drafter = opened(folder, states)
    drafter.prepare(TEXT[:6])
    found = drafter.block_after(TEXT)
    same(found, Reference(model, EMBEDDING, states).guess(TEXT))


TRAPS = {
    "the token of a mask": ("speculators", {"mask": 3}),
    "mask_hidden": ("speculators", {"masks_feel": False}),
    "fc_norm, of mask_hidden too": ("NeMo, SpecForge", {"fc_norm": False}),
    "norm_before_fc, of mask_hidden too": ("speculators, norm_before_fc", {"norm_before_fc": False}),
    "positions of masks": ("speculators", {"masks_move": False}),
    "masks see those before them": ("NeMo, SpecForge", {"masks_meet": False}),
    "norm_before_residual": ("speculators", {"normed_residual": False}),
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_makes_a_difference(tmp_path, trap):
    """Who ignores one of these computes something else in the last place, which the test above would find."""
    layout, wrong = TRAPS[trap]
    model, folder, states = written(tmp_path, layout)
    found = opened(folder, states).block_after(TEXT)
    ignored = Reference(model, EMBEDDING, states, **wrong).guess(TEXT)
    assert (found[-1] - ignored[-1]).abs().max() > 0.05


def test_the_mask_and_the_places_have_several_names(tmp_path):
    """A token by any name makes an EAGLE-3 config one of P-EAGLE; eight places where none are said."""
    model = make(places=3)
    for name in eagle3.MASK_TOKENS:
        said = {"mask_token_id": None, "num_depths": None, name: 7}
        folder = write_flat(tmp_path / name, model, **said)
        config = json.loads((folder / "config.json").read_text())
        assert peagle.takes(config)
        assert not eagle3.takes(config)
        weights = opened(folder).model.weights
        assert (weights.masked.token, weights.depth) == (7, 8)
    plain = json.loads((write_flat(tmp_path / "plain", make()) / "config.json").read_text())
    assert eagle3.takes(plain)
    assert not peagle.takes(plain)
    without = make(places=3)
    without.tensors["mask_hidden"] = without.tensors["mask_hidden"][0]
    same(
        opened(write_flat(tmp_path / "two", without)).model.weights.masked.state,
        opened(write_flat(tmp_path / "three", model)).model.weights.masked.state,
    )


WRONG_TARGETS = {
    "states of 32 numbers, and this target's have 48": {"hidden_size": 48},
    "vocabulary of 64 tokens, and this target has 65": {"vocabulary": 65},
    "reads the states 1, 2, and this target has those from 0 to 1": {"layers": 1},
}


@pytest.mark.parametrize("sentence", WRONG_TARGETS)
def test_a_drafter_of_another_target_is_refused(tmp_path, sentence):
    files = drafter_files(str(write_speculators(tmp_path / "one", make(places=3))), tmp_path)
    facts = {"hidden_size": HIDDEN, "vocabulary": VOCABULARY, "layers": LAYERS}
    with pytest.raises(UserError, match=sentence) as refused:
        peagle.read(files, TargetFacts("tiny", **facts | WRONG_TARGETS[sentence]))
    assert "made for owner/made-for-this" in str(refused.value)


@pytest.mark.parametrize(
    ("sentence", "said", "change"),
    [
        ("no tensor mask_hidden", {}, lambda t: t.pop("mask_hidden")),
        ("the shape", {}, lambda t: t.update(mask_hidden=torch.zeros(1, 1, 32))),
        ("is no token of its vocabulary", {"mask_token_id": 64}, None),
        ("is no token of its vocabulary", {"mask_token_id": "many"}, None),
        ("its config.json has no num_depths", {"num_depths": -1}, None),
    ],
)  # fmt: skip
def test_files_that_are_not_what_the_config_says_are_refused(tmp_path, sentence, said, change):
    folder = write_flat(tmp_path / "drafter", make(places=3), **said)
    if change:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UserError, match=sentence):
        opened(folder)


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), wanted.float(), atol=2e-4, rtol=2e-4)
