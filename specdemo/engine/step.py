"""One step of the loop, and its events: the draft and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specdemo.engine.clock import Cancelled, Stopwatch, never
from specdemo.engine.passes import ForwardOutput
from specdemo.engine.sampling import TargetRows, Tickets
from specdemo.engine.types import Drafter, Limits, Outcome, Proposal, Verdict
from specdemo.trace.events import (
    Choice,
    Drafted,
    FinishReason,
    Node,
    Origin,
    Place,
    Status,
    Verified,
)


class Step:
    """A step's values, in the order in which the loop sets them, and the times of its three stages.

    draft, check, commit: no stage contains an event, so a slow viewer cannot change a time
    nodes: the proposal's, before the check
    rows: the target's
    new_ids: committed tokens
    """

    proposal: Proposal
    nodes: tuple[Node, ...]
    output: ForwardOutput
    rows: TargetRows
    verdict: Verdict
    new_ids: tuple[int, ...]

    def __init__(
        self,
        lane: str,
        number: int = -1,
        earlier: float = 0.0,
        cancelled: Callable[[], bool] = never,
        *,
        alone: bool = False,
    ) -> None:
        self.lane, self.number, self._earlier = lane, number, earlier
        self.draft = Stopwatch(cancelled, drafting=True)
        self.check = Stopwatch(alone=alone)
        self.commit = Stopwatch()

    def next(self, cancelled: Callable[[], bool], *, alone: bool) -> Step:
        """Return the step after this one. cancelled: checked while drafting; alone: see `ForwardRequest`"""
        return Step(self.lane, self.number + 1, self.elapsed, cancelled, alone=alone)

    def propose(
        self, drafter: Drafter, committed: Sequence[int], budget: int
    ) -> FinishReason | None:
        """Draft at most `budget` tokens deep. Returns why the run ends, if it was cancelled meanwhile."""
        try:
            with self.draft:
                self.proposal = drafter.propose(committed, budget)
        except Cancelled:
            return FinishReason.CANCELLED
        return None

    def cut(self, limits: Limits, num_new: int) -> FinishReason | None:
        """Commit the accepted tokens and the target's own within the limits. Returns why the run ends, if it does.

        num_new: tokens of earlier steps
        """
        ids = [self.proposal.token_ids[node] for node in self.verdict.path]
        self.new_ids, reason = limits.cut(num_new, [*ids, self.verdict.next_id])
        return reason

    @property
    def path(self) -> tuple[int, ...]:
        """Committed nodes, root first."""
        return self.verdict.path[: len(self.new_ids)]

    @property
    def kept(self) -> tuple[int, ...]:
        """Nodes to cache: the last committed id stays pending, even if it is a drafted one that ended the run."""
        return self.path if len(self.new_ids) > len(self.path) else self.path[:-1]

    @property
    def elapsed(self) -> float:
        """Seconds of this and all earlier steps, including the wait for other runs."""
        return self._earlier + self.draft.total + self.check.total + self.commit.total

    def outcome(self) -> Outcome:
        """Return the result for the drafter."""
        sharing = self.output.sharing
        drafting = sharing.runs * self.draft.fair_seconds
        return Outcome(
            self.new_ids, self.proposal, self.verdict, drafting, self.check.seconds, sharing
        )

    def drafted(self) -> Drafted:
        """Return the event before the check."""
        proposal, self.nodes = self.proposal, drafted_nodes(self.proposal)
        return Drafted(
            self.lane,
            self.number,
            proposal.lookahead,
            proposal.dropped,
            self.nodes,
            self.draft.seconds,
            proposal.source,
            proposal.expected_tokens,
            proposal.expected_seconds,
            proposal.hit,
            proposal.saved_seconds,
            proposal.reasons or None,
        )

    def verified(self, detail: int, tickets: Tickets | None, position: int) -> Verified:
        """Return the event after the check.

        detail: number of alternatives for each position
        tickets: None if target and drafter do not share their noise; position: of the first drafted token in the text
        """
        path, verdict, runs = self.path, self.verdict, self.output.sharing.runs
        own = Node(
            verdict.next_id,
            status=verdict.kind,
            target_prob=verdict.next_prob,
            ticket=verdict.tickets[-1] if verdict.tickets else None,
        )
        return Verified(
            self.lane,
            self.number,
            self._checked_nodes(),
            path,
            own if len(self.new_ids) > len(path) else None,
            self.draft.seconds,
            self.check.total + self.draft.waited,
            self.commit.seconds,
            self.elapsed,
            runs if runs > 1 else None,
            self._alternatives(detail, tickets, position) if detail else None,
        )

    def _checked_nodes(self) -> tuple[Node, ...]:
        """Return the step's nodes with their status."""
        verdict, committed = self.verdict, set(self.path)

        def status(node: int) -> Status:
            if node in committed:
                return Status.ACCEPTED
            chance = verdict.accept_probs[node]
            return Status.UNREACHED if chance is None or node in verdict.path else Status.REJECTED

        return tuple(
            replace(
                node,
                status=status(index),
                target_prob=verdict.target_probs[index],
                accept_prob=verdict.accept_probs[index],
                draw=verdict.draws[index],
                block_prob=verdict.block_probs[index] if verdict.block_probs else None,
                ticket=verdict.tickets[index] if verdict.tickets else None,
            )
            for index, node in enumerate(self.nodes)
        )

    def _alternatives(self, most: int, tickets: Tickets | None, position: int) -> tuple[Place, ...]:
        """Return the most likely tokens of both models at the committed positions, root first; it is not timed.

        most: tokens of each distribution; tickets, position: as for `verified`
        """
        proposal, nodes = self.proposal, (-1, *self.path)
        found = []
        for place, node in enumerate(nodes, start=position):
            child = next(iter(proposal.children(node)), None)
            draft = None if child is None else proposal.all_probs(child)
            residual = self.verdict.residual if node == nodes[-1] else None
            found.append(
                Place(
                    node,
                    _most_likely(self.rows.probs(node + 1), most, tickets, place),
                    _most_likely(draft, most, tickets, place),
                    _most_likely(residual, most),
                )
            )
        return tuple(found)


def drafted_nodes(proposal: Proposal) -> tuple[Node, ...]:
    """Return the nodes of a proposal with all that is known of them before the check."""
    unknown = (None,) * len(proposal)
    confidences, survivals = proposal.confidences or unknown, proposal.survivals or unknown
    drawn_probs = map(proposal.drawn_prob, range(len(proposal)))
    return tuple(
        Node(
            token_id,
            parent=parent,
            draft_prob=drawn_prob,
            survival=survivals[index],
            confidence=confidences[index],
            origin=Origin.CHOSEN if drawn_prob is None else Origin.DRAWN,
        )
        for index, (token_id, parent, drawn_prob) in enumerate(
            zip(proposal.token_ids, proposal.parents, drawn_probs, strict=True)
        )
    )


def _most_likely(
    probs: Tensor | None, most: int, tickets: Tickets | None = None, position: int = 0
) -> tuple[Choice, ...]:
    """Return the largest non-zero entries of a distribution, (V,), with the tickets of their tokens; empty without one."""
    if probs is None:
        return ()
    top = torch.topk(probs, min(most, len(probs)))
    return tuple(
        Choice(token, prob, ticket=tickets.ticket(position, token) if tickets else None)
        for token, prob in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        if prob > 0
    )
