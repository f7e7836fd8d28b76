"""Unusual prompts: they stay text, for the tokenizer, in the trace and on the page."""

import random

from fuzz.odd import COUNT, SEED, TEXTS, text
from tiny_files import make_tiny_tokenizer

from specdemo.config.errors import UserError
from specdemo.session.text import TokenText, encode_prompt
from specdemo.trace.codec import dumps
from specdemo.trace.events import (
    Choice,
    ModelInfo,
    Node,
    Origin,
    Place,
    RunFailed,
    RunStarted,
    Status,
    Verified,
)
from specdemo.trace.replay import parse

MARKUP, IMAGE = "<script>window.hacked=1</script>", "<img src=x onerror=window.hacked=1>"
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


def hostile_trace() -> str:
    """A run whose every text is an odd one."""
    odd = [text for text in TEXTS if not any("\ud800" <= c <= "\udfff" for c in text)]
    events, about = [], {"machine": IMAGE, "started_at": MARKUP}
    info = ModelInfo(MARKUP, IMAGE, MARKUP, IMAGE)
    choices = tuple(Choice(at, 0.1, other[:99]) for at, other in enumerate(odd[:9]))
    places = (Place(-1, choices, choices, choices),)
    probs = {"accept_prob": 0.5, "target_prob": 0.5, "origin": Origin.CHOSEN}
    for lane in ("plain", "speculative"):
        events.append(RunStarted(lane, MARKUP, "".join(odd), {"a": odd}, info, **about))
        for step, piece in enumerate(odd):
            nodes = (Node(step, piece, status=Status.REJECTED, **probs),)
            own, times = (
                Node(99, piece, status=Status.CORRECTION),
                (0.1, 0.1, 0.0, 0.2 * (step + 1)),
            )
            events.append(Verified(lane, step, nodes, (), own, *times, places=places))
    events.append(RunFailed("speculative", MARKUP, IMAGE, MARKUP))
    return dumps(events)


def test_a_trace_of_odd_texts_is_read_as_it_was_written():
    saved = hostile_trace()
    read = parse(saved)
    assert not read.problem
    assert dumps(read.trace.events) == saved
