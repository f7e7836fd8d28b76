"""The loop: draft, verify, commit. Plain decoding is this loop with a drafter that proposes nothing.

Invariant: the target has cached `committed[:-1]`; the last id is pending. The drafter is closed however a run ends,
and no error of it ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from specdemo.engine.clock import Cancelled, Stopwatch, never
from specdemo.engine.sampling import Shaper, TargetRows, TextTokens
from specdemo.engine.step import Step
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Drafter, Limits, Outcome, Proposal, depths
from specdemo.engine.verify import Verifier, verify, verify_sampling
from specdemo.trace.events import DROPPED, Event, FinishReason, Reason, RunFinished, RunStarted

Result = TypeVar("Result")


def generate(
    target: CachedModel,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    *,
    shaper: Shaper,
    limits: Limits,
    started: RunStarted,
    cancelled: Callable[[], bool] = never,
    alone: bool = False,
    detail: int = 0,
    verifier: Verifier = verify_sampling,
) -> Generator[Event, None, None]:
    """Decode after a prompt, a step at a time.

    started: the run's header, completed here; detail: alternatives to report for each position
    cancelled: checked before each step, and before each pass that reads the prompt or drafts
    alone: whether the target's passes are not shared; verifier: checks drafts when sampling
    """
    drafter = GuardedDrafter(drafter, target.vocabulary_size, limits.stop_ids)
    committed, num_prompt = list(prompt_ids), len(prompt_ids)
    text = TextTokens(committed)
    generator = torch.Generator().manual_seed(shaper.sampling.seed)
    step = Step(started.lane)
    try:
        header, reason = _prefill(target, drafter, prompt_ids, started, cancelled, alone=alone)
        yield header
        while reason is None:
            step, num_new = step.next(cancelled, alone=alone), len(committed) - num_prompt
            if reason := step.propose(drafter, committed, limits.budget(num_new)):
                break
            yield step.drafted()
            with step.check:
                drafter.verifying(step.proposal)
                step.output = target.forward(committed[-1], step.proposal)
                step.rows = TargetRows(shaper, step.output.logits, text, step.proposal.paths())
                step.verdict = verify(
                    step.proposal, step.rows, shaper, verifier, generator, len(committed)
                )
            with step.commit:
                reason = step.cut(limits, num_new)
                target.keep(step.kept)
                committed += step.new_ids
                text.add(step.new_ids)
                drafter.observe(step.outcome())
            yield step.verified(detail, shaper.tickets, num_prompt + num_new)
        yield RunFinished(started.lane, reason, len(committed) - num_prompt, step.elapsed)
    finally:
        drafter.close()


def _prefill(
    target: CachedModel,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    started: RunStarted,
    cancelled: Callable[[], bool],
    *,
    alone: bool,
) -> tuple[RunStarted, FinishReason | None]:
    """Read the new part of the prompt without its last token. Returns the header, and why the run ends, if it does."""
    cached, reason = min(target.length, len(prompt_ids) - 1), None
    target.rollback(cached)
    with Stopwatch() as watch:
        try:
            with Stopwatch(cancelled, alone=alone):
                target.read(prompt_ids[cached:-1])
            with Stopwatch(cancelled, drafting=True):
                drafter.start(prompt_ids)
        except Cancelled:
            reason = FinishReason.CANCELLED
    started = replace(
        started,
        prompt_tokens=len(prompt_ids),
        cached_tokens=cached,
        prefill_seconds=watch.total,
    )
    return started, reason


@dataclass(eq=False)
class GuardedDrafter(Drafter):
    """Drops a drafter that raises, or makes a proposal that no target can check; then each step is one of plain decoding.

    The first proposal after that contains the error. Cancelling is no error. A draft ends at a stop token.
    """

    drafter: Drafter
    vocabulary_size: int
    stop_ids: frozenset[int] = frozenset()
    _error: str = field(default="", init=False)  # until it is reported
    _dropped: bool = field(default=False, init=False)

    def start(self, prompt_ids: Sequence[int]) -> None:
        self._try(self.drafter.start, prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        proposal = self._try(self._proposed, committed, budget)
        if proposal is not None:
            return proposal
        error, self._error = self._error, ""
        return Proposal(reasons=(Reason(DROPPED),), dropped=error)

    def verifying(self, proposal: Proposal) -> None:
        self._try(self.drafter.verifying, proposal)

    def observe(self, outcome: Outcome) -> None:
        self._try(self.drafter.observe, outcome)

    def close(self) -> None:
        self._dropped = False  # a drafter that raised is closed too
        self._try(self.drafter.close)

    def _try(self, call: Callable[..., Result], *arguments: object) -> Result | None:
        """Return the result of a call of the drafter; None if it was dropped before, or is now."""
        if self._dropped:
            return None
        try:
            return call(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever a drafter raises, the target's text is unaffected
            self._dropped = True
            self._error = " ".join(f"{type(error).__name__}: {error}".split())
        return None

    def _proposed(self, committed: Sequence[int], budget: int) -> Proposal:
        proposal = self.drafter.propose(committed, budget)
        self._check(proposal, budget)
        return proposal.ended_by(self.stop_ids)

    def _check(self, proposal: Proposal, budget: int) -> None:
        """Raise ValueError for a proposal that would break the target's pass or the verification."""
        ids, parents = proposal.token_ids, proposal.parents
        if any(not 0 <= token_id < self.vocabulary_size for token_id in ids):
            raise ValueError("a drafted token is not in the target's vocabulary")
        rows = ids if proposal.draft_probs is None else proposal.draft_probs
        if not len(parents) == len(rows) == len(ids):
            raise ValueError("a draft has not one parent and one distribution for each token")
        if any(not -1 <= parent < node for node, parent in enumerate(parents)):
            raise ValueError("a drafted token has no parent before it")
        if ids and max(depths(parents)) > budget:
            raise ValueError(f"a draft is longer than {budget} tokens")
        known = (proposal.confidences, proposal.survivals)
        if any(len(probabilities) not in (0, len(ids)) for probabilities in known):
            raise ValueError("a draft has not one probability for each token")
        if any(confidence != confidence for confidence in proposal.confidences):
            raise ValueError("a drafted token's probability is not a number")
