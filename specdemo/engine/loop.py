"""The loop: draft, verify, commit. Plain decoding is this loop with a drafter that proposes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from specdemo.engine.clock import StepClock
from specdemo.engine.detail import places
from specdemo.engine.forward import ForwardRequest, Requesting, Sharing, answer_together
from specdemo.engine.limits import Limits
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Drafter, Outcome, Proposal, TargetOutput, Verdict
from specdemo.engine.verify import Verifier, verify_greedy, verify_sampling
from specdemo.trace.events import (
    Drafted,
    Event,
    FinishReason,
    Node,
    Origin,
    RunFinished,
    RunStarted,
    Status,
    Verified,
)

Result = TypeVar("Result")


def generate(*arguments: Any, **options: Any) -> Iterator[Event]:
    """The events of a run of its own, see `steps`: nobody shares its passes."""
    for item in steps(*arguments, **options):
        if isinstance(item, ForwardRequest):
            answer_together([item])
        else:
            yield item


def steps(
    target: CachedModel,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    *,
    shaper: Shaper,
    limits: Limits,
    started: RunStarted,
    cancelled: Callable[[], bool] = lambda: False,
    detail: int = 0,
    verifier: Verifier = verify_sampling,
) -> Generator[Event | ForwardRequest, None, None]:
    """Decode one lane, a step at a time. Each request must be answered before the next item is taken.

    started: the lane's header; its prompt counts and times are filled in here
    cancelled: asked before each step, and before each pass that reads the prompt or drafts
    detail: alternatives to report for each position that was reached; 0 for none
    verifier: judges drafts while sampling

    Invariant: the target has cached `committed[:-1]`; the last id is pending. The drafter is closed in any case.
    """
    committed = list(prompt_ids)
    generator = torch.Generator().manual_seed(shaper.sampling.seed)
    begun = time.perf_counter()
    cached = min(target.length, len(committed) - 1)
    target.rollback(cached)
    try:
        read = yield from _unless(cancelled, _reading(target, drafter, committed, cached))
        yield replace(
            started,
            prompt_tokens=len(committed),
            cached_tokens=cached,
            prefill_seconds=time.perf_counter() - begun,
        )
        lane, step, elapsed = started.lane, 0, 0.0
        num_prompt, reason = len(committed), None if read else FinishReason.CANCELLED
        while reason is None:
            if cancelled():
                reason = FinishReason.CANCELLED
                break
            clock = StepClock()
            with clock.running():
                budget = limits.budget(len(committed) - num_prompt)
                drafting = clock.draft.of(_for_draft(drafter.propose(committed, budget)))
                proposal = yield from _unless(cancelled, drafting)
            if proposal is None:
                reason = FinishReason.CANCELLED
                break
            drafted = _drafted(proposal)
            yield Drafted(
                lane,
                step,
                proposal.lookahead,
                proposal.reason,
                drafted,
                clock.draft.seconds,
                proposal.source,
                proposal.expected_tokens,
                proposal.expected_seconds,
                proposal.hit,
                proposal.saved_seconds,
            )
            with clock.running():
                verifying = _verify(
                    target, drafter, proposal, committed, shaper, verifier, generator
                )
                sharing, shaped, verdict = yield from clock.verify.of(verifying)
                new_ids, reason = _new_ids(proposal, verdict, limits, len(committed) - num_prompt)
                path = verdict.path[: len(new_ids)]
                # The last committed id stays pending: when the draft itself ended the run, its last token is not kept.
                kept = path if len(new_ids) > len(path) else path[:-1]
                target.keep(kept)
                committed += new_ids
                drafter.observe(
                    Outcome(
                        new_ids,
                        proposal,
                        verdict,
                        sharing.runs * clock.draft.share,
                        clock.verify.seconds,
                        sharing,
                    )
                )
            elapsed += clock.total
            yield Verified(
                lane,
                step,
                _judged(drafted, verdict, path),
                path,
                _own_token(verdict) if len(new_ids) > len(path) else None,
                clock.draft.seconds,
                clock.until_judged,
                clock.overhead,
                elapsed,
                sharing.runs if sharing.runs > 1 else None,
                places(proposal, verdict, shaped, path, detail) if detail else None,
            )
            step += 1
        yield RunFinished(lane, reason, len(committed) - num_prompt, elapsed)
    finally:
        drafter.close()


def _unless(cancelled: Callable[[], bool], work: Requesting[Result]) -> Requesting[Result | None]:
    """Do work until somebody cancels it before a pass that it needs. returns: its result; None where that happened"""
    with closing(work):
        while True:
            try:
                request = next(work)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if cancelled():
                return None
            yield request


def _reading(
    target: CachedModel, drafter: Drafter, prompt_ids: Sequence[int], cached: int
) -> Requesting[bool]:
    """Read a prompt but for its last token: what of it is not cached, then the drafter's part. returns: True"""
    yield from target.reading(prompt_ids[cached:-1])
    yield from _for_draft(drafter.start(prompt_ids))
    return True


def _for_draft(work: Requesting[Result]) -> Requesting[Result]:
    """Mark what a drafter asks for, see `ForwardRequest`."""
    try:
        while True:
            request = next(work)
            request.drafting = True
            yield request
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        work.close()


def _verify(
    target: CachedModel,
    drafter: Drafter,
    proposal: Proposal,
    committed: Sequence[int],
    shaper: Shaper,
    verifier: Verifier,
    generator: torch.Generator,
) -> Requesting[tuple[Sharing, Tensor, Verdict]]:
    """Who shared the target's pass, its answers as the logits that are judged by, and the verdict."""
    drafter.verifying(proposal)
    output = yield from target.judging(committed[-1], proposal)
    shaped = _shaped(output, proposal, committed, shaper)
    return output.sharing, shaped, _judge(shaped, proposal, shaper, verifier, generator)


def _shaped(
    output: TargetOutput, proposal: Proposal, committed: Sequence[int], shaper: Shaper
) -> Tensor:
    """The target's answers as the logits that are judged by: (1 + N, V) float32."""
    paths = [
        [],
        *([proposal.token_ids[i] for i in proposal.path_to(n)] for n in range(len(proposal))),
    ]
    return shaper.logits(output.logits, committed, paths)


def _judge(
    shaped: Tensor,
    proposal: Proposal,
    shaper: Shaper,
    verifier: Verifier,
    generator: torch.Generator,
) -> Verdict:
    if shaper.sampling.greedy:
        return verify_greedy(proposal, shaped)
    return verifier(proposal, shaped.softmax(dim=-1), generator)


def _new_ids(
    proposal: Proposal, verdict: Verdict, limits: Limits, num_new: int
) -> tuple[tuple[int, ...], FinishReason | None]:
    ids = [proposal.token_ids[node] for node in verdict.path]
    return limits.cut(num_new, [*ids, verdict.next_id])


def _drafted(proposal: Proposal) -> tuple[Node, ...]:
    """The nodes of a proposal with all that is known of them before the verdict."""
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


def _judged(drafted: Sequence[Node], verdict: Verdict, path: Sequence[int]) -> tuple[Node, ...]:
    """The step's nodes with their fate; `path` is what was committed of the accepted path."""
    kept = set(path)

    def status(node: int) -> Status:
        if node in kept:
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
        )
        for index, node in enumerate(drafted)
    )


def _own_token(verdict: Verdict) -> Node:
    return Node(verdict.next_id, status=verdict.kind, target_prob=verdict.next_prob)
