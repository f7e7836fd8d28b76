"""Unusual prompts stay text, for the tokenizer and in the trace, or are refused."""

import random

from fuzz.odd import COUNT, SEED, text
from tiny_files import make_tiny_tokenizer

from specdemo.config.errors import UserError
from specdemo.session.text import TokenText, encode_prompt
from specdemo.trace.codec import dumps
from specdemo.trace.events import Node, Status, Verified

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"


def test_any_prompt_becomes_text_or_is_refused():
    tokenizer = make_tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    rng = random.Random(SEED)
    told = 0
    special = set(tokenizer.all_special_ids)
    for _ in range(COUNT):
        prompt = text(rng)
        try:
            ids = encode_prompt(tokenizer, prompt, 100_000)
        except UserError:
            told += 1
            continue
        # The template's own: two starts of messages, one end.
        assert sum(token in special for token in ids) == 3, ascii(prompt)
        shown = TokenText(tokenizer, ids[:1])
        for token in ids[1:40]:
            event = Verified("plain", 0, (), (), Node(token, status=Status.PLAIN), 0, 0, 0, 0)
            dumps([shown.fill(event)]).encode()
    assert 0 < told < COUNT
