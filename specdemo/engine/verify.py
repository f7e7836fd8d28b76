"""The acceptance rules. Pure functions: tensors and a random generator in, a Verdict out.

Both walks start at the pending token and go down the tree of drafted nodes; a chain is a tree of width one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from specdemo.config.settings import BLOCK, TOKEN
from specdemo.engine.sampling import Shaper, TargetRows, Tickets, draw, likeliest, residual_of
from specdemo.engine.types import Proposal, Verdict
from specdemo.trace.events import Status

# The target's distributions, of which a verifier reads as few as it can; a tensor has them all, (1 + N, V) float32 on the CPU.
Rows = TargetRows | Tensor
# Checks a draft when sampling: (proposal, target_probs, generator) to a verdict.
Verifier = Callable[[Proposal, Rows, torch.Generator], Verdict]
# Tested nodes: the probability to be accepted, and the uniform number of the test.
Tests = Mapping[int, tuple[float, float]]


def verify(
    proposal: Proposal,
    rows: TargetRows,
    shaper: Shaper,
    verifier: Verifier,
    generator: torch.Generator,
    position: int,
) -> Verdict:
    """Check a proposal greedily, with the shaper's tickets, or else with `verifier`.

    position: of the first drafted token in the text
    """
    if shaper.sampling.greedy:
        return verify_greedy(proposal, rows)
    if shaper.tickets:
        return verify_coupled(proposal, rows, shaper.tickets, position)
    return verifier(proposal, rows, generator)


def verify_greedy(proposal: Proposal, rows: TargetRows) -> Verdict:
    """Accept the tokens that the target would have chosen; the output equals plain greedy decoding."""
    return _equal(proposal, rows.probs, lambda row, _: int(likeliest(rows.shaped(row))))


def verify_coupled(
    proposal: Proposal, target_probs: Rows, tickets: Tickets, position: int
) -> Verdict:
    """Accept the tokens that the target draws with its tickets; the output equals plain decoding's with the same seed.

    position: of the first drafted token in the text

    A drafter that draws with the same tickets is accepted with at least (1 - TV) / (1 + TV), where TV is the total
    variation distance of both distributions (Daliri 2408.07978). How a token was drafted has no effect on the text.
    """

    def ticket(depth: int, token_id: int) -> float:
        return tickets.ticket(position + depth, token_id)

    return _equal(
        proposal,
        target_probs.__getitem__,
        lambda row, depth: tickets.winner(target_probs[row], position + depth),
        ticket,
    )


def _equal(
    proposal: Proposal,
    probs: Callable[[int], Tensor],
    choice: Callable[[int, int], int],
    ticket: Callable[[int, int], float] | None = None,
) -> Verdict:
    """Accept drafted tokens from the root down while the target chooses them.

    probs(row): the target's distribution, (V,), numbered as in `TargetRows`
    choice(row, depth): the token that the target chooses there, after a path of `depth` drafted tokens
    ticket(depth, token_id): that of a token there, to be shown
    """
    accept: list[float | None] = [None] * len(proposal)
    tickets: list[float | None] = [None] * len(proposal)
    path: list[int] = []
    while True:
        node, refused = path[-1] if path else -1, False
        chosen = choice(node + 1, len(path))
        for child in proposal.children(node):
            token_id = proposal.token_ids[child]
            accept[child] = float(token_id == chosen)
            if ticket:
                tickets[child] = ticket(len(path), token_id)
            if accept[child]:
                path.append(child)
                break
            refused = True
        else:
            break
    return Verdict(
        tuple(path),
        chosen,
        _kind(proposal, refused),
        tuple(accept),
        (None,) * len(proposal),
        _node_probs(proposal, probs, path),
        float(probs(node + 1)[chosen]),
        tickets=(*tickets, ticket(len(path), chosen)) if ticket else (),
    )


def verify_sampling(proposal: Proposal, target_probs: Rows, generator: torch.Generator) -> Verdict:
    """Accept drafted tokens so that the committed ones are distributed exactly as the target's own draws.

    Speculative sampling (Leviathan 2211.17192, Chen 2302.01318), extended to siblings (SpecInfer 2305.09781).
    `left` is the rest of the target's distribution at a node. A child is accepted with probability
    min(1, left[x] / drawn_from[x]); when refused, `left` becomes normalised max(left - drawn_from, 0).
    A chosen node was "drawn" from a distribution with all its weight on it.

        left = (.5, .3, .2)   drawn_from = (.2, .6, .2)   drafted x = 1
        accepted with .3 / .6 = 1/2; when refused, left = (.3, 0, 0) / .3 = (1, 0, 0)
    """
    tests: dict[int, tuple[float, float]] = {}
    path: list[int] = []
    while True:
        node, refused = path[-1] if path else -1, False
        left = target_probs[node + 1]
        for child in proposal.children(node):
            drawn_prob = proposal.drawn_prob(child)
            share = float(left[proposal.token_ids[child]])
            chance = min(1.0, share if drawn_prob is None else share / drawn_prob)
            uniform = float(torch.rand((), generator=generator))
            tests[child] = chance, uniform
            if uniform < chance:
                path.append(child)
                break
            refused = True
            left, _ = _residual(left, proposal, child)
        else:
            break
    return _sampled(proposal, target_probs, path, tests, left if refused else None, generator)


def verify_block(proposal: Proposal, target_probs: Rows, generator: torch.Generator) -> Verdict:
    """Check a drawn chain as a whole: as exact as `verify_sampling`, with at least as many accepted tokens on average.

    It reads the rows of all nodes but the last.

    Block verification (Sun 2403.10444). A token that the draft overrates costs nothing when the tokens after it
    make up for it. Trees, copies and chosen tokens are checked by `verify_sampling`.

        target (1/3, 2/3) and draft (2/3, 1/3) at both positions, drafted 0, 1
        token by token   0 is accepted with 1/2, then 1 with 1; both with 1/2
        as a block       both are accepted with min(1, 1/2 x 2) = 1

    The chain is walked from the front here, each token with its probability given the whole draft.
    """
    if proposal.drawn_from is None or not proposal.chained or len(proposal) < 2:
        return verify_sampling(proposal, target_probs, generator)
    prefixes, keep = _block(proposal, target_probs)
    tests: dict[int, tuple[float, float]] = {}
    path: list[int] = []
    residual = None
    for node in range(len(proposal)):
        chance = min(1.0, keep[node] / (keep[node - 1] if node else 1.0))
        uniform = float(torch.rand((), generator=generator))
        tests[node] = chance, uniform
        if uniform >= chance:
            residual, _ = _residual(target_probs[node], proposal, node, prefixes[node])
            break
        path.append(node)
    return _sampled(proposal, target_probs, path, tests, residual, generator, tuple(keep))


def _block(proposal: Proposal, probs: Rows) -> tuple[list[float], list[float]]:
    """Return the probabilities for the check of a drawn chain of N tokens as a block.

    probs: the target's
    returns: N + 1 prefixes and N probabilities to accept
        prefixes[i]: probability to accept the first i tokens, independent of the next ones: the product of
            target / drawn_from over them, never above 1 on the way
        keep[i]: probability to accept token i and all before it, given the whole draft; falls with i
    """
    prefixes = [1.0]
    for node, token in enumerate(proposal.token_ids):
        drawn = proposal.drawn_prob(node)
        share = float(probs[node][token]) / (1.0 if drawn is None else drawn)
        prefixes.append(min(1.0, prefixes[-1] * share))
    keep = [prefixes[-1]]
    for node in range(len(proposal) - 1, 0, -1):
        prefix = prefixes[node]
        _, left = _residual(probs[node], proposal, node, prefix)
        # Probability that the draft ends before `node` if no more is accepted; 1 if the next is always accepted.
        ends = left / (left + 1 - prefix) if left + 1 - prefix > 0 else 1.0
        keep.append(ends + (1 - ends) * keep[-1])
    return prefixes, keep[::-1]


VERIFIERS: Mapping[str, Verifier] = {TOKEN: verify_sampling, BLOCK: verify_block}


def _sampled(
    proposal: Proposal,
    probs: Rows,
    path: Sequence[int],
    tests: Tests,
    residual: Tensor | None,
    generator: torch.Generator,
    block_probs: tuple[float, ...] = (),
) -> Verdict:
    """The verdict after a walk, with the target's own token drawn. residual: after a refusal"""
    row = probs[path[-1] + 1 if path else 0]
    next_id = draw(row if residual is None else residual, generator)
    reached = range(len(proposal)) if block_probs else path
    node_probs = _node_probs(proposal, probs.__getitem__, reached)
    tested = [tests.get(node, (None, None)) for node in range(len(proposal))]
    return Verdict(
        tuple(path),
        next_id,
        _kind(proposal, residual is not None),
        tuple(chance for chance, _ in tested),
        tuple(uniform for _, uniform in tested),
        node_probs,
        float(row[next_id]),
        residual,
        block_probs,
    )


def _node_probs(
    proposal: Proposal, probs: Callable[[int], Tensor], reached: Sequence[int]
) -> tuple[float | None, ...]:
    """Return the target's probability of each node that follows the pending token or a reached node; None for others.

    probs(row): (V,); rows of other nodes are not read
    """
    found: list[float | None] = [None] * len(proposal)
    for node in (-1, *reached):
        if children := proposal.children(node):
            row, tokens = probs(node + 1), [proposal.token_ids[child] for child in children]
            values = row[tokens].tolist() if len(tokens) > 1 else [float(row[tokens[0]])]
            for child, prob in zip(children, values, strict=True):
                found[child] = prob
    return tuple(found)


def _residual(
    left: Tensor, proposal: Proposal, node: int, scale: float = 1.0
) -> tuple[Tensor, float]:
    """Return the residual distribution after a node was refused, and its sum before it was normalised; see `residual_of`."""
    row = None if proposal.drawn_from is None else proposal.drawn_from[node]
    if row is None:  # no probability is larger than its one
        return residual_of(left, torch.ones(1), torch.tensor([proposal.token_ids[node]]), scale)
    return residual_of(left, row, proposal.words.ids if proposal.words else None, scale)


def _kind(proposal: Proposal, refused: bool) -> Status:  # noqa: FBT001 - two facts, one answer
    if not len(proposal):
        return Status.PLAIN
    return Status.CORRECTION if refused else Status.BONUS
