"""Stops drafting while it measurably loses against plain decoding, and probes again now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from specdemo.engine.cost import Costs
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

WINDOW = 12  # drafting steps that the judgement looks at
PROBE = 4  # drafting steps after a rest before it is judged again
FIRST_REST, LONGEST_REST = 8, 64  # plain steps
MARGIN = 1.03  # drafting must be this much slower before it is stopped: timings are noisy


class Fallback(Drafter):
    """Wraps a drafter. Both costs are measured in this very run: seconds a token while drafting and while not.

    Steps in which the drafter had nothing to propose count as plain. As long as no plain step was seen,
    one is taken after the first window, so that there is something to compare with.

    costs: say what steps take in company, where a pass takes what the drafts of others make of it: as if all did
        the same. Judged anew when runs come or go.
    """

    def __init__(self, drafter: Drafter, costs: Costs | None = None) -> None:
        self.drafter = drafter
        self.costs = costs
        self._reset()

    def _reset(self) -> None:
        self._drafting: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._plain: deque[float] = deque(maxlen=WINDOW)
        self._rest = 0
        self._next_rest = FIRST_REST
        self._judge_after = WINDOW
        self._why: tuple[Reason, ...] = ()
        self._together = 1

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Begin without a judgement."""
        self._reset()
        return self.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """The drafter's proposal, or nothing while resting."""
        if self._rest:
            return Proposal(reasons=self._why)
        return self.drafter.propose(committed, budget)

    def verifying(self, proposal: Proposal) -> None:
        """The drafter may work beside the target, unless it rests."""
        if not self._rest:
            self.drafter.verifying(proposal)

    def observe(self, outcome: Outcome) -> None:
        """Time the step; rest when drafting has been losing."""
        self.drafter.observe(outcome)
        if outcome.sharing.runs != self._together:
            self._reset()
            self._together, self._judge_after = outcome.sharing.runs, PROBE
        seconds = outcome.draft_seconds + self._verify_seconds(outcome)
        if len(outcome.proposal):
            self._drafting.append((seconds, len(outcome.new_ids)))
            self._judge_after -= 1
        else:
            self._plain.append(seconds)
        if self._rest:
            self._rest -= 1
            if not self._rest:
                self._drafting.clear()
                self._judge_after = PROBE
        elif self._judge_after <= 0:
            self._judge()

    def close(self) -> None:
        """End the drafter's run."""
        self.drafter.close()

    def _verify_seconds(self, outcome: Outcome) -> float:
        if self.costs is None or outcome.sharing.runs == 1:
            return outcome.verify_seconds
        return self.costs.verify_seconds(len(outcome.proposal))

    def _judge(self) -> None:
        if not self._plain:
            self._rest, self._why, self._judge_after = (
                1,
                (Reason("fallback_probe"),),
                0,
            )
            return
        drafting = sum(seconds for seconds, _ in self._drafting) / sum(
            count for _, count in self._drafting
        )
        plain = sorted(self._plain)[len(self._plain) // 2]
        if drafting <= plain * MARGIN:
            self._next_rest, self._judge_after = FIRST_REST, 1
            return
        self._rest, self._next_rest = self._next_rest, min(LONGEST_REST, 2 * self._next_rest)
        self._why = (
            Reason("fallback_rest", {"drafting_seconds": drafting, "plain_seconds": plain}),
        )
