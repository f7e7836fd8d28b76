"""Arms: drafters of which one drafts each step, and the arms of both methods that choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specdemo.drafters.base import DraftingContext, Method
from specdemo.drafters.copies import NGRAM, RETRIEVAL, Ngram, Retrieval
from specdemo.drafters.draft_model import DRAFT_MODEL, FEATURE, DraftModel
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.guard import with_forecast
from specdemo.drafters.policies.ledger import Record
from specdemo.drafters.policies.lookahead import CostAware, Lookahead
from specdemo.engine.cost import FOLLOW, Costs
from specdemo.engine.types import Drafter, Outcome, Proposal

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
    record: Record = field(default_factory=Record)

    def propose(self, committed: Sequence[int], budget: int, costs: Costs) -> Proposal:
        """Return the drafter's proposal, with a forecast by this arm's own calibration."""
        proposal = self.drafter.propose(committed, budget)
        # Most steps of a copier are empty, and copying a value costs more than the search.
        if not len(proposal) and proposal.source:
            return proposal
        named = replace(proposal, source=self.name)
        return with_forecast(named, costs, self.calibration, self.token_seconds)

    def observe(self, outcome: Outcome, costs: Costs) -> None:
        self.drafter.observe(outcome)
        self.calibration.observe(outcome)
        drafted = len(outcome.proposal)
        if drafted:
            seconds = costs.alone(outcome) / drafted
            self.token_seconds += FOLLOW * (seconds - self.token_seconds)


def copiers(context: DraftingContext, texts: SuffixAutomaton) -> list[Arm]:
    """Copying drafters, each with a calibration of its own, that copy on as long as it pays. texts: see `known_texts`"""

    def arm(method: Method, make: Callable[[Lookahead], Drafter]) -> Arm:
        calibration = context.calibrate(method.prior)
        policy = CostAware(COPY_MOST, context.costs, calibration, 0.0)
        return Arm(method.name, make(policy), calibration)

    arms = [arm(NGRAM, lambda policy: Ngram(texts, policy))]
    if context.store is not None:
        store = context.store
        arms.append(arm(RETRIEVAL, lambda policy: Retrieval(store, policy, shortest=3)))
    return arms


def model_arm(context: DraftingContext, policy: Callable[[Calibration], Lookahead]) -> Arm:
    """The draft model, or the feature drafter where there is none, with a calibration of its own, which its policy reads."""
    method = DRAFT_MODEL if context.draft is not None else FEATURE
    calibration = context.calibrate(method.prior)
    draft = context.draft_model() if method is DRAFT_MODEL else context.trained_drafter("feature")
    drafter = DraftModel(draft, policy(calibration))
    return Arm(method.name, drafter, calibration, context.profile.draft_step or 0.0)
