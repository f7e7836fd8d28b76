"""Arms: drafters of which one drafts each step, with their statistics in the run, and the arms of both methods that choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specdemo.drafters.base import DraftingContext, Method
from specdemo.drafters.copies import NGRAM, RETRIEVAL, Ngram, Retrieval
from specdemo.drafters.draft_model import DRAFT_MODEL, FEATURE, DraftModel
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.guard import with_forecast
from specdemo.drafters.policies.lookahead import CostAware, Lookahead
from specdemo.engine.cost import FOLLOW, Costs
from specdemo.engine.types import Drafter, Outcome, Proposal

TRY = 3  # steps of a trial before an arm is compared
REMEMBER = 0.98  # decay per step of an arm's statistics: single steps are noisy
PRIOR_STEPS = 30  # weight, in steps, of the forecasts of the model's first proposals: they are less noisy than steps
HELD_UP = 2.0  # a step counts for at most this many times its forecast
COPY_MOST = 24  # a good copy may be long: the policy stops it earlier


@dataclass(slots=True)
class Arm:
    """One drafter of several, and its statistics in this run.

    token_seconds: drafting time of one token in a run that is alone
    tokens, seconds: of its own steps, decaying; a model starts with its forecasts
    steps, drafted: numbers of steps and drafted tokens in these
    together: runs that share passes, for which the seconds are valid
    foreseen, kept: drafted tokens that were expected to be accepted, and those that were, decaying
    believed: number of forecasts that were counted as steps
    """

    name: str
    drafter: Drafter
    calibration: Calibration = field(default_factory=Calibration)
    token_seconds: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0
    drafted: float = 0.0
    together: int = 1
    foreseen: float = 3.0
    kept: float = 3.0
    believed: int = 0

    @property
    def rate(self) -> float | None:
        """Tokens a second; None while nothing is known."""
        return self.tokens / self.seconds if self.seconds else None

    def believe(self, proposal: Proposal) -> None:
        """Count the first forecasts as some steps, so that a few unlucky ones do not end it."""
        if self.believed < TRY:
            self.believed += 1
            self.steps += PRIOR_STEPS / TRY
            self.drafted += PRIOR_STEPS / TRY * len(proposal)
            self.tokens += PRIOR_STEPS / TRY * (proposal.expected_tokens or 1.0)
            self.seconds += PRIOR_STEPS / TRY * (proposal.expected_seconds or 0.0)

    def join(self, costs: Costs) -> None:
        """Convert its statistics to the runs that now share passes: then drafted rows cost more, or nothing."""
        if self.seconds and costs.together != self.together:
            self.seconds *= costs.change(self.drafted / self.steps, self.together, costs.together)
        self.together = costs.together

    def promise(self, proposal: Proposal) -> float:
        """Return tokens a second of a proposal's step, corrected by the accuracy of this arm's earlier forecasts."""
        assert proposal.expected_tokens is not None
        assert proposal.expected_seconds is not None
        gain = (proposal.expected_tokens - 1) * min(1.2, self.kept / self.foreseen)
        return (1 + gain) / proposal.expected_seconds

    def propose(self, committed: Sequence[int], budget: int, costs: Costs) -> Proposal:
        """Return the drafter's proposal, with a forecast by this arm's own calibration."""
        proposal = self.drafter.propose(committed, budget)
        named = replace(proposal, source=self.name)
        return with_forecast(named, costs, self.calibration, self.token_seconds)

    def observe(self, outcome: Outcome, costs: Costs) -> None:
        """Learn from a step of its own."""
        self.drafter.observe(outcome)
        self.calibration.observe(outcome)
        drafted = len(outcome.proposal)
        if drafted:
            seconds = costs.alone(outcome) / drafted
            self.token_seconds += FOLLOW * (seconds - self.token_seconds)
        measured = outcome.draft_seconds + outcome.verify_seconds
        promised = outcome.proposal.expected_seconds or measured
        # A shared step lasts as long as the work of all runs; the forecast is the time if all did the same.
        seconds = min(measured, HELD_UP * promised) if outcome.sharing.runs == 1 else promised
        # The probabilities of the tested tokens sum to the mean accepted number, with less variance.
        kept = sum(chance for chance in outcome.verdict.accept_probs if chance is not None)
        self.tokens = REMEMBER * self.tokens + 1 + kept
        self.seconds = REMEMBER * self.seconds + seconds
        self.steps = REMEMBER * self.steps + 1
        self.drafted = REMEMBER * self.drafted + drafted
        expected = (outcome.proposal.expected_tokens or 1.0) - 1
        self.foreseen = REMEMBER * self.foreseen + expected
        self.kept = REMEMBER * self.kept + kept


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
