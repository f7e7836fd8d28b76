"""Damaged model files: safetensors and GGUF are read, or refused with an error for the user."""

import random
import shutil

import pytest
from fuzz.odd import COUNT, SEED, damaged
from gguf import GGUFWriter
from tiny_gguf import finish

from specdemo.config.errors import UserError
from specdemo.files.folder import broken_files, check_folder, count_parameters
from specdemo.files.gguf import convert_gguf
from specdemo.files.sources import ModelFiles
from specdemo.models.tokenizers import load_tokenizer


def test_any_safetensors_file_is_whole_or_refused(tiny_folder, tmp_path):
    rng = random.Random(SEED)
    whole = (tiny_folder / "model.safetensors").read_bytes()
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    weights = folder / "model.safetensors"
    told = []
    for _ in range(COUNT):
        weights.write_bytes(damaged(rng, whole))
        try:
            check_folder(folder, "tiny")
        except UserError as error:
            told.append(error.message)
            continue
        assert broken_files([weights]) == []
        assert count_parameters(folder, "tiny") >= 0
    assert len(told) > COUNT / 2
    assert all("incomplete" in message for message in told)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
def test_any_description_of_a_model_is_read_or_refused(tiny_folder, tmp_path, name):
    rng = random.Random(SEED)
    whole = (tiny_folder / name).read_bytes()
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    told = 0
    for _ in range(COUNT if name == "config.json" else COUNT // 60):
        (folder / name).write_bytes(damaged(rng, whole))
        try:
            check_folder(folder, "tiny")
            if name != "config.json":
                load_tokenizer(ModelFiles(folder, "tiny", ""))
        except UserError:
            told += 1
    assert told


def test_any_gguf_file_is_read_or_refused(tmp_path):
    """A damaged header of a small model: nothing is converted, and the error names the cause."""
    path = tmp_path / "whole.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(16)
    writer.add_block_count(1)
    finish(writer)
    rng = random.Random(SEED)
    whole = path.read_bytes()
    for number in range(max(20, COUNT // 20)):
        broken = tmp_path / "broken.gguf"
        broken.write_bytes(damaged(rng, whole))
        folder = tmp_path / f"out-{number}"
        folder.mkdir()
        with pytest.raises(UserError):
            convert_gguf(broken, folder)
