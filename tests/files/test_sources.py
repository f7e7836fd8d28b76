"""Names, folders and GGUF files are resolved to model files; each fault is a UserError."""

import json
import shutil
from dataclasses import replace

import pytest

from specdemo.config.errors import UserError
from specdemo.files import sources
from specdemo.files.catalogue import find
from specdemo.files.sources import resolve


@pytest.fixture
def copy(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "copy")


def test_a_local_folder(tiny_folder, tmp_path):
    left = tmp_path / "wheels" / ".making-killed"
    left.mkdir(parents=True)
    files = resolve(tiny_folder, tmp_path)
    assert (files.folder, files.origin, files.name) == (tiny_folder.resolve(), "folder", "model")
    assert not left.exists()


def test_a_folder_without_config(tmp_path):
    with pytest.raises(UserError, match=r"no config.json"):
        resolve(tmp_path, tmp_path)


ODD = {"architectures": ["OddForCausalLM"], "model_type": "odd", "auto_map": {"AutoConfig": "x.Y"}}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"architectures": ["BertForMaskedLM"], "model_type": "bert"},
            "not a causal language model",
        ),
        (ODD, "never run"),
        ("{", "damaged"),
        ("[]", "damaged"),
    ],
)
def test_a_config_that_is_refused(copy, tmp_path, config, sentence):
    (copy / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(UserError, match=sentence):
        resolve(copy, tmp_path)


@pytest.mark.parametrize(
    ("file", "becomes", "sentence"),
    [
        ("model.safetensors", "pytorch_model.bin", "can run code"),
        ("model.safetensors", "other", "no safetensors weights"),
        ("tokenizer.json", "other", "no tokenizer"),
    ],
)
def test_a_file_that_is_missing_or_in_another_form(copy, tmp_path, file, becomes, sentence):
    (copy / file).rename(copy / becomes)
    with pytest.raises(UserError, match=sentence):
        resolve(copy, tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 100, 20_000])
def test_weights_cut_short(copy, tmp_path, keep):
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match="missing or cut short"):
        resolve(copy, tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ["model.fp16.safetensors"],
        ["consolidated.safetensors", "model.fp16.safetensors"],
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
    ],
)
def test_weights_that_transformers_would_not_read_are_named(copy, tmp_path, names):
    for name in names:
        shutil.copy(copy / "model.safetensors", copy / name)
    (copy / "model.safetensors").unlink()
    with pytest.raises(UserError, match=f"has {', '.join(names)}, but neither"):
        resolve(copy, tmp_path)


@pytest.mark.parametrize(
    "index", ["{", "[]", '{"weight_map": {}}', '{"metadata": {}, "weight_map": 3}']
)
def test_an_index_that_transformers_cannot_read_is_damaged(copy, tmp_path, index):
    (copy / "model.safetensors").rename(copy / "model-1.safetensors")
    (copy / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UserError, match=r"weight index of .* is damaged"):
        resolve(copy, tmp_path)


def test_a_link_to_weights_that_are_gone(copy, tmp_path):
    (copy / "model.safetensors").unlink()
    (copy / "model.safetensors").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match=r"model.safetensors is missing or cut short"):
        resolve(copy, tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf"])
def test_a_pointer_of_git_lfs_is_named_with_the_remedy(copy, tmp_path, name):
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 999\n"
    (copy / name).write_text(text)
    asked = copy if name == "model.safetensors" else copy / name
    with pytest.raises(UserError, match="only a pointer of Git LFS") as told:
        resolve(asked, tmp_path)
    assert "git lfs pull" in told.value.advice


def test_a_missing_shard(copy, tmp_path):
    (copy / "model.safetensors").rename(copy / "model-1.safetensors")
    parts = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    index = {"metadata": {}, "weight_map": parts}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"model-2.safetensors is missing"):
        resolve(copy, tmp_path)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "No model was named"),
        ("smollm2-135m-instrct", "Did you mean smollm2-135m-instruct"),
        ("zzz", "no model called 'zzz'"),
        ("nowhere/model.gguf", "There is no file"),
        ("./nowhere", "There is no file or folder ./nowhere"),
        ("/no/such/folder", "There is no file or folder /no/such/folder"),
        ("models/small/qwen", "There is no file or folder models/small/qwen"),
    ],
)
def test_names_that_lead_nowhere(tmp_path, name, sentence):
    with pytest.raises(UserError, match=sentence):
        resolve(name, tmp_path)


def test_files_that_are_no_model(tmp_path):
    (tmp_path / "x.gguf").write_text("hello")
    with pytest.raises(UserError, match="not a GGUF file"):
        resolve(tmp_path / "x.gguf", tmp_path)
    (tmp_path / "x.bin").write_text("hello")
    with pytest.raises(UserError, match="safetensors and GGUF only"):
        resolve(tmp_path / "x.bin", tmp_path)


def test_a_part_of_a_gguf_file_is_named_with_the_remedy(tmp_path):
    for part in (1, 2):
        (tmp_path / f"x-0000{part}-of-00002.gguf").write_bytes(b"GGUF")
    for given in (tmp_path, tmp_path / "x-00002-of-00002.gguf"):
        with pytest.raises(UserError, match=r"llama-gguf-split --merge x-0000\d-of-00002.gguf"):
            resolve(given, tmp_path)


def test_a_folder_with_a_gguf_file_alone_names_the_file(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match=r"Choose that file: .*x\.gguf"):
        resolve(tmp_path, tmp_path)


@pytest.mark.parametrize("removed", ["config.json", "generation_config.json"])
def test_an_adapter_is_named_with_its_base(copy, tmp_path, removed):
    (copy / removed).unlink()
    (copy / "model.safetensors").rename(copy / "adapter_model.safetensors")
    (copy / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/base"}')
    with pytest.raises(UserError, match=r"adapter \(LoRA\): a change of owner/base"):
        resolve(copy, tmp_path)


def test_a_tokenizer_that_needs_another_package_names_the_package(copy, tmp_path, monkeypatch):
    (copy / "tokenizer.json").rename(copy / "tokenizer.model")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="pip install sentencepiece"):
        resolve(copy, tmp_path)


def test_a_gguf_file_that_only_begins_like_one(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + b"\0" * 200)
    with pytest.raises(UserError):
        resolve(tmp_path / "x.gguf", tmp_path / "cache")
    assert not list((tmp_path / "cache" / "models").glob("gguf-*"))


def test_missing_draft_weights(monkeypatch, tmp_path):
    entry = replace(find("smollm2-135m-instruct-draft"), shipped="drafts/none")
    monkeypatch.setattr(sources, "find", lambda _: entry)
    with pytest.raises(UserError, match="train draft"):
        resolve(entry.name, tmp_path)


@pytest.fixture
def embedded(monkeypatch, wheelhouse, tiny_folder):
    """An embedded entry made from the hand-made wheel; its conversions are copies, and counted."""
    folder, wheel = wheelhouse
    monkeypatch.setenv("SPECDEMO_WHEEL", str(folder / wheel.file))
    monkeypatch.setattr(
        sources, "find", lambda _: replace(find("smollm2-135m-instruct"), wheel=wheel)
    )
    conversions = []

    def convert(gguf, content, progress):  # noqa: ARG001
        conversions.append(gguf)
        shutil.copytree(tiny_folder, content, dirs_exist_ok=True)

    monkeypatch.setattr(sources, "convert_gguf", convert)
    return conversions


def test_the_embedded_model_is_converted_once(embedded, tmp_path):
    first = resolve("smollm2-135m-instruct", tmp_path / "cache")
    assert resolve("smollm2-135m-instruct", tmp_path / "cache") == first
    assert len(embedded) == 1
    assert first.origin == "embedded"
    assert {path.suffix for path in first.folder.parent.iterdir()} <= {
        "",
        ".lock",
        f"{first.folder.suffix}",
    }


def test_a_damaged_conversion_is_made_again(embedded, tmp_path):
    files = resolve("smollm2-135m-instruct", tmp_path / "cache")
    weights = files.folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4] + b"\0\0\0\0")
    assert resolve("smollm2-135m-instruct", tmp_path / "cache") == files
    assert len(embedded) == 2
    assert weights.read_bytes() == whole
