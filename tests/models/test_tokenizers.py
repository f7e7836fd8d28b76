"""Tokenizers of one vocabulary and the same merges are equal; heads are accepted with any padding."""

import json
from types import SimpleNamespace

import pytest
from tiny_files import make_tiny_tokenizer
from tokenizers import Tokenizer, models
from transformers import GenerationConfig, PreTrainedTokenizerFast

from specdemo.config.errors import UserError
from specdemo.files.sources import ModelFiles
from specdemo.models.tokenizers import (
    check_vocabulary,
    load_tokenizer,
    same_tokenizer,
    stop_ids,
)

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def test_other_merges_are_refused(files, tmp_path):
    one = make_tiny_tokenizer()
    assert same_tokenizer(load_tokenizer(files), one)
    table = json.loads(one.backend_tokenizer.to_str())
    table["model"]["merges"].reverse()
    (tmp_path / "t.json").write_text(json.dumps(table))
    other = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "t.json"))
    assert one.get_vocab() == other.get_vocab()
    assert not same_tokenizer(one, other)


def test_a_damaged_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="cannot be read"):
        load_tokenizer(ModelFiles(tmp_path, "broken", ""))


def test_a_tokenizer_with_more_words_than_its_model_is_refused(files):
    tokenizer = load_tokenizer(files)
    for padding in (0, 100):
        check_vocabulary(files, tokenizer, len(tokenizer) + padding)
    with pytest.raises(UserError, match="its model only"):
        check_vocabulary(files, tokenizer, len(tokenizer) - 1)


@pytest.mark.parametrize(
    ("added", "template", "ends"),
    [
        ([], CHATML, {"<|endoftext|>", "<|im_end|>"}),
        (["<|eot_id|>", "<|eom_id|>"], None, {"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>"}),
        (["<fin>", "<fin>al"], CHATML.replace("<|im_end|>", " <fin>"), {"<|endoftext|>", "<|im_end|>", "<fin>"}),
        (["<|end|>"], "{{ raise_exception('no') }}", {"<|endoftext|>", "<|im_end|>", "<|end|>"}),
        (["<|eot|>", "<|eom|>", "<|file_sep|>"], None, {"<|endoftext|>", "<|im_end|>", "<|eot|>", "<|eom|>", "<|file_sep|>"}),
        (["<|end|>", "<|flush|>", "<|calls|>"], None, {"<|endoftext|>", "<|im_end|>", "<|flush|>", "<|calls|>"}),
        (["<|end|>", "<|return|>", "<|call|>"], None, {"<|endoftext|>", "<|im_end|>", "<|return|>", "<|call|>"}),
    ],
)  # fmt: skip
def test_stop_ids_contain_the_ends_of_turns(added, template, ends):
    tokenizer = make_tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": added})
    tokenizer.eos_token, tokenizer.chat_template = "<|endoftext|>", template
    model = SimpleNamespace(generation_config=GenerationConfig(eos_token_id=[7]))
    wanted = {tokenizer.convert_tokens_to_ids(token) for token in ends}
    assert stop_ids(model, tokenizer) == wanted | {7}


def test_stop_ids_contain_the_ends_of_turns_among_ordinary_tokens():
    backend = Tokenizer(models.WordLevel({"a": 0, "<|im_end|>": 1, "<s>": 2}, unk_token="a"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<s>")
    assert tokenizer.get_added_vocab().keys() == {"<s>"}
    model = SimpleNamespace(generation_config=GenerationConfig(eos_token_id=None))
    assert stop_ids(model, tokenizer) == {1, 2}
