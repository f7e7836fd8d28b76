"""Wrappers of every drafter: forecasts of each step, and a pause while drafting measurably loses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from specdemo.drafters.policies.calibration import Calibration
from specdemo.engine.cost import FOLLOW, Costs, expected_tokens
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

WINDOW = 12  # drafting steps that a judgement compares
PROBE_STEPS = 4  # drafting steps after a pause before the next judgement
FIRST_PAUSE, LONGEST_PAUSE = 8, 64  # plain steps
SLOWER_FACTOR = 1.03  # drafting must be this much slower before it is stopped: timings are noisy


class Wrapper(Drafter):
    """Passes everything on to another drafter."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Start the inner drafter."""
        self.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Return the inner drafter's proposal."""
        return self.drafter.propose(committed, budget)

    def verifying(self, proposal: Proposal) -> None:
        """Let the inner drafter work in parallel with the target."""
        self.drafter.verifying(proposal)

    def observe(self, outcome: Outcome) -> None:
        """Let the inner drafter learn."""
        self.drafter.observe(outcome)

    def close(self) -> None:
        """End the inner drafter's run."""
        self.drafter.close()


class Forecast(Wrapper):
    """Adds the cost model's prediction to proposals, and updates the run's costs and calibration.

    token_seconds: initial duration of drafting one token in a run that is alone; then as measured in this run
    together: returns how many runs are likely to share passes, once the target has read the prompt
    most: tokens of a draft, at most; None for no limit
    """

    def __init__(
        self,
        drafter: Drafter,
        costs: Costs,
        calibration: Calibration,
        token_seconds: float,
        together: Callable[[], int] = lambda: 1,
        most: int | None = None,
    ) -> None:
        super().__init__(drafter)
        self.costs = costs
        self.calibration = calibration
        self.token_seconds = token_seconds
        self.together = together
        self.most = most

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Start the drafter; other runs may have started while the target read the prompt."""
        self.costs.join(self.together())
        self.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Return the drafter's proposal with its expected tokens and seconds."""
        self.costs.cached = len(committed)
        budget = budget if self.most is None else min(budget, self.most)
        proposal = self.drafter.propose(committed, budget)
        if proposal.expected_tokens is not None:
            return proposal
        return with_forecast(proposal, self.costs, self.calibration, self.token_seconds)

    def observe(self, outcome: Outcome) -> None:
        """Let the drafter learn first: it may read the costs as they were."""
        self.drafter.observe(outcome)
        drafted = len(outcome.proposal)
        if drafted:
            seconds = self.costs.alone(outcome) / drafted
            self.token_seconds += FOLLOW * (seconds - self.token_seconds)
        self.calibration.observe(outcome)
        self.costs.observe(outcome)


def with_forecast(
    proposal: Proposal, costs: Costs, calibration: Calibration, token_seconds: float
) -> Proposal:
    """Return the proposal with the expected tokens and seconds of its step; survivals that it contains stay.

    token_seconds: duration of drafting one token in a run that is alone
    """
    kept = proposal.survivals or tuple(survivals(proposal, calibration))
    drafting = len(proposal) * costs.growth(costs.together) * token_seconds
    return replace(
        proposal,
        survivals=kept,
        expected_tokens=expected_tokens(kept),
        expected_seconds=costs.verify_seconds(len(proposal)) + drafting,
    )


def survivals(proposal: Proposal, calibration: Calibration) -> list[float]:
    """Return, for each node, the chance that the target accepts its whole path, older siblings being refused first."""
    confidences = proposal.confidences or (None,) * len(proposal)
    kept: list[float] = []
    left: dict[int, float] = {}  # chance that a parent's next child is tested
    for node, parent in enumerate(proposal.parents):
        reached = left.get(parent, kept[parent] if parent >= 0 else 1.0)
        chance = calibration.chance(confidences[node], sibling=parent in left)
        kept.append(reached * chance)
        left[parent] = reached * (1 - chance)
    return kept


class Fallback(Wrapper):
    """Pauses a drafter while it is slower than plain decoding. Both are measured in this run, in seconds per token.

    Steps without a draft count as plain. If no plain step was seen in the first window, one is taken for comparison.

    costs: predict steps while other runs share passes, as if all drafted the same; the judgement restarts when runs
        come or go
    """

    def __init__(self, drafter: Drafter, costs: Costs | None = None) -> None:
        super().__init__(drafter)
        self.costs = costs
        self._reset()

    def _reset(self) -> None:
        self._drafting: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._plain: deque[float] = deque(maxlen=WINDOW)
        self._pause = 0
        self._next_pause = FIRST_PAUSE
        self._judge_after = WINDOW
        self._reasons: tuple[Reason, ...] = ()
        self._runs = 1

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Start without a judgement."""
        self._reset()
        self.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Return the drafter's proposal, or an empty one during a pause."""
        if self._pause:
            return Proposal(reasons=self._reasons)
        return self.drafter.propose(committed, budget)

    def verifying(self, proposal: Proposal) -> None:
        """Let the drafter work in parallel with the target, except during a pause."""
        if not self._pause:
            self.drafter.verifying(proposal)

    def observe(self, outcome: Outcome) -> None:
        """Time the step; pause if drafting has been losing."""
        self.drafter.observe(outcome)
        if outcome.sharing.runs != self._runs:
            self._reset()
            self._runs, self._judge_after = outcome.sharing.runs, PROBE_STEPS
        seconds = outcome.draft_seconds + self._verify_seconds(outcome)
        if len(outcome.proposal):
            self._drafting.append((seconds, len(outcome.new_ids)))
            self._judge_after -= 1
        else:
            self._plain.append(seconds)
        if self._pause:
            self._pause -= 1
            if not self._pause:
                self._drafting.clear()
                self._judge_after = PROBE_STEPS
        elif self._judge_after <= 0:
            self._judge()

    def _verify_seconds(self, outcome: Outcome) -> float:
        if self.costs is None or outcome.sharing.runs == 1:
            return outcome.verify_seconds
        return self.costs.verify_seconds(len(outcome.proposal))

    def _judge(self) -> None:
        if not self._plain:
            self._pause, self._judge_after = 1, 0
            self._reasons = (Reason("fallback_probe"),)
            return
        seconds, tokens = (sum(column) for column in zip(*self._drafting, strict=True))
        drafting, plain = seconds / tokens, sorted(self._plain)[len(self._plain) // 2]
        if drafting <= plain * SLOWER_FACTOR:
            self._next_pause, self._judge_after = FIRST_PAUSE, 1
            return
        self._pause, self._next_pause = (
            self._next_pause,
            min(LONGEST_PAUSE, 2 * self._next_pause),
        )
        numbers = {"drafting_seconds": drafting, "plain_seconds": plain}
        self._reasons = (Reason("fallback_rest", numbers),)
