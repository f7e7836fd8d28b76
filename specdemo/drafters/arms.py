"""Drafters of which one drafts each step: what each has shown in the run, and those that both methods choose among."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specdemo.drafters.base import DraftingContext, Method
from specdemo.drafters.draft_model import DRAFT_MODEL, FEATURE, DraftModel
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.ngram import NGRAM, Ngram
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.guard import with_forecast
from specdemo.drafters.policies.lookahead import CostAware, Lookahead
from specdemo.drafters.retrieval import RETRIEVAL, Retrieval
from specdemo.engine.cost import FOLLOW, Costs
from specdemo.engine.types import Drafter, Outcome, Proposal

TRY = 3  # steps of a trial before an arm is judged
REMEMBER = 0.98  # what is left of an arm's earlier steps after each of its own: single steps differ by as much as they give
PRIOR_STEPS = 30  # that the forecasts of the model's first proposals count for: they are less noisy than steps
HELD_UP = 2.0  # times what was foreseen is the most that a step counts for
COPY_MOST = 24  # a good copy may be long: the policy stops it earlier


@dataclass(slots=True)
class Arm:
    """One drafter of several, and what it has shown in this run.

    token_seconds: what drafting one token takes a run that is alone
    tokens, seconds: of its own steps, fading; a model begins with what it promises
    steps, drafted: that these are of
    together: runs that share passes, for which the seconds hold
    foreseen, kept: drafted tokens that were expected to be kept, and those that were, fading
    believed: promises that were taken for steps
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
        """Take the first promises for some steps, so that a few unlucky ones do not end it."""
        if self.believed < TRY:
            self.believed += 1
            self.steps += PRIOR_STEPS / TRY
            self.drafted += PRIOR_STEPS / TRY * len(proposal)
            self.tokens += PRIOR_STEPS / TRY * (proposal.expected_tokens or 1.0)
            self.seconds += PRIOR_STEPS / TRY * (proposal.expected_seconds or 0.0)

    def join(self, costs: Costs) -> None:
        """Tell what it has shown anew for the runs that now share passes: in company drafted rows are dearer, or free."""
        if self.seconds and costs.together != self.together:
            self.seconds *= costs.change(self.drafted / self.steps, self.together, costs.together)
        self.together = costs.together

    def promise(self, proposal: Proposal) -> float:
        """Tokens a second of a proposal's step, taking into account what this arm's forecasts were worth."""
        assert proposal.expected_tokens is not None
        assert proposal.expected_seconds is not None
        gain = (proposal.expected_tokens - 1) * min(1.2, self.kept / self.foreseen)
        return (1 + gain) / proposal.expected_seconds

    def propose(self, committed: Sequence[int], budget: int, costs: Costs) -> Proposal:
        """The drafter's proposal, with what it is expected to give by this arm's own calibration."""
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
        # In company a step takes what all runs do in it; what it would take if all did the same is foreseen.
        seconds = min(measured, HELD_UP * promised) if outcome.sharing.runs == 1 else promised
        # The chances of what was tested add up to what is kept on average, with less luck in it.
        kept = sum(chance for chance in outcome.verdict.accept_probs if chance is not None)
        self.tokens = REMEMBER * self.tokens + 1 + kept
        self.seconds = REMEMBER * self.seconds + seconds
        self.steps = REMEMBER * self.steps + 1
        self.drafted = REMEMBER * self.drafted + drafted
        expected = (outcome.proposal.expected_tokens or 1.0) - 1
        self.foreseen = REMEMBER * self.foreseen + expected
        self.kept = REMEMBER * self.kept + kept


class OneOfArms(Drafter):
    """Lets one of its arms draft each step.

    arms: all of them; the one that drafted last is `_chosen`, None after a step without a draft
    """

    costs: Costs
    _chosen: Arm | None

    @property
    def arms(self) -> list[Arm]:
        """All of them."""
        raise NotImplementedError

    def observe(self, outcome: Outcome) -> None:
        """Give a step to the arm that drafted it; the others learn the text, as of a step without a draft."""
        silent = outcome if self._chosen is None else outcome.silent()
        for arm in self.arms:
            if arm is self._chosen:
                arm.observe(outcome, self.costs)
            else:
                arm.drafter.observe(silent)

    def verifying(self, proposal: Proposal) -> None:
        """The arm that drafted may work beside the target."""
        if self._chosen:
            self._chosen.drafter.verifying(proposal)

    def close(self) -> None:
        """End the run of every arm."""
        for arm in self.arms:
            arm.drafter.close()


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
