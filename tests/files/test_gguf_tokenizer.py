"""A GGUF file's text becomes the tokens that llama.cpp makes of it, for each way to split text before the merges."""

from unittest.mock import MagicMock

import httpx
import pytest
import tiny_gguf as tiny_gguf_module
from llama_server import llama_server
from tiny_files import make_tiny_tokenizer
from tiny_gguf import tiny_gguf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast

from specdemo.config.errors import UserError
from specdemo.files.gguf import SPLITTING, describe_gguf
from specdemo.files.sources import ModelFiles
from specdemo.models.tokenizers import load_tokenizer

TEXTS = (
    "In 2024 it's 1234567 or 3.14, HE'S WE'LL they've\n\n    def f(x):\n\t\treturn x  \n  ",
    "naïve Straße 東京 カタカナ 中文12 ١٢٣ $5+=6 ~|x| ^`a` “q” #!/bin/sh\r\n  \r\n a//b ...\n",
)


@pytest.fixture(scope="module")
def greedy():
    """A tokenizer whose merges cross all borders, so that its tokens show how text was split."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    parts = [
        text[at : at + size] for text in TEXTS for at in range(len(text)) for size in (2, 3, 7)
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    )  # fmt: skip
    tokenizer.train_from_iterator([*TEXTS * 50, *parts * 2], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def described(folder, tokenizer, pre):
    """A GGUF file, and the tokenizer that is made of it."""
    gguf = tiny_gguf(folder / "tiny.gguf", "llama", tokenizer, pre)
    describe_gguf(gguf, folder)
    return gguf, load_tokenizer(ModelFiles(folder, "tiny", ""))


def by_llama_cpp(gguf, texts, **options):
    """Yield each text with the tokens that llama.cpp makes of it. options: of its server"""
    pytest.importorskip("xllamacpp")
    with llama_server(str(gguf), "options.n_ctx, options.warmup = 64, False") as address:
        for text in texts:
            asked = {"content": text, "add_special": True, **options}
            yield text, httpx.post(f"{address}/tokenize", json=asked, timeout=30).json()["tokens"]


@pytest.mark.parametrize("pre", [entry["names"][0] for entry in SPLITTING])
def test_describe_gguf_splits_text_as_llama_cpp_does(tmp_path, greedy, pre):
    gguf, tokenizer = described(tmp_path, greedy, pre)
    for text, wanted in by_llama_cpp(gguf, TEXTS):
        assert tokenizer(text)["input_ids"] == wanted


def add_sentencepiece(writer, **said):
    """Add a sentencepiece vocabulary with a control token and one of the user's. said: values of the header"""
    corpus = "the cat sat on a mat, it's 2024 \n\n é def f(x):"
    words = {marked for word in corpus.split() for marked in (word, f"\u2581{word}")}
    parts = {word[at:end] for word in words for at in range(len(word)) for end in range(at + 2, 9)}
    letters = sorted({*"".join(words), "\n"})
    pieces = [
        *sorted({*parts} - {*letters}, key=len),
        *("\u2581" * count for count in (2, 4)),
        *letters,
    ]
    known = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "<|user|>",
        "[TOOL]",
    ]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*known, *pieces])
    writer.add_token_scores([*[0.0] * len(known), *(-float(rank) for rank in range(len(pieces)))])
    writer.add_token_types([2, 3, 3, *[6] * 256, 3, 4, *[1] * len(pieces)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for name, value in said.items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)
    return len(known) + len(pieces)


@pytest.mark.parametrize(
    "said", [{}, {"add_space_prefix": False}, {"add_space_prefix": True, "add_bos_token": False}]
)
def test_describe_gguf_marks_spaces_as_llama_cpp_does(tmp_path, monkeypatch, said):
    size = add_sentencepiece(MagicMock())
    monkeypatch.setattr(
        tiny_gguf_module, "add_tokenizer", lambda writer, *_: add_sentencepiece(writer, **said)
    )
    gguf, tokenizer = described(tmp_path, range(size), "default")
    texts = ["the cat", " the", "  the  cat ", "\nthe\n\ncat", "     "]
    texts += ["[TOOL]the [TOOL] cat", "नमस्ते it's é", "a<s>b"]
    for text, wanted in by_llama_cpp(gguf, texts, parse_special=False):
        ids = tokenizer(text, split_special_tokens=True)["input_ids"]
        assert ids == wanted, text
        if "[" not in text:  # a space is added after a token of the user's, and stays there
            assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_describe_gguf_splits_numbers_as_the_file_says(tmp_path, greedy):
    _, tokenizer = described(tmp_path, greedy, "smollm")
    assert tokenizer.tokenize("2024 it") == ["2", "0", "2", "4", "Ġit"]


def test_describe_gguf_refuses_an_unknown_way_of_splitting(tmp_path, greedy):
    with pytest.raises(UserError, match=r"unknown way \(klingon\)"):
        described(tmp_path, greedy, "klingon")


def test_describe_gguf_stores_the_ends_of_turns_and_messages(tmp_path, monkeypatch):
    add = tiny_gguf_module.add_tokenizer

    def with_ends(writer, *options):
        add(writer, *options)
        writer.add_eot_token_id(5)
        writer.add_uint32("tokenizer.ggml.eom_token_id", 6)

    monkeypatch.setattr(tiny_gguf_module, "add_tokenizer", with_ends)
    described(tmp_path, make_tiny_tokenizer(), "gpt-2")
    assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == [2, 5, 6]
