"""Methods in which a language model drafts a chain, token by token: they differ in the model that drafts.

Draft model: Leviathan 2211.17192, Chen 2302.01318; feature drafter: EAGLE 2401.15077; early exit: Draft & Verify
2309.08168, LayerSkip 2404.16710; online learning: OSD 2310.07177.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from specdemo.drafters.base import (
    CHAIN_OPTIONS,
    CHAIN_POLICIES,
    DraftingContext,
    Method,
    TrainedDrafter,
)
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
        return Proposal.chain(
            [self.draft.token(column) for column in chain.columns],
            draft_probs=chain.rows,
            words=self.draft.words,
            chosen=self.draft.greedy,
            confidences=tuple(chain.confidences),
            lookahead=allowed,
            reasons=(self.draft.why(allowed, self.lookahead.reason),),
        )

    def observe(self, outcome: Outcome) -> None:
        """Update the policy; the cache catches up at the next proposal."""
        self.lookahead.observe(outcome)


class LookBack(Wrapper):
    """Wraps a drafter of chains and drops its trailing tokens below a threshold, while `Confidence` stops after one.

    A scheduler that looks back like this (DSpark's counter-example) uses the drawn tokens to decide which draws
    the target tests, so the tokens that remain occur too often: `specdemo.session.work.wrong_rules`.
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
        return replace(
            proposal,
            token_ids=proposal.token_ids[:kept],
            parents=proposal.parents[:kept],
            draft_probs=None if proposal.draft_probs is None else proposal.draft_probs[:kept],
            confidences=proposal.confidences[:kept],
            reasons=(Reason(code, values),),
        )

    def _unlikely(self, confidence: float | None) -> bool:
        return confidence is not None and confidence < self.threshold


def _online(context: DraftingContext) -> Drafter:
    """Make the draft model learn, if memory is allowed."""
    memory = context.memory
    draft = context.distributions(context.draft, MarkovBias(memory.counts) if memory else None)
    draft.head = memory.head_bias(draft.reader.model) if memory else None
    return DraftModel(draft, context.lookahead())


def _look_back(context: DraftingContext) -> LookBack:
    chain = DraftModel(context.draft_model(), context.lookahead())
    return LookBack(chain, context.settings.threshold)


DRAFT_MODEL = Method(
    name="draft_model",
    title="Draft model",
    summary="A small language model guesses the next tokens one by one.",
    make=lambda context: DraftModel(context.draft_model(), context.lookahead()),
    paper="Leviathan 2211.17192",
    needs=("draft",),
    options=(*CHAIN_OPTIONS, "fallback"),
    policies=CHAIN_POLICIES,
    trained=TrainedDrafter(
        "draft",
        "a draft model",
        "a small language model that reads the text alone",
        "A small language model that drafts for `{target}`: {layers} and an output head over the "
        "{words:,} words that the target says most. It reads the text alone.",
    ),
)
FEATURE = Method(
    name="feature",
    title="Feature drafter",
    summary="A draft model that also reads what the target knew one token earlier (after EAGLE).",
    make=lambda context: DraftModel(context.trained_drafter("feature"), context.lookahead()),
    paper="Li 2401.15077",
    needs=("feature",),
    options=(*CHAIN_OPTIONS, "fallback"),
    policies=CHAIN_POLICIES,
    trained=TrainedDrafter(
        "feature",
        "a feature drafter",
        "a small drafter that also reads the target's hidden states",
        "A feature drafter (EAGLE family) for `{target}`: {layers} above the target's hidden states, "
        "and above its own while it drafts on. Its output head has the {words:,} words that the target says most.",
    ),
)
EXIT = Method(
    name="exit",
    title="Early exit",
    summary="The target's own first layers and a small trained adapter guess the next tokens.",
    make=lambda context: DraftModel(context.trained_drafter("exit"), context.lookahead()),
    paper="Elhoushi 2404.16710",
    needs=("exit",),
    options=(*CHAIN_OPTIONS, "fallback"),
    policies=CHAIN_POLICIES,
    trained=TrainedDrafter(
        "exit",
        "an exit adapter",
        "an adapter that lets the target's first layers draft",
        "An exit adapter for `{target}`: the target's own lower layers, {layers} trained to follow them, and "
        "an output head over the {words:,} words that the target says most.",
    ),
)
QUANTISED_SELF = Method(
    name="quantised_self",
    title="Quantised self",
    summary="A 4-bit copy of the target drafts for the full target; no other model is needed.",
    make=lambda context: DraftModel(context.distributions(context.copy), context.lookahead()),
    needs=("copy",),
    options=(*CHAIN_OPTIONS, "fallback"),
    policies=CHAIN_POLICIES,
)
ONLINE = Method(
    name="online",
    title="Online",
    summary="The draft model learns while you use it: by counting in the run, and by gradient steps between runs.",
    make=_online,
    paper="Liu 2310.07177",
    needs=("draft",),
    options=(*CHAIN_OPTIONS, "memory", "fallback"),
    policies=CHAIN_POLICIES,
)
LOOK_BACK = Method(
    name="look_back",
    title="Look back",
    summary="Drops drafted tokens that look unlikely, after drawing them: the mistake that changes the output, to be seen.",
    make=_look_back,
    label="looking back",
    needs=("draft",),
    options=CHAIN_OPTIONS,
    policies=CHAIN_POLICIES,
    lossy=True,
)
