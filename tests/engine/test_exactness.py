"""Exact mode on a ladder made here: passes of up to three rows have the bits of single ones, longer ones are off by an ulp."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import PROFILE

from specdemo.config.errors import UserError
from specdemo.drafters.methods import METHODS, no_exact
from specdemo.engine.cost import ANY_ROWS, MOST_CHECKED_ROWS, exact_rows
from specdemo.trace.events import Verified
from specdemo.trace.metrics import output_ids

VOCABULARY = 97


class Card:
    """A target whose answers depend on the text and, from so many rows or so many tokens on, on the company."""

    context = None

    def __init__(self, off_from, far_from=9999):
        self.decoder = SimpleNamespace(config=SimpleNamespace(vocab_size=VOCABULARY))
        self.off_from, self.far_from = off_from, far_from
        self.text, self.guess = [], []

    def rollback(self, length):
        del self.text[length:]

    def read(self, token_ids):
        self.text += token_ids

    def forward(self, first, proposal):
        self.guess = [first, *proposal.token_ids]
        rows = [torch.sin(torch.arange(8.0) + t) for t in self.guess]
        together = len(rows) >= self.off_from or (len(rows) > 1 and len(self.text) >= self.far_from)
        return SimpleNamespace(logits=torch.stack(rows) + (1e-6 if together else 0.0))

    def keep(self, path):
        self.text += self.guess[: 1 + len(path)]


@pytest.mark.parametrize(("card", "rows"), [(Card(4), 3), (Card(2), 1), (Card(99), MOST_CHECKED_ROWS), (Card(99, 600), 1)])  # fmt: skip
def test_rows_are_compared_bit_by_bit_behind_a_short_and_a_long_text(card, rows):
    assert exact_rows(card) == rows
    assert card.text == []


@pytest.fixture
def lane(pair):
    """A function that runs a method in exact mode where so many rows are exact."""

    def run(method, rows):
        profile = replace(PROFILE, exact_rows=rows)
        drafter = pair.drafter(method, profile=profile, policy="constant", lookahead=8, exact=True)
        return pair.run(drafter, max_new_tokens=32)

    return run


@pytest.mark.parametrize("method", ["draft_model", "ngram", "nothing"])
def test_no_pass_has_more_rows_than_were_found_exact(lane, pair, method):
    events = lane(method, 3)
    assert output_ids(events) == pair.greedy(most=32)
    drafted = [len(event.nodes) for event in events if isinstance(event, Verified)]
    assert max(drafted) == (0 if method == "nothing" else 2)


@pytest.mark.parametrize(
    ("method", "rows", "why"),
    [
        ("draft_model", 0, "graphics card only"),
        ("draft_model", 1, "a pass of two rows"),
        ("tree", 0, "graphics card only"),
        ("tree", 3, "only rows of chains"),
        ("auto", 3, "only rows of chains"),
    ],
)
def test_exact_mode_is_there_only_where_it_was_measured(lane, method, rows, why):
    with pytest.raises(UserError, match=why):
        lane(method, rows)


@pytest.mark.parametrize("method", ["draft_model", "tree"])
def test_no_draft_is_cut_where_rows_do_not_depend_on_company(lane, pair, method):
    events = lane(method, ANY_ROWS)
    assert output_ids(events) == pair.greedy(most=32)
    assert max(len(event.nodes) for event in events if isinstance(event, Verified)) > 3


def test_plain_decoding_is_exact_anywhere_and_a_reason_names_its_method():
    assert no_exact(METHODS["nothing"], 0) is None
    assert METHODS["tree"].title in str(no_exact(METHODS["tree"], 3))
    assert {no_exact(method, ANY_ROWS) for method in METHODS.values()} == {None}
