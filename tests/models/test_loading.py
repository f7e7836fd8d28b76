"""Every precision runs on the CPU; a model that cannot be loaded gives a message."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_files import make_tiny_model, make_tiny_tokenizer

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.files.folder import count_parameters
from specdemo.files.sources import ModelFiles, resolve
from specdemo.models import loading, memory, pair
from specdemo.models.loading import load_model
from specdemo.models.memory import Way, Weights
from specdemo.models.networks.folders import read_tensor


@pytest.fixture
def altered(tmp_path):
    """A function that makes a model folder with other weights and another config. change: changes the weights"""

    def make(change=len, **config):
        folder = make_tiny_model(tmp_path / "model")
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        return ModelFiles(folder, "tiny", "")

    return make


@pytest.mark.parametrize("precision", ["nf4", "int8", "bf16", "fp32"])
def test_every_precision_stays_near_the_original(files, precision):
    stages = []
    loaded = load_model(files, precision, "cpu", lambda report: stages.append(report.stage))
    ids = torch.arange(3, 30)[None]
    with torch.no_grad():
        given = loaded.model(ids).logits.float()
        wanted = load_model(files, "fp32", "cpu").model(ids).logits
    assert torch.nn.functional.cosine_similarity(given, wanted, dim=-1).min() > 0.97
    assert stages[-1] == "warm up"
    assert loaded.info.precision == precision
    assert loaded.info.revision == "r1"
    assert loaded.info.kernel
    assert loaded.info.parameters == count_parameters(files.folder, "tiny")
    assert precision != "fp32" or loaded.info.parameters == loaded.model.num_parameters()
    assert loaded.vocabulary_size == loaded.model.config.vocab_size
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())


def test_a_second_quantisation_is_named(files):
    for precision in ("nf4", "bf16"):
        kernel = load_model(replace(files, stored="Q4_K_M"), precision, "cpu").info.kernel
        assert kernel.startswith("Q4_K_M quantised a second time: ") == (precision == "nf4")


@pytest.mark.parametrize("precision", ["nf4", "int8", "bf16", "fp32"])
def test_the_whole_file_is_read_beside_an_older_save_in_parts(tmp_path, precision):
    folder = make_tiny_model(tmp_path / "model")
    before = load_file(folder / "model.safetensors")
    older = {name: torch.zeros_like(weight) for name, weight in before.items()}
    save_file(older, folder / "model-00001-of-00001.safetensors", {"format": "pt"})
    index = {"weight_map": dict.fromkeys(older, "model-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    pack_as = loading.pack_as(precision, "cpu")
    files = resolve(folder, tmp_path / "cache", pack_as=pack_as)
    model = load_model(files, precision, "cpu").model
    kept = model.get_input_embeddings().weight.float()
    assert torch.allclose(kept, before["model.embed_tokens.weight"], atol=0.01)
    assert torch.equal(read_tensor(folder, "model.norm.weight"), before["model.norm.weight"])
    (folder / "model-00001-of-00001.safetensors").unlink()  # the index of a moved save
    assert load_model(resolve(folder, tmp_path / "cache", pack_as=pack_as), precision, "cpu")


LAYER = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize("precision", ["nf4", "int8", "bf16", "fp32"])
@pytest.mark.parametrize(
    ("changed", "removed", "said", "tensor"),
    [
        ({}, LAYER, "lacks weights", LAYER),
        ({"num_hidden_layers": 3}, None, "lacks weights", "model.layers.2."),
        ({"tie_word_embeddings": False}, None, "lacks weights", "lm_head"),
        ({"num_hidden_layers": 1}, None, "does not name", "model.layers.1."),
        ({"intermediate_size": 64}, None, "another shape", "mlp"),
    ],
)
def test_a_folder_with_other_tensors_than_its_config_names_is_refused(
    altered, tmp_path, precision, changed, removed, said, tensor
):
    folder = altered(lambda weights: weights.pop(removed, None), **changed).folder
    files = resolve(folder, tmp_path / "cache", pack_as=loading.pack_as(precision, "cpu"))
    with pytest.raises(UserError) as caught:
        load_model(files, precision, "cpu")
    assert said in caught.value.message
    assert tensor in caught.value.message


@pytest.mark.parametrize("precision", ["nf4", "fp32"])
def test_weights_that_are_no_numbers_are_refused(altered, precision):
    files = altered(lambda weights: weights["model.norm.weight"][3:4].fill_(float("nan")))
    with pytest.raises(UserError, match="not numbers"):
        load_model(files, precision, "cpu")


@pytest.mark.parametrize("precision", ["nf4", "int8"])
@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
def test_experts_are_counted_and_described_in_16_bits(tmp_path, family, precision):
    experts = {"moe_intermediate_size": 128, "num_experts": 8, "num_local_experts": 8}
    make_tiny_model(tmp_path, kind=family, tie_word_embeddings=False, **experts)
    files = ModelFiles(tmp_path, "experts", "")
    loaded = load_model(files, precision, "cpu")
    held = loaded.model.get_memory_footprint()
    counted = Weights.of_folder(tmp_path, "experts")
    needed = counted.loaded_bytes(Way(precision, compiled=False)) / memory.LOADING_FACTOR
    assert needed == pytest.approx(held, rel=0.1)
    assert "(experts in 16 bits)" in loaded.info.kernel


def test_tables_of_positions_from_older_saves_are_ignored(altered, tmp_path):
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}
    files = altered(lambda weights: weights.update(table))
    packed = resolve(files.folder, tmp_path / "cache", pack_as=loading.pack_as("nf4", "cpu"))
    assert packed.folder != files.folder
    assert load_model(packed, "nf4", "cpu")
    assert load_model(files, "fp32", "cpu")


def test_layers_for_multi_token_prediction_are_left_out(altered):
    extra = {name: torch.zeros(8) for name in ("model.layers.2.enorm.weight", "mtp.fc.weight")}
    files = altered(lambda weights: weights.update(extra), num_nextn_predict_layers=1)
    assert load_model(files, "fp32", "cpu")


def test_4bit_layers_of_odd_shape_do_not_crash(tmp_path):
    odd = ModelFiles(make_tiny_model(tmp_path / "odd", hidden=40, intermediate=88), "odd", "")
    loaded = load_model(odd, "nf4", "cpu")
    with torch.no_grad():
        assert torch.isfinite(loaded.model(torch.arange(3, 9)[None]).logits).all()
    assert "dequantise each pass" in loaded.info.kernel


@pytest.mark.parametrize("fused", [True, False])
def test_the_4bit_path_is_named(files, monkeypatch, fused):
    from bitsandbytes.nn import modules

    fused = fused and modules.has_avx512bf16()
    monkeypatch.setattr(modules, "has_avx512bf16", lambda: fused)
    expected = "fused AVX512-BF16" if fused else "dequantise each pass"
    assert load_model(files, "nf4", "cpu").info.kernel.startswith(f"bitsandbytes NF4, {expected}")


def test_too_little_memory_is_noticed_before_loading(files, monkeypatch):
    monkeypatch.setattr(loading, "free_on", lambda _: 1000)
    with pytest.raises(UserError, match="a smaller model") as caught:
        load_model(files, "fp32", "cpu")
    assert "the precision bf16 or nf4" in caught.value.advice


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("not enough memory: you tried"),
    ],
)
def test_running_reporting_out_of_memory_and_the_next_load_works(files, monkeypatch, error):
    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(loading, "_load", fail)
        with pytest.raises(UserError, match="does not fit into memory"):
            load_model(files, "nf4", "cpu")
    assert load_model(files, "nf4", "cpu")


def test_two_threads_may_load_at_once(files):
    with ThreadPoolExecutor(2) as pool:
        loaded = list(pool.map(lambda _: load_model(files, "nf4", "cpu"), range(2)))
    ids = torch.arange(3, 30)[None]
    with torch.no_grad():
        assert torch.equal(loaded[0].model(ids).logits, loaded[1].model(ids).logits)


def test_a_start_checks_each_file_once(tiny_folder, tmp_path, monkeypatch):
    asked, find = [], pair.model_files
    monkeypatch.setattr(
        pair, "model_files", lambda name, *more: asked.append(name) or find(name, *more)
    )
    name = str(tiny_folder)
    settings = AppSettings(target=name, draft=name, device="cpu", cache_dir=tmp_path)
    placed = pair.place_pair(settings, pair.fetch_pair(settings))
    assert placed.draft_info.name == placed.target.info.name
    assert asked == [name]


def test_a_draft_of_another_tokenizer_is_refused(tiny_folder, tmp_path):
    other = make_tiny_tokenizer("she sells sea shells by the sea shore")
    draft = make_tiny_model(tmp_path / "draft", tokenizer=other)
    settings = AppSettings(
        target=str(tiny_folder), draft=str(draft), device="cpu", cache_dir=tmp_path
    )
    with pytest.raises(UserError, match="different tokenizers"):
        pair.place_pair(settings, pair.fetch_pair(settings))


def test_the_check_of_a_pass_is_stored_for_each_precision(files, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(loading, "pass_check", lambda _, weights, _head: asked.append(weights))
    known = replace(files, revision="1")
    for precision in ("nf4", "bf16"):
        loading.warm(loading.place_model(known, precision, "cpu"), cache_dir=tmp_path)
    assert len(set(asked)) == 2


def test_an_unknown_precision_is_refused(files):
    with pytest.raises(UserError, match="no precision 'int2'"):
        load_model(files, "int2", "cpu")


def test_less_precision_needs_less_memory(files):
    names = ("nf4", "int8", "bf16", "fp32")
    weights = Weights.of_folder(files.folder, "tiny")
    sizes = [weights.loaded_bytes(Way(name, compiled=False)) for name in names]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 4
