"""Copies, drafts with a model or decodes plainly: the fastest in tokens a second at this step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdemo.drafters.arms import TRY, Arm, copiers, model_arm
from specdemo.drafters.base import DraftingContext, Method
from specdemo.drafters.copies import NGRAM, known_texts
from specdemo.drafters.copy_through import COPY_THROUGH, Through
from specdemo.drafters.policies.lookahead import CostAware
from specdemo.drafters.policies.rule import StoppingRule
from specdemo.engine.cost import Costs
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

FIRST_REST, LONGEST_REST = 12, 96  # steps until an arm that lost is tried again
USUAL = 4  # drafted tokens of which one length must pay before a model is tried
AGAIN = 8  # steps after which that is checked again
SURE_CHANCE = 0.95  # chance of each token of a good copy
COPIED_TOKENS = (2, 4, 8, 16)  # tokens of such copies
BEHIND = 3  # tokens of a match from which copies follow a draft: with two, hardly more than a third are accepted
CHEAP = 4.0  # speedup that such copies must give there: if rows are expensive, a step of its own is better
WORTH = 1.6  # speedup that copies must give before runs that share passes search for any


class Auto(Drafter):
    """Chooses among copying, the draft model and plain decoding by expected tokens a second, step by step.

    A copy's rate is predicted from its match and the measured costs; the model's is that of its last steps.
    A model that loses pauses, and is tried again now and then; if its usual drafts are predicted to lose, for example
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
        self._reads = False  # whether the model has read the text
        self._trials = TRY  # steps of trial, in which the model drafts at any rate
        # Steps since it drafted, and until it is tried again.
        self._idle, self._rest = 0, FIRST_REST
        # Whether copies are searched for, and after drafts too, and whether the model would pay; None if not calculated.
        self._looks = self._behind = True
        self._pays: bool | None = None
        self._together = 1

    @property
    def arms(self) -> list[Arm]:
        """All of them."""
        return [*self.copiers, *([self.model] if self.model else [])]

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Start every drafter that may be used."""
        self._join()
        for arm in self.copiers:
            arm.drafter.start(prompt_ids)
        self._reads = False
        if self.model and self._usually_pays(self.model):
            self._begin(self.model, prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Return the draft with the most expected tokens a second; empty if plain decoding has more."""
        if self.costs.together != self._together:
            self._join()
        plain = self.costs.plain_rate()
        model, trial = self._model(plain)
        if model and not (self._reads or self._repays(model, committed, budget)):
            model = None
        rates = {"plain": plain}
        if self.model:
            rates[self.model.name] = self.model.rate or 0.0
            self._idle += 1
        to_beat = max(plain, (model.rate or plain) if model else plain)
        best, draft = self._copied(committed, budget, rates, to_beat)
        if best is None and model is not None:
            best, draft = model, self._drafted(model, committed, budget)
        self._chosen = best
        if best is None:
            return Proposal(source="plain", reasons=self._why(draft, rates, trial=False))
        return replace(draft, reasons=self._why(draft, rates, trial=trial and best is model))

    def _copied(
        self, committed: Sequence[int], budget: int, rates: dict[str, float], to_beat: float
    ) -> tuple[Arm | None, Proposal]:
        """Return the best copy, if its rate exceeds `to_beat`, with its arm. rates: those of copies are added"""
        best, draft = None, Proposal(source="plain")
        for arm in self.copiers if self._looks else ():
            proposal = arm.propose(committed, budget, self.costs)
            if len(proposal):
                rate = arm.promise(proposal)
                rates[arm.name] = rate
                if rate > to_beat:
                    best, draft, to_beat = arm, proposal, rate
        return best, draft

    def _drafted(self, model: Arm, committed: Sequence[int], budget: int) -> Proposal:
        """The model's draft; where rows are cheap and a lookup fires, copies after it, as many as pay."""
        if not self._reads:
            self._begin(model, committed)
        draft = model.propose(committed, budget, self.costs)
        model.believe(draft)
        self._idle, self._trials = 0, max(0, self._trials - 1)
        if self.through is None or not self._behind or not len(draft):
            return draft
        return self.through.continued(draft, committed, budget)

    def observe(self, outcome: Outcome) -> None:
        """Give a step to the arm that drafted it, without copies after it; the others learn the text, as without a draft."""
        if self.through and outcome.proposal.source == COPY_THROUGH.name:
            outcome = self.through.drafted(outcome)
        silent = outcome if self._chosen is None else outcome.silent()
        for arm in self.arms:
            if arm is self._chosen:
                arm.observe(outcome, self.costs)
            else:
                arm.drafter.observe(silent)

    def verifying(self, proposal: Proposal) -> None:
        """Let the arm that drafted work in parallel with the target."""
        if self._chosen:
            self._chosen.drafter.verifying(proposal)

    def close(self) -> None:
        """End the run of every arm."""
        for arm in self.arms:
            arm.drafter.close()

    def _model(self, plain: float) -> tuple[Arm | None, bool]:
        """The model, unless plain decoding is faster, and whether that is a trial."""
        model = self.model
        if model is None or not (model.rate or self._usually_pays(model)):
            return None, False
        if not self._trials:
            if (model.rate or 0.0) >= plain:
                return model, False
            if self._idle < self._rest:
                return None, False
            if self._together > 1 and not self._usually_pays(model):
                return None, False
            self._rest, self._trials = min(LONGEST_REST, 2 * self._rest), 1
        return model, True

    def _usually_pays(self, model: Arm) -> bool:
        """Return True if a few tokens of a model that is not in use would be faster than plain decoding."""
        if self._pays is None or not self._idle % AGAIN:
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
            arm.join(self.costs)

    def _begin(self, model: Arm, committed: Sequence[int]) -> None:
        model.drafter.start(committed)
        self._reads = True

    def _why(self, draft: Proposal, rates: dict[str, float], *, trial: bool) -> tuple[Reason, ...]:
        return (Reason("auto_trial" if trial else "auto_best", rates), *draft.reasons)


def _auto(context: DraftingContext) -> Auto:
    """Without the tree: over the same draft the chain gave more wherever the compiled pass was measured."""
    most, costs, texts = context.settings.lookahead, context.costs, known_texts(context)
    model = through = None
    if context.draft is not None or context.has("feature"):
        model = model_arm(context, lambda calibration: CostAware(most, costs, calibration))
        through = Through(texts, context.calibrate(NGRAM.prior), costs, shortest=BEHIND)
    return Auto(copiers(context, texts), model, costs, through)


AUTO = Method(
    name="auto",
    title="Auto",
    summary="Copies, asks the draft model or decodes plainly, step by step: whichever is fastest here.",
    make=_auto,
    takes=("draft", "store"),
    options=("lookahead", "memory"),
    tokens="mixed",
)
