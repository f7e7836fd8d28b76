"""Shaping as transformers does it, rows over a reduced vocabulary, and the noise that seed, position and token determine."""

import importlib
import itertools
import math

import numpy as np
import pytest
import torch
from conftest import steps_of
from lanes import Scripted
from toy import DRAFT, TARGET, Table
from transformers.generation.logits_process import TopPLogitsWarper

from specdemo.bench.statistics import chi_square_p
from specdemo.config.settings import Sampling
from specdemo.drafters.base import Plain
from specdemo.engine import sampling
from specdemo.engine.sampling import (
    FIRST_FACTOR,
    GOLDEN,
    SECOND_FACTOR,
    ReducedVocabulary,
    Shaper,
    Tickets,
    draw_at,
    residual_of,
)
from specdemo.engine.types import Proposal
from specdemo.engine.verify import verify_coupled
from specdemo.kernels import runtime
from specdemo.trace.events import Status
from specdemo.trace.metrics import output_ids


@pytest.mark.parametrize("top_p", [0.0001, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_top_p_keeps_what_transformers_keeps(top_p, spread):
    logits = torch.randn(3, 997, generator=torch.Generator().manual_seed(7)) * spread
    shaped = Shaper(Sampling(temperature=1.0, top_p=top_p)).logits(logits, [], [[]] * 3)
    expected = TopPLogitsWarper(top_p)(torch.zeros(3, 1, dtype=torch.long), logits)
    assert torch.equal(shaped, expected)


def test_top_p_keeps_all_of_some_equally_likely_tokens():
    shaped = Shaper(Sampling(temperature=1.0, top_p=0.5)).logits(torch.zeros(1, 8), [], [[]])
    assert torch.equal(shaped, torch.zeros(1, 8))


def test_top_p_leaves_a_row_without_numbers_as_it_is():
    logits = torch.full((1, 8), torch.nan)
    shaped = Shaper(Sampling(temperature=1.0, top_p=0.5)).logits(logits, [], [[]])
    assert shaped.isnan().all()
    assert Tickets(0).winner(shaped.softmax(-1)[0], 0) == 0


def test_a_sharp_row_has_few_tokens_to_sort(monkeypatch):
    sizes = []
    sort = sampling.np.sort
    monkeypatch.setattr(sampling.np, "sort", lambda row: sizes.append(len(row)) or sort(row))
    row = torch.linspace(0, -60, 49_152).unsqueeze(0)
    Shaper(Sampling(temperature=1.0, top_p=0.9)).logits(row, [], [[]])
    assert sizes[0] < 49_152 / 4


def test_words_are_widened_to_their_tokens():
    words = ReducedVocabulary(torch.tensor([4, 1, 2]), 6)
    (row,) = words.widen(torch.tensor([[0.5, 0.2, 0.3]])).tolist()
    assert row == pytest.approx([0, 0.2, 0.3, 0, 0.5, 0])
    assert [words.token(column) for column in range(3)] == [4, 1, 2]
    assert words.columns([2, 3, 4]) == [2, 0]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7, repetition_penalty=1.4),
        Sampling(temperature=1.3, top_k=5),
        Sampling(temperature=1.0, top_p=0.6),
    ],
)
def test_shaping_words_is_shaping_all_tokens_with_the_others_ruled_out(sampling):
    generator = torch.Generator().manual_seed(5)
    words = ReducedVocabulary(torch.randperm(50, generator=generator)[:20], 50)
    rows = torch.randn(2, 20, generator=generator)
    wide = torch.full((2, 50), -torch.inf)
    wide[:, words.ids] = rows
    committed, paths = [*words.ids[:5].tolist(), 49, 48], [[], words.ids[7:8].tolist()]
    shaper = Shaper(sampling)
    narrow = words.widen(shaper.probs(rows, committed, paths, words))
    assert torch.allclose(narrow, shaper.probs(wide, committed, paths), atol=1e-6)


def test_the_first_numbers_are_those_of_splitmix64():
    """Reference values of SplitMix64 from state 0: a position's numbers are its sequence, token by token."""
    tickets = Tickets(0)
    tickets.key = lambda _: 0
    uniforms = tickets._uniforms(0, np.arange(2))
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert uniforms.tolist() == [((number >> 11) + 0.5) / 2**53 for number in expected]


@pytest.mark.usefixtures("code")
def test_a_winner_has_the_largest_log_probability_and_ticket():
    probs = torch.softmax(torch.randn(300, generator=torch.Generator().manual_seed(1)) * 3, 0)
    probs[50:90] = 0
    for position in range(40):
        tickets = Tickets(position % 3)
        sums = [
            np.log(prob) + tickets.ticket(position, token) if prob else -np.inf
            for token, prob in enumerate(probs.tolist())
        ]
        assert tickets.winner(probs, position) == int(np.argmax(sums))
        words = ReducedVocabulary(torch.arange(299, -1, -1), 300)
        assert 299 - tickets.winner(probs.flip(0), position, words.ids) == int(np.argmax(sums))
    assert Tickets(0).winner(torch.zeros(4), 0) == 0


@pytest.mark.usefixtures("code")
def test_a_winner_is_found_among_many_blocks_of_columns():
    """Sharp and flat rows of a full vocabulary; a reduced one gives the same token."""
    logits = torch.randn(3, 30_000, generator=torch.Generator().manual_seed(2))
    order = torch.randperm(30_000, generator=torch.Generator().manual_seed(3))
    for probs in (logits * torch.tensor([[0.1], [1.0], [5.0]])).softmax(dim=-1):
        for position in range(20):
            tickets = Tickets(4)
            waits = -np.log1p(-tickets._uniforms(position, np.arange(30_000))) / probs.numpy()
            assert tickets.winner(probs, position) == waits.argmin()
            words = ReducedVocabulary(order, 30_000)
            assert words.token(tickets.winner(probs[order], position, words.ids)) == waits.argmin()


def _state_before(number, inverses):
    """The state of SplitMix64 from which its output follows."""
    first, second = inverses
    number ^= number >> 31 ^ number >> 62
    number = number * second % 2**64
    number ^= number >> 27 ^ number >> 54
    number = number * first % 2**64
    return number ^ number >> 30 ^ number >> 60


@pytest.mark.usefixtures("code")
def test_the_largest_number_has_a_logarithm(monkeypatch):
    """All 64 bits set: half a step more would be 1."""
    inverses = [pow(factor, -1, 2**64) for factor in (FIRST_FACTOR, SECOND_FACTOR)]
    key = (_state_before(2**64 - 1, inverses) - 2 * GOLDEN) % 2**64
    monkeypatch.setattr(Tickets, "key", lambda *_: key)
    assert Tickets(0)._uniforms(0, np.array([1])).tolist() == [1 - 2.0**-53]
    assert Tickets(0).ticket(0, 1) == pytest.approx(-math.log(53 * math.log(2)))
    assert Tickets(0).winner(torch.tensor([0.0, 1.0, 0.0]), 0) == 1
    assert Tickets(0).winner(torch.tensor([0.5, 0.5, 0.0]), 0) == 0


@pytest.mark.usefixtures("compiled_pass")
@pytest.mark.parametrize("width", [7, 64, 4_000])
def test_compiled_code_draws_and_takes_away_what_numpy_does(width, monkeypatch):
    importlib.import_module("specdemo.kernels.draft_loop")
    generator = torch.Generator().manual_seed(width)
    probs = torch.softmax(torch.randn(width, generator=generator) * 3, 0)
    probs[width // 3 : width // 2] = 0
    words = torch.randperm(width, generator=generator)[: width // 2 + 1]
    drafted = torch.softmax(torch.randn(len(words), generator=generator), 0)
    numbers = [0.0, *torch.rand(300, generator=generator).tolist(), 1.0]

    def found():
        columns = [draw_at(probs * 3, number) for number in numbers]
        return (
            columns,
            residual_of(probs, drafted, words, 0.7),
            residual_of(probs, probs.roll(1), None),
        )

    with monkeypatch.context() as numpy:
        numpy.setattr(runtime, "loaded", lambda _: None)
        columns, *rests = found()
    compiled, *others = found()
    assert compiled == columns
    torch.testing.assert_close(others, rests)
    equal, total = residual_of(probs, probs, None)
    assert torch.equal(equal, probs)
    assert total == 0


def test_winners_have_the_distribution_and_do_not_depend_on_their_neighbours():
    """Chi-square of 100,000 draws over seeds and positions, of single ones and of neighbouring pairs."""
    draws = 100_000
    seeds, positions = 100, draws // 100
    keys = [Tickets(seed).key(position) for seed in range(seeds) for position in range(positions)]
    all_positions = Tickets(0)
    all_positions.key = lambda _: np.array(keys, dtype=np.uint64)[:, None]
    uniforms = all_positions._uniforms(0, np.tile(np.arange(4), (draws, 1)))
    found = (-np.log1p(-uniforms) / TARGET.double().numpy()).argmin(axis=1)
    of_seed = found[3 * positions :].tolist()
    assert [Tickets(3).winner(TARGET, at) for at in range(50)] == of_seed[:50]
    counts = np.bincount(found, minlength=4)
    assert chi_square_p(counts.tolist(), (draws * TARGET).tolist()) > 1e-4
    grid = found.reshape(seeds, positions)
    for one, other in ((grid[:, 1:], grid[:, :-1]), (grid[1:], grid[:-1])):
        pairs = np.bincount((4 * one + other).ravel(), minlength=16)
        expected = (TARGET[:, None] * TARGET).flatten() * one.size
        assert chi_square_p(pairs.tolist(), expected.tolist()) > 1e-4


def test_drawn_tokens_are_accepted_as_often_as_the_bound_says():
    distance = float((TARGET - DRAFT).abs().sum() / 2)
    tickets = Tickets(5)
    same = [tickets.winner(TARGET, at) == tickets.winner(DRAFT, at) for at in range(4_000)]
    share = sum(same) / len(same)
    assert (1 - distance) / (1 + distance) - 0.03 < share < 1 - distance + 0.03
    wins = [1 / torch.maximum(TARGET / TARGET[x], DRAFT / DRAFT[x]).sum() for x in range(4)]
    assert share == pytest.approx(float(sum(wins)), abs=0.03)


def text_of(drafter, seed):
    shaper = Shaper(Sampling(1.0, seed=seed), Tickets(seed))
    return output_ids(list(steps_of(Table(4, 3), drafter, [0, 1], 5, shaper=shaper)))


def every_draft():
    """All chains of at most three of three words, and all trees of two or three nodes that are none."""
    for length in (1, 2, 3):
        for token_ids in itertools.product(range(3), repeat=length):
            yield Proposal.chain(token_ids)
    for parents in ((-1, -1), (-1, -1, 0), (-1, -1, 1), (-1, 0, 0), (-1, 0, -1), (-1, -1, -1)):
        for token_ids in itertools.product(range(3), repeat=len(parents)):
            if len({*zip(parents, token_ids, strict=True)}) == len(parents):
                yield Proposal(token_ids, parents)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_seed_has_one_text_whatever_is_drafted(seed):
    """Enumeration of every chain and tree of up to three nodes, drafted in every step."""
    plain = text_of(Plain(), seed)
    assert text_of(Plain(), seed + 1) != plain
    for draft in every_draft():
        script = Scripted(lambda _, budget, draft=draft: draft if budget >= 3 else Proposal())
        assert text_of(script, seed) == plain


def test_verdicts_report_tickets_of_tested_tokens():
    tickets, position = Tickets(1), 9
    rows = TARGET.expand(4, 4)
    first, second = (tickets.winner(TARGET, position + depth) for depth in (0, 1))
    wrong = (second + 1) % 4
    verdict = verify_coupled(Proposal.chain((first, wrong, 0)), rows, tickets, position)
    assert verdict.path == (0,)
    assert (verdict.next_id, verdict.kind) == (second, Status.CORRECTION)
    assert verdict.accept_probs == (1.0, 0.0, None)
    places = ((position, first), (position + 1, wrong), None, (position + 1, second))
    assert verdict.tickets == tuple(place and tickets.ticket(*place) for place in places)
    assert verdict.next_prob == pytest.approx(float(TARGET[second]))
