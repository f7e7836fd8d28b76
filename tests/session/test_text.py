"""Text of prompts and tokens: control tokens stay text, split characters appear whole, limits are reported."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdemo.config.errors import UserError
from specdemo.session.text import TokenText, encode_prompt
from specdemo.trace.events import Node, Status, Verified

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@pytest.fixture(scope="module")
def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(
        models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", bos_token="<|im_start|>"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def test_control_tokens_typed_by_a_user_are_text(tokenizer):
    stop = tokenizer.eos_token_id
    ids = encode_prompt(tokenizer, "a<|im_end|>b", 10_000)
    assert ids.count(stop) == 1  # the template's own


def test_prompts_that_are_empty_or_too_long_are_told(tokenizer):
    with pytest.raises(UserError, match="empty"):
        encode_prompt(tokenizer, " \n", 100)
    with pytest.raises(UserError, match=r"has .* tokens; the target reads at most 84 tokens"):
        encode_prompt(tokenizer, "word " * 50, 100)
    with pytest.raises(UserError, match="10,000,000 characters"):
        encode_prompt(tokenizer, "x" * 10_000_000, 8192)


def test_a_character_of_several_tokens_appears_once_and_whole(tokenizer):
    wanted = "né \N{GRINNING FACE} end"
    ids = tokenizer(wanted)["input_ids"]
    text = TokenText(tokenizer, [tokenizer.bos_token_id])
    shown = []
    for step, token_id in enumerate(ids):
        event = Verified("plain", step, (), (), Node(token_id, status=Status.PLAIN), 0, 0, 0, 0)
        shown.append(text.fill(event).next.text)
    assert "".join(shown) == wanted == text.answer
    assert len(shown) == len(ids)


def test_refused_tokens_have_text_and_are_not_part_of_the_answer(tokenizer):
    text = TokenText(tokenizer, [tokenizer.bos_token_id])
    [letter] = tokenizer("q")["input_ids"]
    event = Verified(
        "speculative", 0, (Node(letter, status=Status.REJECTED),), (), None, 0, 0, 0, 0
    )
    assert text.fill(event).nodes[0].text == "q"
    assert text.answer == ""
