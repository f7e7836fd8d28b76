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
    assert (files.folder, files.name) == (tiny_folder.resolve(), "model")
    assert not left.exists()


ODD = {"architectures": ["OddForCausalLM"], "model_type": "odd", "auto_map": {"AutoConfig": "x.Y"}}
BERT = {"architectures": ["BertForMaskedLM"], "model_type": "bert"}
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 999\n"
PARTS = {"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
HALVES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def config(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return lambda folder: (folder / "config.json").write_text(text)


def renamed(file, *names):
    """The file has other names alone."""

    def rename(folder):
        data = (folder / file).read_bytes()
        (folder / file).unlink()
        for name in names:
            (folder / name).write_bytes(data)

    return rename


def indexed(text):
    def write(folder):
        renamed(WEIGHTS, "model-1.safetensors")(folder)
        (folder / INDEX).write_text(text)

    return write


def cut(keep):
    return lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:keep])


def linked_to_nothing(folder):
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(folder / "gone")


def adapter(removed):
    def make(folder):
        (folder / removed).unlink()
        renamed(WEIGHTS, "adapter_model.safetensors")(folder)
        (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/base"}')

    return make


REFUSED = [
    (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    (config(BERT), "not a causal language model"),
    (config(ODD), "never run"),
    (config("{"), "damaged"),
    (config("[]"), "damaged"),
    (renamed(WEIGHTS, "pytorch_model.bin"), "can run code"),
    (renamed(WEIGHTS, "other"), "no safetensors weights"),
    (renamed("tokenizer.json", "other"), "no tokenizer"),
    *((cut(keep), "missing or cut short") for keep in (0, 5, 100, 20_000)),
    *(
        (renamed(WEIGHTS, *names), f"has {', '.join(names)}, but neither")
        for names in (
            ("model.fp16.safetensors",), ("consolidated.safetensors", "model.fp16.safetensors"), HALVES
        )
    ),
    *(
        (indexed(index), "weight index of .* is damaged")
        for index in ("{", "[]", '{"weight_map": {}}', '{"metadata": {}, "weight_map": 3}')
    ),
    (indexed(json.dumps(PARTS)), "model-2.safetensors is missing"),
    (linked_to_nothing, "model.safetensors is missing or cut short"),
    *((adapter(file), r"adapter \(LoRA\): a change of owner/base") for file in ("config.json", "generation_config.json")),
]  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), REFUSED)
def test_a_folder_that_is_no_whole_model_is_refused(copy, tmp_path, change, sentence):
    change(copy)
    with pytest.raises(UserError, match=sentence):
        resolve(copy, tmp_path)


@pytest.mark.parametrize("name", [WEIGHTS, "model.gguf"])
def test_a_pointer_of_git_lfs_is_named_with_the_remedy(copy, tmp_path, name):
    (copy / name).write_bytes(LFS)
    with pytest.raises(UserError, match="only a pointer of Git LFS") as told:
        resolve(copy if name == WEIGHTS else copy / name, tmp_path)
    assert "git lfs pull" in told.value.advice


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


MERGE = r"llama-gguf-split --merge x-00001-of-00002.gguf"


@pytest.mark.parametrize(
    ("files", "asked", "sentence"),
    [
        ({"x.gguf": b"hello"}, "x.gguf", "not a GGUF file"),
        ({"x.gguf": b"GGUF" + b"\0" * 200}, "x.gguf", "GGUF v0"),
        ({"x.bin": b"hello"}, "x.bin", "safetensors and GGUF only"),
        ({f"x-0000{part}-of-00002.gguf": b"GGUF" for part in (1, 2)}, ".", MERGE),
        ({"x-00002-of-00002.gguf": b"GGUF"}, "x-00002-of-00002.gguf", MERGE),
        ({"mmproj.gguf": b"GGUF", "x-00002-of-00002.gguf": b"GGUF of text"}, ".", MERGE),
        ({"mmproj.gguf": b"GGUF", "x.gguf": b"GGUF of text"}, ".", r"Choose that file: .*x\.gguf"),
    ],
)
def test_files_that_are_no_model(tmp_path, files, asked, sentence):
    (tmp_path / "given").mkdir()
    for name, data in files.items():
        (tmp_path / "given" / name).write_bytes(data)
    with pytest.raises(UserError, match=sentence):
        resolve(tmp_path / "given" / asked, tmp_path / "cache")
    assert not list(tmp_path.glob("cache/models/gguf-*"))


def test_a_tokenizer_that_needs_another_package_names_the_package(copy, tmp_path, monkeypatch):
    renamed("tokenizer.json", "tokenizer.model")(copy)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match="pip install sentencepiece"):
        resolve(copy, tmp_path)


def test_missing_draft_weights(monkeypatch, tmp_path):
    entry = replace(find("smollm2-135m-instruct-draft"), shipped="drafts/none")
    monkeypatch.setattr(sources, "find", lambda _: entry)
    with pytest.raises(UserError, match="train draft"):
        resolve(entry.name, tmp_path)


@pytest.fixture
def embedded(monkeypatch, wheelhouse, conversions):
    """An embedded entry made from the hand-made wheel, and its conversions."""
    wheel, file = wheelhouse
    monkeypatch.setenv("SPECDEMO_WHEEL", str(wheel))
    entry = replace(find("smollm2-135m-instruct"), gguf=file)
    monkeypatch.setattr(sources, "find", lambda _: entry)
    return conversions


def test_the_embedded_model_is_converted_once(embedded, tmp_path):
    first = resolve("smollm2-135m-instruct", tmp_path / "cache")
    assert resolve("smollm2-135m-instruct", tmp_path / "cache") == first
    assert len(embedded) == 1
    suffixes = {path.suffix for path in first.folder.parent.iterdir()}
    assert suffixes <= {"", ".lock", first.folder.suffix}


def test_a_damaged_conversion_is_made_again(embedded, tmp_path):
    files = resolve("smollm2-135m-instruct", tmp_path / "cache")
    weights = files.folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4] + b"\0\0\0\0")
    for _ in range(2):  # the second time it is complete
        assert resolve("smollm2-135m-instruct", tmp_path / "cache") == files
        assert len(embedded) == 2
        assert weights.read_bytes() == whole
