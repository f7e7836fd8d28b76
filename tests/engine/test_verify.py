"""The verifiers against exact enumeration and against statistics."""

from __future__ import annotations

import itertools

import pytest
import torch

from specdemo.engine.types import Proposal
from specdemo.engine.verify import _residual, verify_greedy, verify_sampling
from specdemo.trace.events import Status

TARGET = torch.tensor([0.45, 0.3, 0.15, 0.1])
DRAFT = torch.tensor([0.1, 0.2, 0.3, 0.4])


def exact_commit(
    target: torch.Tensor, nodes: list[tuple[int, torch.Tensor | None]]
) -> torch.Tensor:
    """The exact distribution of the next committed token, given the siblings that were drafted, in order."""
    result = torch.zeros_like(target, dtype=torch.float64)
    left, alive = target, 1.0
    for token, drawn in nodes:
        accept = min(1.0, float(left[token]) / (float(drawn[token]) if drawn is not None else 1.0))
        result[token] += alive * accept
        alive *= 1 - accept
        left = _residual(left, drawn, token)
    return result + alive * left.double()


def test_one_drawn_token_commits_the_target_exactly():
    committed = sum(float(DRAFT[x]) * exact_commit(TARGET, [(x, DRAFT)]) for x in range(4))
    torch.testing.assert_close(committed, TARGET.double(), atol=1e-6, rtol=0)


def test_siblings_drawn_without_replacement_commit_the_target_exactly():
    committed = torch.zeros(4, dtype=torch.float64)
    for first in range(4):
        rest = DRAFT.clone()
        rest[first] = 0
        rest = rest / rest.sum()
        for second in range(4):
            weight = float(DRAFT[first]) * float(rest[second])
            if weight:
                committed += weight * exact_commit(TARGET, [(first, DRAFT), (second, rest)])
    torch.testing.assert_close(committed, TARGET.double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("chosen", list(itertools.permutations(range(4), 2)))
def test_chosen_siblings_commit_the_target_exactly(chosen):
    committed = exact_commit(TARGET, [(token, None) for token in chosen])
    torch.testing.assert_close(committed, TARGET.double(), atol=1e-6, rtol=0)


def test_equal_distributions_never_divide_by_zero():
    rows = TARGET.expand(2, 4)
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        verdict = verify_sampling(
            Proposal.chain([2], draft_probs=TARGET[None].clone()), rows, generator
        )
        assert verdict.path == (0,)
        assert verdict.accept_probs == (1.0,)
    torch.testing.assert_close(_residual(TARGET, TARGET, 1), TARGET)


def test_verifier_draws_match_the_enumeration():
    """20,000 seeded draws of the real walk: siblings with fixed draws, chi-square at 1e-4."""
    rest = DRAFT.clone()
    rest[3] = 0
    rest = rest / rest.sum()
    proposal = Proposal((3, 1), (-1, -1), draft_probs=torch.stack([DRAFT, rest]))
    rows = TARGET.expand(3, 4)
    generator = torch.Generator().manual_seed(7)
    counts = torch.zeros(4, dtype=torch.float64)
    runs = 20_000
    for _ in range(runs):
        verdict = verify_sampling(proposal, rows, generator)
        counts[proposal.token_ids[verdict.path[0]] if verdict.path else verdict.next_id] += 1
    expected = exact_commit(TARGET, [(3, DRAFT), (1, rest)]) * runs
    used = expected > 0
    assert (
        float((counts[used] - expected[used]).pow(2).div(expected[used]).sum()) < 21.1
    )  # 3 degrees, p = 1e-4
    assert counts[~used].sum() == 0


def test_greedy_walks_a_tree_and_says_why_it_stopped():
    logits = torch.full((4, 5), -5.0)
    logits[0, 2] = logits[2, 4] = logits[3, 1] = 5.0
    tree = Proposal((1, 2, 4), (-1, -1, 1))
    verdict = verify_greedy(tree, logits)
    assert verdict.path == (1, 2)
    assert verdict.next_id == 1
    assert verdict.kind is Status.BONUS
    assert verdict.accept_probs == (0.0, 1.0, 1.0)
    assert verify_greedy(Proposal((0,), (-1,)), logits[:2]).kind is Status.CORRECTION
    assert verify_greedy(Proposal(), logits[:1]).kind is Status.PLAIN
