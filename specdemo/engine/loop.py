"""The loop: draft, verify, commit. Plain decoding is this loop with a drafter that proposes nothing.

Invariant: the target has cached `committed[:-1]`; the last id is pending. The drafter is closed however a run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

import torch

from specdemo.engine.clock import Cancelled, Stage, Stopwatch, never
from specdemo.engine.limits import Limits
from specdemo.engine.sampling import Shaper
from specdemo.engine.step import Step
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Drafter
from specdemo.engine.verify import Verifier, verify, verify_sampling
from specdemo.trace.events import Event, FinishReason, RunFinished, RunStarted


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
    committed, num_prompt = list(prompt_ids), len(prompt_ids)
    generator = torch.Generator().manual_seed(shaper.sampling.seed)
    step = Step(started.lane)
    try:
        header, reason = _prefill(target, drafter, prompt_ids, started, cancelled, alone=alone)
        yield header
        while reason is None:
            step = step.next(cancelled, alone=alone)
            try:
                with step.draft:
                    budget = limits.budget(len(committed) - num_prompt)
                    step.proposal = drafter.propose(committed, budget)
            except Cancelled:
                reason = FinishReason.CANCELLED
                break
            yield step.drafted()
            with step.check:
                drafter.verifying(step.proposal)
                step.output = target.forward(committed[-1], step.proposal)
                step.shaped = shaper.logits(step.output.logits, committed, step.proposal.paths())
                step.verdict = verify(step.proposal, step.shaped, shaper, verifier, generator)
            with step.commit:
                reason = step.cut(limits, len(committed) - num_prompt)
                target.keep(step.kept)
                committed += step.new_ids
                drafter.observe(step.outcome())
            yield step.verified(detail)
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
            with Stage(cancelled, alone=alone):
                target.read(prompt_ids[cached:-1])
            with Stage(cancelled, drafting=True):
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
