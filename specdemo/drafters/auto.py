"""Copies, drafts with a model or decodes plainly: the fastest in tokens a second at this step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdemo.drafters.base import DraftingContext, Method
from specdemo.drafters.copies import NGRAM, known_texts
from specdemo.drafters.copy_through import COPY_THROUGH, Arm, Through, copiers, model_arm
from specdemo.drafters.policies.guard import PROVEN, TRIAL_COPIES, Decision, Ledger
from specdemo.drafters.policies.lookahead import CostAware
from specdemo.drafters.policies.rule import StoppingRule
from specdemo.engine.cost import Costs
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

USUAL = 4  # drafted tokens of which one length must pay before a model is tried
AGAIN = 8  # steps after which that is checked again
SURE_CHANCE = 0.95  # chance of each token of a good copy
COPIED_TOKENS = (2, 4, 8, 16)  # tokens of such copies
BEHIND = 3  # tokens of a match from which copies follow a draft: with two, hardly more than a third are accepted
CHEAP = 4.0  # speedup that such copies must give there: if rows are expensive, a step of its own is better
WORTH = 1.6  # speedup that copies must give before runs that share passes search for any


class Auto(Drafter):
    """Chooses among copying, the draft model and plain decoding by expected tokens a second, step by step.

    A copy's gain is predicted from its match and the measured costs; the model's is that of its last steps. `Ledger`
    decides on both, with plain decoding as a choice. If the model's usual drafts are predicted to lose, for example
    with many concurrent runs, it does not even read the prompt; and if the best copies would gain little, none are
    searched for. None of this changes the distribution.
    """

    def __init__(
        self,
        copiers: Sequence[Arm],
        model: Arm | None,
        costs: Costs,
        through: Through | None = None,
    ) -> None:
        self.copiers = copiers
        self.model = model
        self.costs = costs
        self.stopping = StoppingRule(costs)
        self.through = through
        self._chosen: Arm | None = None
        self._reads = False  # whether the model reads the text
        self._read = 0  # tokens of it that it has read
        self._missed = 0  # tokens that it has not
        self._steps = 0
        self.ledger = Ledger(costs)
        # Whether copies are searched for, and after drafts too, and whether the model would pay; None if not calculated.
        self._looks = self._behind = True
        self._pays: bool | None = None
        self._together = 1

    @property
    def arms(self) -> list[Arm]:
        return [*self.copiers, *([self.model] if self.model else [])]

    def start(self, prompt_ids: Sequence[int]) -> None:
        self._join()
        for arm in self.copiers:
            arm.drafter.start(prompt_ids)
        self._reads, self._read = False, 0
        if self.model and self._usually_pays(self.model):
            self._begin(self.model, prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Return the draft with the most expected tokens a second; empty if plain decoding has more."""
        if self.costs.together != self._together:
            self._join()
        self._steps += 1
        plain = 1 / self.ledger.plain_seconds
        rates = {"plain": plain}
        decision = self._model(committed, budget)
        to_beat = plain
        if self.model:
            rates[self.model.name] = self.ledger.rate(self.model.record)
            to_beat = max(plain, rates[self.model.name]) if decision.drafts else plain
        self._chosen, draft = self._copied(committed, budget, rates, to_beat)
        if self._chosen:
            return replace(draft, reasons=(Reason("auto_best", rates), *draft.reasons))
        reason = Reason("auto_trial" if decision is Decision.TRIAL else "auto_best", rates)
        if self.model and decision.drafts:
            self._chosen = self.model
            return self._drafted(self.model, committed, budget, decision, reason)
        seconds = self.costs.verify_seconds(0)
        return Proposal(
            source="plain", reasons=(reason,), expected_tokens=1.0, expected_seconds=seconds
        )

    def _copied(
        self, committed: Sequence[int], budget: int, rates: dict[str, float], to_beat: float
    ) -> tuple[Arm | None, Proposal]:
        """Return the best copy, if its rate exceeds `to_beat`, with its arm. rates: those of copies are added"""
        best, draft = None, Proposal()
        for arm in self.copiers if self._looks else ():
            most = budget if arm.record.seen >= PROVEN else min(budget, TRIAL_COPIES)
            proposal = arm.propose(committed, most, self.costs)
            if len(proposal):
                tokens = proposal.expected_tokens or 1.0
                seconds = arm.record.corrected(proposal.expected_seconds or 0.0)
                rates[arm.name] = rate = tokens / seconds
                gain = tokens * self.ledger.plain - seconds / self.costs.verify_seconds(0)
                if rate > to_beat and self.ledger.decide(arm.record, gain, budget).drafts:
                    best, draft, to_beat = arm, proposal, rate
        return best, draft

    def _drafted(
        self,
        model: Arm,
        committed: Sequence[int],
        budget: int,
        decision: Decision,
        reason: Reason,
    ) -> Proposal:
        """Return the model's draft; where rows are cheap and a lookup fires, with as many copies after it as pay. reason: why it drafts"""
        if not self._reads:
            self._begin(model, committed)
        self._read = len(committed)
        draft = model.propose(committed, decision.tokens(budget), self.costs, reason)
        if self.through is None or not self._behind or not len(draft):
            return draft
        return self.through.continued(draft, committed, budget)

    def observe(self, outcome: Outcome) -> None:
        """Give a step to the arm that drafted it, without copies after it. The others read the text when they draft next."""
        if self.through and outcome.proposal.source == COPY_THROUGH.name:
            outcome = self.through.drafted(outcome)
        if self._chosen is None:
            self.ledger.plain_step(outcome, *(arm.record for arm in self.arms))
            return
        missed = self._missed if self._chosen is self.model else 0
        self.ledger.drafted_step(outcome, self._chosen.record, missed)
        self._chosen.observe(outcome, self.costs)
        if self._chosen is self.model:
            self._read += len(outcome.new_ids)

    def verifying(self, proposal: Proposal) -> None:
        if self._chosen:
            self._chosen.drafter.verifying(proposal)

    def close(self) -> None:
        for arm in self.arms:
            arm.drafter.close()

    def _model(self, committed: Sequence[int], budget: int) -> Decision:
        model = self.model
        if model is None:
            return Decision.PLAIN
        self._missed = len(committed) - self._read
        gain, reading = self.ledger.gain(model.record), self.ledger.reading(self._missed)
        decision = self.ledger.decide(model.record, gain, budget, reading)
        new = not model.record.steps or (self._together > 1 and decision is Decision.TRIAL)
        if new and not self._usually_pays(model):
            return Decision.PLAIN
        if decision.drafts and not (self._reads or self._repays(model, committed, budget)):
            return Decision.PLAIN
        return decision

    def _usually_pays(self, model: Arm) -> bool:
        """Return True if a few tokens of a model that is not in use would be faster than plain decoding."""
        if self._pays is None or not self._steps % AGAIN:
            self._pays = self._usual_speedup(model) > 1
        return self._pays

    def _repays(self, model: Arm, committed: Sequence[int], budget: int) -> bool:
        """Return True if the rest of the answer gains as much as reading the text costs. A run that is alone uses trials instead."""
        if self._together == 1:
            return True
        gain = budget * self.costs.verify_seconds(0) * (1 - 1 / self._usual_speedup(model))
        return gain > self.costs.profile.draft_reading(len(committed))

    def _usual_speedup(self, model: Arm) -> float:
        """Return the rate of the best of a few lengths, divided by that of plain decoding."""
        lengths = range(1, USUAL + 1)
        return self.stopping.speedup(lengths, model.calibration.mean, self.costs.draft_step)

    def _join(self) -> None:
        """Update the decisions that depend on the number of runs that share passes."""
        self._together, self._pays = self.costs.together, None
        best = self.stopping.speedup(COPIED_TOKENS, SURE_CHANCE, 0.0)
        self._looks, self._behind = self._together == 1 or best >= WORTH, best >= CHEAP
        for arm in self.arms:
            arm.record.join(self.costs)

    def _begin(self, model: Arm, committed: Sequence[int]) -> None:
        model.drafter.start(committed)
        self._reads, self._read = True, len(committed)


def _auto(context: DraftingContext) -> Auto:
    """Without the tree: over the same draft the chain gave more wherever the compiled pass was measured."""
    most, costs, texts = context.settings.lookahead, context.costs, known_texts(context)
    model = through = None
    if context.has(context.taken):
        model = model_arm(context, lambda calibration: CostAware(most, costs, calibration))
        through = Through(texts, context.calibrate(NGRAM.prior), costs, shortest=BEHIND)
    return Auto(copiers(context, texts), model, costs, through)


AUTO = Method(
    name="auto",
    make=_auto,
    takes=("draft", "store"),
    options=("lookahead", "memory"),
    tokens="mixed",
)
