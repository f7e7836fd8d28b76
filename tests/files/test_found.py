"""Models of other programs are found in their folders, judged by content, and recognised in every quantisation."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_files import make_tiny_tokenizer
from tiny_gguf import HIDDEN, tiny_gguf

from specdemo.config.errors import UserError
from specdemo.files import found, header, sources
from specdemo.files.catalogue import GgufFile, find
from specdemo.files.found import FoundModel, found_models, ollama_models, tokenizer_of
from specdemo.files.gguf import stored_as
from specdemo.files.header import read_header, recognise
from specdemo.files.sources import resolve
from specdemo.files.store import file_sha256

LM_STUDIO_FILE = ".lmstudio/models/owner/own-GGUF/own-q8_0.gguf"


@pytest.fixture(scope="module")
def ggufs(tmp_path_factory):
    """Files of one model in two quantisations, and of another model."""
    folder = tmp_path_factory.mktemp("ggufs")
    return {
        "own": tiny_gguf(folder / "own-q4_k_m.gguf", "qwen2"),
        "q8": tiny_gguf(folder / "own-q8_0.gguf", "qwen2", quantised=["Q8_0"]),
        "other": tiny_gguf(folder / "other.gguf", "llama"),
    }


@pytest.fixture
def machine(ggufs, tmp_path, monkeypatch):
    """A home with the files in the folders of LM Studio and Ollama, and a catalogue that has the first one."""
    home = tmp_path / "home"
    entry = replace(
        find("qwen2.5-coder-1.5b-instruct"),
        norms=read_header(ggufs["own"]).norms,
        gguf=GgufFile("owner/own", "own.gguf", file_sha256(ggufs["own"]), 1),
    )
    for module in (header, found):
        monkeypatch.setattr(module, "entries", lambda: (find("smollm2-135m-instruct"), entry))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    lm_studio, models = home / ".lmstudio/models/owner/own-GGUF", home / ".ollama/models"
    (models / "blobs").mkdir(parents=True)
    lm_studio.mkdir(parents=True)
    shutil.copy(ggufs["q8"], lm_studio)
    (lm_studio / "mmproj.gguf").write_bytes(b"GGUF" + bytes(20))
    for name, file in {
        "registry.ollama.ai/library/own/1.5b": "own",
        "hf.co/owner/other-GGUF/latest": "other",
    }.items():
        digest = f"sha256-{file_sha256(ggufs[file])}"
        shutil.copy(ggufs[file], models / "blobs" / digest)
        manifest = models / "manifests" / name
        manifest.parent.mkdir(parents=True)
        layers = [{"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:0"}]
        layers.append({"mediaType": found.WEIGHTS, "digest": digest.replace("-", ":")})
        manifest.write_text(json.dumps({"layers": layers}), encoding="utf-8")
    manifest.with_name("damaged").write_text("{")
    return home


def test_header_norms_are_the_same_in_every_quantisation(ggufs):
    own, q8, other = (read_header(ggufs[name]) for name in ("own", "q8", "other"))
    assert own.norms == q8.norms != other.norms
    assert own.tokenizer == q8.tokenizer == other.tokenizer != ""
    assert own.sizes.total() == q8.sizes.total() < other.sizes.total()
    heads = [
        FoundModel("", "", ggufs[name], read_header(ggufs[name])).entry for name in ("own", "other")
    ]
    assert [one.own_head for one in heads] == [False, True]
    assert all(one.head_parameters % HIDDEN == 0 < one.head_parameters for one in heads)
    assert own.values["general.architecture"] == "qwen2"


def test_the_quantisation_of_a_file_is_named_by_its_tensors(ggufs, tmp_path, conversions):
    several = "Q4_1 and Q5_0 and Q8_0 and Q4_K and Q6_K"
    assert [stored_as(ggufs[name]) for name in ("q8", "own")] == ["Q8_0", several]
    assert resolve(ggufs["q8"], tmp_path / "cache").stored == "Q8_0"
    assert conversions


@pytest.mark.parametrize("kept", [0, 4, 24, 40, 300, 1500, -50_000])
def test_header_of_a_damaged_file_is_refused(ggufs, tmp_path, kept):
    path = tmp_path / "cut.gguf"
    path.write_bytes(ggufs["other"].read_bytes()[:kept])
    with pytest.raises(ValueError, match=r".+"):
        read_header(path)


def test_catalogue_models_with_drafters_of_their_own_are_recognised_by_different_norms():
    known = [entry for entry in sources.entries() if entry.norms]
    assert {"smollm2-135m-instruct", "qwen2.5-coder-1.5b-instruct"} <= {one.name for one in known}
    assert len({one.norms for one in known}) == len(known)


def test_found_models_come_from_lm_studio_and_ollama(machine, tmp_path):
    models = {one.name: one for one in found_models(tmp_path / "cache")}
    in_lm_studio = str(machine / LM_STUDIO_FILE)
    assert {name: one.source for name, one in models.items()} == {
        in_lm_studio: "LM Studio",
        "ollama:own:1.5b": "Ollama",
        "ollama:hf.co/owner/other-GGUF:latest": "Ollama",
    }
    known = {name: one.known.name for name, one in models.items() if one.known}
    assert known.keys() == {in_lm_studio, "ollama:own:1.5b"}
    assert set(known.values()) == {"qwen2.5-coder-1.5b-instruct"}


@pytest.mark.usefixtures("machine")
def test_resolve_converts_a_file_once_whatever_names_it(ggufs, tmp_path, conversions):
    blob = ollama_models()["own:1.5b"]
    plain = shutil.copy(ggufs["own"], tmp_path / "weights.bin")
    by_name = resolve("ollama:own:1.5b", tmp_path / "cache")
    assert by_name == resolve(blob, tmp_path / "cache") == resolve(plain, tmp_path / "cache")
    assert len(conversions) == 1
    assert by_name.name == by_name.known == "qwen2.5-coder-1.5b-instruct"
    other = resolve("ollama:hf.co/owner/other-GGUF", tmp_path / "cache")
    assert (other.name, other.known) == ("hf.co/owner/other-GGUF:latest", "")
    requantised = resolve(ggufs["q8"], tmp_path / "cache")
    assert (requantised.name, requantised.known) == ("own-q8_0", "qwen2.5-coder-1.5b-instruct")
    assert len(conversions) == 3


@pytest.mark.usefixtures("machine")
def test_resolve_names_the_models_that_ollama_has(tmp_path):
    with pytest.raises(UserError, match=r"hf.co/owner/other-GGUF:latest, own:1.5b"):
        resolve("ollama:own", tmp_path)


def test_ollama_models_may_be_in_another_folder(machine, monkeypatch):
    moved = machine.rename(machine.with_name("moved")) / ".ollama/models"
    assert not ollama_models()
    monkeypatch.setenv("OLLAMA_MODELS", str(moved))
    assert {"own:1.5b"} < ollama_models().keys()
    assert Path(ollama_models()["own:1.5b"]).parent == moved / "blobs"


def test_a_folder_has_the_tokenizer_digest_of_its_file(ggufs, tmp_path):
    words = tmp_path / "words"
    make_tiny_tokenizer().save_pretrained(words)
    header = read_header(ggufs["own"])
    assert tokenizer_of(words) == header.tokenizer
    said = json.loads((words / "tokenizer.json").read_text(encoding="utf-8"))
    said["model"]["vocab"] = [
        [word, 0.0] for word in said["model"]["vocab"]
    ]  # as sentencepiece has it
    (tmp_path / "tokenizer.json").write_text(json.dumps(said), encoding="utf-8")
    assert tokenizer_of(tmp_path) == header.tokenizer
    assert tokenizer_of(tmp_path / "none") == ""


def test_models_that_embed_text_are_not_listed_and_others_may_not_run(ggufs):
    header = read_header(ggufs["own"])
    embeds = header.values | {"qwen2.pooling_type": 3}
    assert header.generates
    assert not replace(header, values=embeds).generates
    for family, known in {
        "qwen2": True, "smollm3": True, "qwen3moe": True, "gemma3": True, "gpt-oss": True,
        "mamba": False, "t5": False, "olmo2": False, "": False,
    }.items():  # fmt: skip
        said = replace(header, values={"general.architecture": family})
        assert FoundModel(family, "", Path(), said).is_read == known, family


def test_a_catalogue_file_is_listed_in_the_precision_of_its_drafter(machine, tmp_path):
    models = {one.name: one for one in found_models(tmp_path / "cache")}
    own, other = models["ollama:own:1.5b"], models[str(machine / LM_STUDIO_FILE)]
    assert other.entry.blocks == 1.0625  # Q8_0
    assert own.entry.blocks > 0
    listed = replace(own.known, gguf=replace(own.known.gguf, size=own.path.stat().st_size))
    assert replace(own, known=listed).entry.blocks == 0


@pytest.mark.usefixtures("machine")
def test_recognise_needs_the_norms(ggufs):
    assert recognise(read_header(ggufs["other"])) is None
    assert recognise(replace(read_header(ggufs["own"]), tensors={})) is not None
