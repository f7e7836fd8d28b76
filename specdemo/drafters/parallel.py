"""Drafts in parallel with the target's verification (PEARL 2408.11850, SSD 2603.03251)."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdemo.drafters.base import CHAIN_OPTIONS, Method
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.lookahead import Lookahead
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.kernels.plan import Chain

if TYPE_CHECKING:
    from specdemo.drafters.reader import DraftReader

GUESSES = 3  # outcomes of a verification that are prepared for, most likely first


@dataclass(slots=True)
class PreparedChain(Chain):
    """A draft on a text, possibly unfinished. seconds: drafting time in parallel with the target's pass."""

    seconds: float = 0.0


class Parallel(Drafter):
    """Drafts a chain; while the target verifies it, a thread drafts continuations of the likely outcomes.

    An outcome is the number of accepted tokens and the token that the target adds. If it was predicted, its draft is
    ready (a hit); otherwise it is dropped and drafting starts as usual: a miss costs nothing but the part of
    the machine that the thread used. Draws depend on the position and never on the verdict: the text stays
    exact, and is the same whether a draft was prepared or not.
    """

    def __init__(self, draft: DraftReader, lookahead: Lookahead, calibration: Calibration) -> None:
        self.draft = draft
        self.lookahead = lookahead
        self.calibration = calibration
        self._worker: ThreadPoolExecutor | None = None
        self._stop = threading.Event()
        self._task: Future[None] | None = None
        self._prepared: dict[tuple[int, ...], PreparedChain] = {}
        # The text and the draft that are verified, and most tokens of the next draft, before and after the limit.
        self._drafted: tuple[list[int], Chain, int, int] = ([], Chain(), 0, 0)

    def start(self, prompt_ids: Sequence[int]) -> None:
        self.close()
        self._worker, self._prepared = _one_thread_worker(), {}
        return self.draft.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Return the prepared draft if the outcome was predicted, else a new one; extended if the policy allows more tokens."""
        self.draft.follow(committed)
        tried, text = bool(self._prepared), list(committed)
        ready = self._prepared.get(tuple(text), PreparedChain())
        self._prepared = {}
        allowed = self.draft.room(committed, min(budget, self.lookahead.allowed(committed)))
        chain = Chain()
        while (place := len(chain.columns)) < allowed:
            if place < len(ready.columns):
                chain.add(ready.columns[place], ready.rows[place])
            else:
                self._draft_one(chain, text)
            # The policy decides after each token: prepared tokens after its stop are dropped unseen.
            if not self.lookahead.go_on(chain.confidences[-1]):
                break
        self._drafted = text, chain, allowed, budget
        hit = bool(ready.columns)
        return self.draft.proposal(
            chain,
            allowed,
            self.lookahead.reason,
            hit=hit if tried else None,
            saved_seconds=ready.seconds if hit else None,
        )

    def observe(self, outcome: Outcome) -> None:
        """The target is done: the thread stops within one step of the draft."""
        self._finish()
        self.lookahead.observe(outcome)

    def close(self) -> None:
        if self._worker is not None:
            self._stop.set()
            self._worker.shutdown()
            self._worker = self._task = None

    def verifying(self, proposal: Proposal) -> None:
        text, chain, length, budget = self._drafted
        assert self._worker is not None, "verifying before start"
        self._stop.clear()
        # At most this draft and one token more: tokens that the policy would not use only occupy the target's cores.
        length = min(length, len(chain.columns) + 1)
        self._task = self._worker.submit(self._prepare, text, chain, length, budget)

    def _finish(self) -> None:
        """Wait for the thread; an unfinished draft is used as far as it got."""
        self._stop.set()
        task, self._task = self._task, None
        if task is not None:
            task.result()

    def _prepare(self, text: list[int], chain: Chain, length: int, budget: int) -> None:
        """In the thread: draft after each likely outcome until the target is done, within the run's limit and the context."""
        if not (length and self.draft.room([*text, *self.draft.tokens(chain.columns)], 1)):
            return
        for added in self._outcomes(text, chain):
            guess = [*text, *added]
            most = self.draft.room(guess, min(length, budget - len(added)))
            ready = PreparedChain()
            begun = time.perf_counter()
            while len(ready.columns) < most and not self._stop.is_set():
                self._draft_one(ready, guess)
            ready.seconds = time.perf_counter() - begun
            self._prepared[tuple(guess)] = ready
            if self._stop.is_set():
                break

    def _outcomes(self, text: list[int], chain: Chain) -> list[list[int]]:
        """Return possible commits of the step, most likely first: all accepted and one more, or one rejected and replaced."""
        found: list[tuple[float, list[int]]] = []
        drafted, survival = self.draft.tokens(chain.columns), 1.0
        for place, confidence in enumerate(chain.confidences):
            chance = self.calibration.chance(confidence)
            rest = chain.rows[place].clone()
            rest[chain.columns[place]] = 0
            instead = self.draft.expected(rest, len(text) + place)
            right = self.calibration.chance(float(rest[instead]) / max(1e-9, 1 - confidence))
            token = self.draft.token(instead)
            found.append((survival * (1 - chance) * right, [*drafted[:place], token]))
            survival *= chance
        after = self.draft.probs_after(text, drafted)
        bonus = self.draft.expected(after, len(text) + len(drafted))
        survival *= self.calibration.chance(float(after[bonus]))
        found.append((survival, [*drafted, self.draft.token(bonus)]))
        found.sort(key=lambda item: -item[0])
        return [added for _, added in found[:GUESSES]]

    def _draft_one(self, chain: Chain, text: list[int]) -> None:
        probs = self.draft.probs_after(text, self.draft.tokens(chain.columns))
        position = len(text) + len(chain.columns)
        chain.add(self.draft.pick(probs, position, repeatable=True), probs)


def _one_thread_worker() -> ThreadPoolExecutor:
    """Return a worker whose own torch operators use one core, so that the target's pass has the others.

    torch stores the number for each thread and, for later threads, the number last set: so it is restored.
    """
    import torch

    threads = torch.get_num_threads()
    worker = ThreadPoolExecutor(1, thread_name_prefix="specdemo-draft")
    worker.submit(torch.set_num_threads, 1).result()
    torch.set_num_threads(threads)
    return worker


PARALLEL = Method(
    name="parallel",
    make=lambda context: Parallel(
        context.distributions("draft"), context.lookahead(), context.calibration
    ),
    paper="Liu 2408.11850",
    needs=("draft",),
    options=(*CHAIN_OPTIONS, "fallback"),
)
