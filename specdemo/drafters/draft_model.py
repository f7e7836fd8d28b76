"""Methods in which a language model drafts a chain, token by token: they differ in the model that drafts.

Draft model: Leviathan 2211.17192, Chen 2302.01318; feature drafter: EAGLE 2401.15077; early exit: Draft & Verify
2309.08168, LayerSkip 2404.16710; online learning: OSD 2310.07177.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from specdemo.drafters.base import CHAIN_OPTIONS, DraftingContext, Method
from specdemo.drafters.memory.markov import MarkovBias
from specdemo.drafters.policies.guard import Wrapper
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

if TYPE_CHECKING:
    from specdemo.drafters.policies.lookahead import Lookahead
    from specdemo.drafters.reader import DraftReader


class DraftModel(Drafter):
    """Drafts token by token with a model of its own, shaped exactly as the target is."""

    def __init__(self, draft: DraftReader, lookahead: Lookahead) -> None:
        self.draft = draft
        self.lookahead = lookahead

    def start(self, prompt_ids: Sequence[int]) -> None:
        return self.draft.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        self.draft.follow(committed)
        allowed = self.draft.room(committed, min(budget, self.lookahead.allowed(committed)))
        chain = self.draft.chain(committed, allowed, self.lookahead)
        return self.draft.proposal(chain, allowed, self.lookahead.reason)

    def observe(self, outcome: Outcome) -> None:
        """Update the policy; the cache catches up at the next proposal."""
        self.lookahead.observe(outcome)


class LookBack(Wrapper):
    """Wraps a drafter of chains and drops its trailing tokens below a threshold, while `Confidence` stops after one.

    A scheduler that looks back like this (DSpark's counter-example) uses the drawn tokens to decide which draws
    the target tests, so the tokens that remain occur too often: `specdemo.bench.wrong_rules`.
    Chosen tokens are tested one by one, independent of the other proposals, so greedy decoding is unchanged.
    """

    def __init__(self, drafter: Drafter, threshold: float) -> None:
        super().__init__(drafter)
        self.threshold = threshold

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        proposal = self.drafter.propose(committed, budget)
        kept = len(proposal)
        while kept and self._unlikely(proposal.confidences[kept - 1]):
            kept -= 1
        code = "look_back" if proposal.drawn_from is None else "look_back_lossy"
        values = {"dropped": len(proposal) - kept, "threshold": self.threshold}
        return replace(proposal.only(range(kept)), reasons=(Reason(code, values),))

    def _unlikely(self, confidence: float | None) -> bool:
        return confidence is not None and confidence < self.threshold


def _of_a_model(name: str, need: str, paper: str = "") -> Method:
    """Return the method in which the model that meets a need drafts the chain."""
    return Method(
        name=name,
        make=lambda context: DraftModel(context.distributions(need), context.lookahead()),
        paper=paper,
        needs=(need,),
        options=(*CHAIN_OPTIONS, "fallback"),
    )


def _online(context: DraftingContext) -> Drafter:
    """Make the draft model learn, if memory is allowed."""
    memory = context.memory
    draft = context.distributions("draft", MarkovBias(memory.counts) if memory else None)
    draft.head = memory.head_bias(draft.reader.model) if memory else None
    return DraftModel(draft, context.lookahead())


def _look_back(context: DraftingContext) -> LookBack:
    chain = DraftModel(context.distributions("draft"), context.lookahead())
    return LookBack(chain, context.settings.threshold)


DRAFT_MODEL = _of_a_model("draft_model", "draft", "Leviathan 2211.17192")
FEATURE = _of_a_model("feature", "feature", "Li 2401.15077")
EXIT = _of_a_model("exit", "exit", "Elhoushi 2404.16710")
QUANTISED_SELF = _of_a_model("quantised_self", "copy")
ONLINE = Method(
    name="online",
    make=_online,
    paper="Liu 2310.07177",
    needs=("draft",),
    options=(*CHAIN_OPTIONS, "memory", "fallback"),
)
LOOK_BACK = Method(
    name="look_back",
    make=_look_back,
    needs=("draft",),
    options=CHAIN_OPTIONS,
    lossy=True,
)
