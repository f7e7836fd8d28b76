"""Arms, of which one drafts each step, and copies after a model's draft.

If the end of a draft occurs earlier in the text, its continuation there is copied. `auto` chooses among the arms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specdemo.drafters.base import CHAIN_OPTIONS, PLAIN, DraftingContext, Method, Plain
from specdemo.drafters.copies import (
    NGRAM,
    RETRIEVAL,
    SHORTEST_MATCH,
    Ngram,
    Retrieval,
    confidence,
    known_texts,
    match_reason,
)
from specdemo.drafters.draft_model import DRAFT_MODEL, FEATURE, DraftModel
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.guard import StepRecord, with_forecast
from specdemo.drafters.policies.lookahead import CostAware, Lookahead
from specdemo.drafters.policies.rule import StoppingRule
from specdemo.engine.cost import Costs
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

COPY_MOST = 24  # a good copy may be long: the policy stops it earlier


@dataclass(slots=True)
class Arm:
    """One drafter of several.

    token_seconds: drafting time of one token in a run that is alone
    record: results of the steps that it drafted
    """

    name: str
    drafter: Drafter
    calibration: Calibration = field(default_factory=Calibration)
    token_seconds: float = 0.0
    record: StepRecord = field(default_factory=StepRecord)

    def propose(
        self, committed: Sequence[int], budget: int, costs: Costs, *reasons: Reason
    ) -> Proposal:
        """Return the drafter's proposal, with a forecast by this arm's own calibration. reasons: put before the drafter's own"""
        proposal = self.drafter.propose(committed, budget)
        # Most steps of a copier are empty, and copying a value costs more than the search.
        if not len(proposal) and proposal.source:
            return proposal
        return with_forecast(
            proposal, costs, self.calibration, self.token_seconds, self.name, reasons
        )

    def observe(self, outcome: Outcome, costs: Costs) -> None:
        self.drafter.observe(outcome)
        self.calibration.observe(outcome)
        self.token_seconds = costs.token_seconds(self.token_seconds, outcome)


def copiers(context: DraftingContext, texts: SuffixAutomaton) -> list[Arm]:
    """Copying drafters, each with a calibration of its own, that copy on as long as it pays. texts: see `known_texts`"""

    def arm(method: Method, make: Callable[[Lookahead], Drafter]) -> Arm:
        calibration = context.calibrate(method.prior)
        policy = CostAware(COPY_MOST, context.costs, calibration, 0.0)
        return Arm(method.name, make(policy), calibration)

    arms = [arm(NGRAM, lambda policy: Ngram(texts, policy))]
    if context.store is not None:
        store = context.store
        arms.append(arm(RETRIEVAL, lambda policy: Retrieval(store, policy, shortest=4)))
    return arms


def model_arm(context: DraftingContext, policy: Callable[[Calibration], Lookahead]) -> Arm:
    """The model that the context takes, with a calibration of its own, which its policy reads."""
    method = DRAFT_MODEL if context.taken == "draft" else FEATURE
    calibration = context.calibrate(method.prior)
    (need,) = method.needs
    drafter = DraftModel(context.distributions(need), policy(calibration))
    return Arm(method.name, drafter, calibration, context.profile.draft_step or 0.0)


@dataclass(slots=True)
class Through:
    """Appends copies to a draft: finds the end of text and draft in the earlier text, and copies its continuation there.

        text     the cat sat on the mat . the      the model drafts "cat", then "the cat" is looked up:
                                                   "sat on the mat" is copied after it

    The target checks drafted and copied tokens in one pass; copied rows cost no step of the model. A copied token
    was not drawn, whether or not those before it were, so sampling stays exact.

    calibration: how often copied tokens are accepted, once all before them are
    most: copied tokens; None for as many as are expected to give more than their rows cost
    shortest: tokens of a match; drafted ones count
    draft: the one that was continued last, without the copies
    """

    automaton: SuffixAutomaton
    calibration: Calibration
    costs: Costs
    most: int | None = None
    shortest: int = field(default=SHORTEST_MATCH, kw_only=True)
    draft: Proposal = field(default_factory=Proposal, init=False)

    def continued(self, draft: Proposal, committed: Sequence[int], budget: int) -> Proposal:
        """Return a draft with a forecast by an arm, and copies after it if some are worth their rows."""
        self.draft = draft
        room = min(budget, COPY_MOST) - len(draft)
        if room <= 0 or (len(draft) and not draft.chained):
            return draft
        self.automaton.follow(committed)
        length, position = self.automaton.match(drafted=draft.token_ids)
        if length < self.shortest:
            return draft
        found = self.automaton.following(position, room, draft.token_ids)
        confidences = [confidence(length + number) for number in range(1, len(found) + 1)]
        kept = self._worth(draft, confidences)
        if not kept:
            return draft
        assert draft.expected_tokens is not None  # with the arm's forecast
        assert draft.expected_seconds is not None
        drafted, count = len(draft), len(kept)
        reason = match_reason("copied", self.automaton, position, count=count, drafted=drafted)
        rows = None if draft.draft_probs is None else [*draft.draft_probs, *[None] * count]
        return replace(
            draft,
            token_ids=(*draft.token_ids, *found[:count]),
            parents=tuple(range(-1, drafted + count - 1)),
            chained=True,
            draft_probs=rows if drafted else None,
            confidences=(*draft.confidences, *confidences[:count]),
            lookahead=draft.lookahead + count,
            reasons=(*draft.reasons, reason),
            source=COPY_THROUGH.name if drafted else NGRAM.name,
            survivals=(*draft.survivals, *kept),
            expected_tokens=draft.expected_tokens + sum(kept),
            expected_seconds=draft.expected_seconds + self.costs.row_seconds(drafted, count),
        )

    def drafted(self, outcome: Outcome) -> Outcome:
        """Return the outcome of the draft alone, with the time of a pass without the copies. Learns from the copies' outcome."""
        drafted, verdict = len(self.draft), outcome.verdict
        copied = len(outcome.proposal) - drafted
        if (
            copied <= 0
        ):  # below 0 if the draft of an earlier step is still noted while the fallback pauses
            return outcome
        path, chances = verdict.path, verdict.accept_probs
        copies = Proposal.chain(
            outcome.proposal.token_ids[drafted:],
            confidences=outcome.proposal.confidences[drafted:],
        )
        rest = replace(
            verdict,
            path=tuple(node - drafted for node in path[drafted:]),
            accept_probs=chances[drafted:],
        )
        self.calibration.observe(replace(outcome, proposal=copies, verdict=rest))
        own = replace(verdict, path=path[:drafted], accept_probs=chances[:drafted], block_probs=())
        share = self.costs.verify_seconds(drafted) / self.costs.verify_seconds(drafted + copied)
        return replace(
            outcome,
            proposal=self.draft,
            verdict=own,
            verify_seconds=share * outcome.verify_seconds,
        )

    def _worth(self, draft: Proposal, confidences: Sequence[float]) -> list[float]:
        """Return the chances that copies are accepted with all before them: of as many copies as pay."""
        survival = draft.survivals[-1] if len(draft) else 1.0
        survivals: list[float] = []
        for sure in confidences[: self.most]:
            survival *= self.calibration.chance(sure)
            survivals.append(survival)
        if self.most is not None:
            return survivals
        return survivals[: StoppingRule(self.costs).copies(survivals, len(draft))]


class CopyThrough(Drafter):
    """Lets a model draft a chain, and copies on after it.

    model: drafts chains; its policy reads its calibration
    """

    def __init__(self, model: Arm, through: Through) -> None:
        self.model = model
        self.through = through

    def start(self, prompt_ids: Sequence[int]) -> None:
        self.through.automaton.begin(prompt_ids)
        return self.model.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        draft = self.model.propose(committed, budget, self.through.costs)
        return self.through.continued(draft, committed, budget)

    def verifying(self, proposal: Proposal) -> None:
        self.model.drafter.verifying(self.through.draft)

    def observe(self, outcome: Outcome) -> None:
        """Let the model learn from the outcome of its chain, and the copies' calibration from the rest."""
        self.model.observe(self.through.drafted(outcome), self.through.costs)

    def close(self) -> None:
        self.model.drafter.close()


def _make(context: DraftingContext) -> CopyThrough:
    settings = context.settings
    if not context.has(context.taken):
        model = Arm(PLAIN.name, Plain())
    else:
        model = model_arm(context, lambda calibration: context.lookahead(calibration=calibration))
    most = settings.lookahead if settings.policy == "constant" else None
    through = Through(known_texts(context), context.calibrate(NGRAM.prior), context.costs, most)
    return CopyThrough(model, through)


COPY_THROUGH = Method(
    name="copy_through",
    make=_make,
    takes=("draft",),
    options=(*CHAIN_OPTIONS, "memory", "fallback"),
    tokens="mixed",
)
