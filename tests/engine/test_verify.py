"""The verifiers against exact enumeration and against statistics."""

import itertools
from functools import cache

import pytest
import torch
from toy import DRAFT, TARGET

from specdemo.bench.statistics import chi_square_p
from specdemo.config.settings import BLOCK, COUPLED, Sampling, field
from specdemo.engine.sampling import ReducedVocabulary, Shaper, TargetRows, TextTokens, Tickets
from specdemo.engine.types import Proposal
from specdemo.engine.verify import (
    VERIFIERS,
    _residual,
    verify,
    verify_block,
    verify_greedy,
    verify_sampling,
)
from specdemo.trace.events import Status

pytestmark = pytest.mark.usefixtures("code")


@pytest.fixture
def outcomes(monkeypatch):
    """A function that yields every outcome of a check: (its probability, verdict)."""

    def of(verifier, proposal, rows):
        scripts = [()]
        while scripts:
            script = scripts.pop()
            numbers = iter(script)  # 0 accepts the next node that is tested, 1 refuses it
            with monkeypatch.context() as scripted:
                scripted.setattr(torch, "rand", lambda *_, **__: torch.tensor(next(numbers)))  # noqa: B023
                scripted.setattr("specdemo.engine.verify.draw", lambda *_: 0)
                try:
                    verdict = verifier(proposal, rows, None)
                except StopIteration:
                    scripts += [(*script, 0.0), (*script, 1.0)]
                    continue
            if len(verdict.path) < script.count(0.0):  # a token that cannot be accepted
                continue
            chance = 1.0
            for node, accept in enumerate(verdict.accept_probs):
                if accept is not None:
                    chance *= accept if node in verdict.path else 1 - accept
            yield chance, verdict

    return of


@pytest.fixture
def first_token(outcomes):
    """A function that returns the exact distribution of a step's first token, (4,), as `verify_sampling` decides."""

    def of(token_ids, draft_probs=None):
        proposal = Proposal(token_ids, (-1,) * len(token_ids), draft_probs)
        rows = TARGET.expand(1 + len(token_ids), 4)
        found = torch.zeros(4, dtype=torch.float64)
        for chance, verdict in outcomes(verify_sampling, proposal, rows):
            if verdict.path:
                found[token_ids[verdict.path[0]]] += chance
            else:
                found += chance * (TARGET if verdict.residual is None else verdict.residual)
        return found

    return of


def without(probs, token):
    rest = probs.clone()
    rest[token] = 0
    return rest / rest.sum()


def test_sampling_commits_the_target_exactly_after_siblings_drawn_without_replacement(first_token):
    committed = torch.zeros(4, dtype=torch.float64)
    for first, second in itertools.permutations(range(4), 2):
        rows = torch.stack([DRAFT, without(DRAFT, first)])
        weight = float(rows[0, first]) * float(rows[1, second])
        committed += weight * first_token((first, second), rows)
    torch.testing.assert_close(committed, TARGET.double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("chosen", list(itertools.permutations(range(4), 2)))
def test_sampling_commits_the_target_exactly_after_chosen_siblings(first_token, chosen):
    torch.testing.assert_close(first_token(chosen), TARGET.double(), atol=1e-6, rtol=0)


def test_sampling_of_equal_distributions_never_divide_by_zero():
    proposal, rows = Proposal.chain([2], draft_probs=TARGET[None]), TARGET.expand(2, 4)
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        verdict = verify_sampling(proposal, rows, generator)
        assert verdict.path == (0,)
        assert verdict.accept_probs == (1.0,)
    torch.testing.assert_close(_residual(TARGET, proposal, 0)[0], TARGET)


def test_sampling_draws_as_enumerated(first_token):
    """20,000 seeded draws of the real walk: siblings with fixed draws, chi-square at 1e-4."""
    rows = torch.stack([DRAFT, without(DRAFT, 3)])
    proposal = Proposal((3, 1), (-1, -1), draft_probs=rows)
    generator = torch.Generator().manual_seed(7)
    counts, runs = torch.zeros(4, dtype=torch.float64), 20_000
    for _ in range(runs):
        verdict = verify_sampling(proposal, TARGET.expand(3, 4), generator)
        counts[proposal.token_ids[verdict.path[0]] if verdict.path else verdict.next_id] += 1
    expected = first_token((3, 1), rows) * runs
    assert chi_square_p(counts.tolist(), expected.tolist()) > 1e-4


def test_greedy_walks_a_tree_and_reports_why_it_stopped():
    logits = torch.full((4, 5), -5.0)
    logits[0, 2] = logits[2, 4] = logits[3, 1] = 5.0

    def greedy(proposal):
        rows = TargetRows(Shaper(Sampling()), logits, TextTokens(()), proposal.paths())
        return verify_greedy(proposal, rows)

    verdict = greedy(Proposal((1, 2, 4), (-1, -1, 1)))
    assert verdict.path == (1, 2)
    assert verdict.next_id == 1
    assert verdict.kind is Status.BONUS
    assert verdict.accept_probs == (0.0, 1.0, 1.0)
    assert greedy(Proposal((0,), (-1,))).kind is Status.CORRECTION
    assert greedy(Proposal()).kind is Status.PLAIN


@pytest.mark.parametrize("accepted", range(4))
@pytest.mark.parametrize("rule", ["greedy", *VERIFIERS, COUPLED])
def test_rows_behind_a_refused_token_are_not_shaped(rule, accepted):
    """A draft of the target's likeliest tokens, then others that top-k rules out; only a block needs rows behind them."""
    logits = torch.randn(4, 64, generator=torch.Generator().manual_seed(3)) * 4
    tickets = Tickets(1) if rule == COUPLED else None
    sampling = Sampling(
        0.0 if rule == "greedy" else 0.7, top_k=1, top_p=0.9, repetition_penalty=1.3
    )
    shaper, committed = Shaper(sampling, tickets), [1, 2, 3]
    draft = []
    while len(draft) < 3:
        row = shaper.logits(logits[len(draft)][None], committed, [draft])[0]
        draft.append(int(row.argmax() if len(draft) < accepted else row.argmin()))
    proposal = Proposal.chain(draft, draft_probs=torch.full((3, 64), 1 / 64))
    rows = TargetRows(shaper, logits.clone(), TextTokens(committed), proposal.paths())
    generator = torch.Generator().manual_seed(0)
    verdict = verify(proposal, rows, shaper, VERIFIERS.get(rule), generator, 3)
    assert verdict.path == tuple(range(accepted))
    read = range(max(accepted + 1, 3 if rule == BLOCK else 0))
    assert set(rows._probs) == set(read)
    whole = shaper.probs(logits, committed, proposal.paths())
    assert all(torch.equal(rows[row], whole[row]) for row in read)
    known = [float(whole[node, draft[node]]) if node in read else None for node in range(3)]
    assert verdict.target_probs == tuple(known)


class Models:
    """A target and a draft over a few words, with a row for every text so far.

    stops: whether a draft ends after a text, in addition to its length; words: vocabulary of the draft's rows
    copies: the token that is copied after a text, None if it is drawn
    """

    def __init__(self, target, draft, stops=lambda _: False, words=None, copies=lambda _: None):
        self.target = cache(lambda text: torch.tensor(target(text)))
        self.draft = cache(lambda text: torch.tensor(draft(text)))
        self.chances = cache(lambda text: self.target(text).tolist())
        self.stops, self.words, self.copies = stops, words, copies
        self.size = len(target(()))

    def drafts(self, length, text=()):
        """Every draft of at most `length` tokens, with its probability."""
        if len(text) == length or (text and self.stops(text)):
            yield 1.0, text
            return
        if (copied := self.copies(text)) is not None:
            yield from self.drafts(length, (*text, copied))
            return
        for column, prob in enumerate(self.draft(text).tolist()):
            token = self.words.token(column) if self.words else column
            for rest, draft in self.drafts(length, (*text, token)) if prob else ():
                yield prob * rest, draft

    def distribution(self, outcomes, verifier, length):
        """The joint distribution over texts of `length` + 1 tokens, and the mean number of accepted tokens.

        Tokens after a step are the target's own.
        """
        joint = dict.fromkeys(itertools.product(range(self.size), repeat=length + 1), 0.0)
        mean = 0.0
        for weight, draft in self.drafts(length):
            prefixes = [draft[:position] for position in range(len(draft) + 1)]
            drawn_from = [
                None if self.copies(text) is not None else self.draft(text)
                for text in prefixes[:-1]
            ]
            proposal = Proposal.chain(draft, draft_probs=drawn_from, words=self.words)
            rows = torch.stack([self.target(text) for text in prefixes])
            for chance, verdict in outcomes(verifier, proposal, rows):
                accepted = draft[: len(verdict.path)]
                mean += weight * chance * len(accepted)
                own = rows[len(accepted)] if verdict.residual is None else verdict.residual
                for token, prob in enumerate(own.tolist()):
                    if weight * chance * prob:
                        for text, rest in self.texts(length + 1, (*accepted, token)):
                            joint[text] += weight * chance * prob * rest
        return torch.tensor([joint[text] for text in sorted(joint)]), mean

    def texts(self, length, begun=()):
        """Every text of that many tokens with this beginning, and its probability under the target."""
        if len(begun) == length:
            yield begun, 1.0
            return
        for token, prob in enumerate(self.chances(begun)):
            for text, rest in self.texts(length, (*begun, token)):
                yield text, prob * rest

    def plain(self, length):
        """The target's own distribution, text by text."""
        return torch.tensor([prob for _, prob in sorted(self.texts(length))])


def at_random(seed, zeros=0.0):
    """Rows that depend on the whole text before them, some of their entries without probability."""

    def row(text):
        generator = torch.Generator().manual_seed(
            1000 * seed + sum(3**i * (t + 1) for i, t in enumerate(text))
        )
        chances = torch.rand(3, generator=generator) ** 2
        chances *= torch.rand(3, generator=generator) >= zeros
        chances[seed % 3] += 0.01
        return (chances / chances.sum()).tolist()

    return row


def always(*row):
    return lambda _: list(row)


PAPER = Models(always(1 / 3, 2 / 3), always(2 / 3, 1 / 3))
MODELS = {
    "paper": PAPER,
    "random": Models(at_random(1), at_random(2)),
    "random zeros": Models(at_random(3, 0.4), at_random(4, 0.4)),
    "equal": Models(at_random(5), at_random(5)),
    "disjoint": Models(always(1.0, 0.0, 0.0), always(0.0, 0.25, 0.75)),
    "certain": Models(always(0.0, 1.0), always(0.0, 1.0)),
    "sure draft": Models(at_random(6), always(0.0, 1.0, 0.0)),
    "sure target": Models(always(0.0, 0.0, 1.0), at_random(7)),
    "first apart": Models(lambda t: [0.9, 0.1] if t else [0.1, 0.9], always(0.9, 0.1)),
    "lengths by what was drawn": Models(at_random(8), at_random(9), lambda text: text[-1] == 1),
    "fewer words": Models(
        at_random(10), always(0.75, 0.25), words=ReducedVocabulary(torch.tensor([2, 0]), 3)
    ),
    "copied on": Models(at_random(11), at_random(12), copies=lambda text: 1 if text[:1] == (2,) else None),
    "copied, not in the words": Models(
        at_random(10), always(0.75, 0.25), words=ReducedVocabulary(torch.tensor([2, 0]), 3),
        copies=lambda text: 1 if text[-1:] == (2,) else None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_block_commits_the_target_exactly_and_accepts_no_fewer_tokens(name, length, outcomes):
    """By enumeration of all drafts and of all outcomes of the verifiers."""
    models = MODELS[name]
    plain = models.plain(length + 1)
    joint, kept = models.distribution(outcomes, verify_block, length)
    by_token, kept_by_token = models.distribution(outcomes, verify_sampling, length)
    torch.testing.assert_close(joint, plain, atol=1e-6, rtol=0)
    torch.testing.assert_close(by_token, plain, atol=1e-6, rtol=0)
    assert kept >= kept_by_token - 1e-6
    if length == 1:
        assert kept == pytest.approx(kept_by_token, abs=1e-6)
    elif name in GAINS:
        assert kept > kept_by_token + 0.005


GAINS = ("paper", "random", "lengths by what was drawn", "fewer words")


def test_block_accepts_as_many_tokens_as_the_paper_says(outcomes):
    assert PAPER.distribution(outcomes, verify_sampling, 2)[1] == pytest.approx(10 / 9)
    assert PAPER.distribution(outcomes, verify_block, 2)[1] == pytest.approx(11 / 9)
    drafted = Proposal.chain((0, 1), draft_probs=torch.tensor([[2 / 3, 1 / 3]] * 2))
    rows = torch.tensor([[1 / 3, 2 / 3]] * 3)
    generator = torch.Generator().manual_seed(0)
    assert verify_block(drafted, rows, generator).block_probs == pytest.approx((1, 1))


def test_block_checks_all_but_drawn_chains_token_by_token():
    """Also a tree that happens to be a chain: the drawn tokens may have decided whether it became one."""
    rows = torch.softmax(torch.randn(3, 4, generator=torch.Generator().manual_seed(2)), dim=-1)
    drawn = torch.stack([DRAFT, DRAFT])
    for proposal in (
        Proposal((3, 1), (-1, -1), draft_probs=drawn),
        Proposal((3, 1), (-1, 0), draft_probs=drawn),
        Proposal.chain((3, 1)),
        Proposal.chain((3, 1), draft_probs=drawn, chosen=True),
        Proposal.chain((3,), draft_probs=drawn[:1]),
        Proposal(),
    ):
        for seed in range(5):
            verdicts = [
                verifier(proposal, rows[: 1 + len(proposal)], torch.Generator().manual_seed(seed))
                for verifier in (verify_block, verify_sampling)
            ]
            assert verdicts[0].block_probs == ()
            assert str(verdicts[0]) == str(verdicts[1])


def test_verifiers_cover_every_setting():
    assert (*VERIFIERS, COUPLED) == field("verification").choices
