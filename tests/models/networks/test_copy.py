"""A quantised copy: only its matrices need memory, it is made once, and a pair describes its absence."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.files.progress import silent
from specdemo.models import loading, pair
from specdemo.models.loading import load_model
from specdemo.models.networks import copy as copying
from specdemo.models.networks.copy import make_copy, matrices, quantised_copy
from specdemo.session.loaded import load

IDS = torch.arange(3, 40)[None]


def logits(model):
    with torch.inference_mode():
        return model(IDS).logits.float()


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_everything_but_the_matrices_is_the_target_own(files, precision):
    target = load_model(files, precision, "cpu")
    made = make_copy(target)
    quantised = {f"{path}.weight" for path in matrices(target.model)}
    own = dict(made.model.named_parameters())
    assert len(quantised) == 14  # seven in each of two layers
    for name, tensor in target.model.named_parameters():
        assert (own[name].data_ptr() == tensor.data_ptr()) == (name not in quantised), name
    for name, tensor in target.model.named_buffers():
        assert dict(made.model.named_buffers())[name].data_ptr() == tensor.data_ptr(), name
    assert made.model.lm_head.weight is target.model.get_input_embeddings().weight
    assert {own[name].dtype for name in quantised} == {torch.uint8}


def test_the_copy_is_what_loading_in_4bit_gives(files):
    made = make_copy(load_model(files, "bf16", "cpu"))
    loaded = load_model(files, "nf4", "cpu")
    assert torch.equal(logits(made.model), logits(loaded.model))
    assert made.info == loaded.info
    assert made.vocabulary_size == loaded.vocabulary_size


def test_the_target_stays_unchanged(files):
    target = load_model(files, "fp32", "cpu")
    before = logits(target.model)
    made = make_copy(target)
    assert torch.equal(logits(target.model), before)
    assert not torch.equal(logits(made.model), before)
    assert {type(target.model.get_submodule(path)) for path in matrices(target.model)} == {
        torch.nn.Linear
    }


def test_two_visitors_at_once_share_one_copy(files, monkeypatch):
    shared = quantised_copy(load_model(files, "bf16", "cpu"))
    made, both = [], threading.Barrier(2)
    real = copying.make_copy

    def counted(target):
        made.append(real(target))
        return made[-1]

    monkeypatch.setattr(copying, "make_copy", counted)

    def visit(_number):
        both.wait()
        return shared.network().open(None).model

    with ThreadPoolExecutor(2) as pool:
        opened = list(pool.map(visit, range(2)))
    assert opened[0].decoder is opened[1].decoder is made[0].decoder
    opened[0].read([1, 2, 3])
    assert (opened[0].length, opened[1].length) == (3, 0)
    assert shared.loaded_info() == made[0].info
    assert len(made) == 1


def test_a_copy_that_is_too_big_is_refused_before_memory_is_taken(files, monkeypatch):
    shared = quantised_copy(load_model(files, "bf16", "cpu"))
    with monkeypatch.context() as patch:
        patch.setattr(loading, "free_on", lambda _: 1000)
        patch.setattr(copying, "share", lambda _: pytest.fail("memory was taken"))
        with pytest.raises(UserError, match=r"quantised copy of tiny in nf4 needs .* are free"):
            shared.network()
    assert shared.network().open(None).model.length == 0  # and once there is room, it opens


def test_only_the_matrices_are_counted(files):
    target = load_model(files, "bf16", "cpu")
    weights = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)
    assert quantised_copy(target).memory_bytes == int(weights * 0.5625)


def test_a_copy_is_freed_with_its_target(files):
    shared = quantised_copy(load_model(files, "bf16", "cpu"))
    kept = weakref.ref(shared.network().decoder)
    del shared
    gc.collect()
    assert kept() is None


def loaded_pair(tiny_folder, tmp_path, precision, report=silent, draft="none"):
    models = {"target": str(tiny_folder), "draft": draft, "precision": precision}
    return load(AppSettings(**models, device="cpu", cache_dir=tmp_path), report).pair


def test_a_full_precision_pair_opens_its_copy(tiny_folder, tmp_path):
    stages = []
    loaded = loaded_pair(tiny_folder, tmp_path, "fp32", stages.append)
    assert loaded.missing("copy", "a copy") == ""
    made = loaded.drafts["copy"]
    assert loaded.open_draft("copy", None).model.decoder is made.network().decoder
    assert made.network().decoder is not loaded.target.decoder
    assert made.loaded_info().precision == "nf4"
    assert "NF4" in made.loaded_info().kernel
    assert stages[-1].stage == "warm up"


@pytest.mark.parametrize("precision", ["nf4", "int8"])
def test_a_quantised_target_has_no_copy_for_a_given_reason(tiny_folder, tmp_path, precision):
    loaded = loaded_pair(tiny_folder, tmp_path, precision)
    assert "copy" not in loaded.drafts
    assert loaded.missing("copy", "a copy") == (
        f"The target itself already runs in {precision}; "
        "load it in bf16 or fp32 to draft with a quantised copy."
    )


def test_a_missing_draft_is_a_sentence_and_costs_are_the_target_alone(tiny_folder, tmp_path):
    loaded = loaded_pair(tiny_folder, tmp_path, "fp32")
    assert loaded.missing("draft", "a draft") == "No draft is known for this target."
    assert loaded.costs.draft_step is None
    assert loaded.costs.verify_seconds(1) > 0
    assert loaded.costs.verify[0][0] == 1


def test_a_pair_with_a_draft_misses_nothing_and_knows_its_cost(tiny_folder, tmp_path):
    loaded = loaded_pair(tiny_folder, tmp_path, "fp32", draft=str(tiny_folder))
    assert loaded.missing("draft", "a draft") == ""
    assert loaded.costs.draft_step > 0


def test_costs_that_cannot_be_measured_are_not_hidden(tiny_folder, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no clock")

    monkeypatch.setattr(pair, "pair_costs", fail)
    with pytest.raises(RuntimeError, match="no clock"):
        loaded_pair(tiny_folder, tmp_path, "fp32")
