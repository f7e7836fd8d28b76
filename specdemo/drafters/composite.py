"""Several drafters in one: copy when a copy is likely to be right, else ask a model; or whichever is fastest now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specdemo.drafters.base import POLICY, DraftingContext, Method
from specdemo.drafters.draft_model import DRAFT_MODEL, DraftModel
from specdemo.drafters.ngram import NGRAM, Ngram, known_texts
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.forecast import foreseen
from specdemo.drafters.policies.lookahead import CostAware, Lookahead
from specdemo.drafters.retrieval import RETRIEVAL, Retrieval
from specdemo.engine.cost import FOLLOW, Costs
from specdemo.engine.forward import Requesting
from specdemo.engine.types import Drafter, Outcome, Proposal

TRY = 3  # steps of a trial before an arm is judged
REMEMBER = 0.98  # what is left of an arm's earlier steps after each of its own: single steps differ by as much as they give
PRIOR_STEPS = 30  # that the forecasts of the model's first proposals count for: they are less noisy than steps
HELD_UP = 2.0  # times what was foreseen is the most that a step counts for
FIRST_REST, LONGEST_REST = 12, 96  # steps until an arm that lost is tried again
COPY_MOST = 24  # a good copy may be long: the policy stops it earlier
USUAL = 4  # drafted tokens of which one length must pay before a model is tried


@dataclass(slots=True)
class Arm:
    """One drafter of several, and what it has shown in this run.

    tokens, seconds: of its own steps, fading; a model begins with what it promises
    foreseen, kept: drafted tokens that were expected to be kept, and those that were, fading
    believed: promises that were taken for steps
    """

    name: str
    drafter: Drafter
    calibration: Calibration = field(default_factory=Calibration)
    token_seconds: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
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
            self.tokens += PRIOR_STEPS / TRY * (proposal.expected_tokens or 1.0)
            self.seconds += PRIOR_STEPS / TRY * (proposal.expected_seconds or 0.0)

    def promise(self, proposal: Proposal) -> float:
        """Tokens a second of a proposal's step, taking into account what this arm's forecasts were worth."""
        assert proposal.expected_tokens is not None
        assert proposal.expected_seconds is not None
        gain = (proposal.expected_tokens - 1) * min(1.2, self.kept / self.foreseen)
        return (1 + gain) / proposal.expected_seconds

    def propose(self, committed: Sequence[int], budget: int, costs: Costs) -> Requesting[Proposal]:
        """The drafter's proposal, with what it is expected to give by this arm's own calibration."""
        proposal = yield from self.drafter.propose(committed, budget)
        named = replace(proposal, source=self.name)
        return foreseen(named, costs, self.calibration, self.token_seconds)

    def observe(self, outcome: Outcome) -> None:
        """Learn from a step of its own."""
        self.drafter.observe(outcome)
        self.calibration.observe(outcome)
        drafted = len(outcome.proposal)
        if drafted:
            self.token_seconds += FOLLOW * (outcome.draft_seconds / drafted - self.token_seconds)
        measured = outcome.draft_seconds + outcome.verify_seconds
        promised = outcome.proposal.expected_seconds or measured
        # In company a step takes what all runs do in it; what it would take if all did the same is foreseen.
        seconds = min(measured, HELD_UP * promised) if outcome.sharing.runs == 1 else promised
        # The chances of what was tested add up to what is kept on average, with less luck in it.
        kept = sum(chance for chance in outcome.verdict.accept_probs if chance is not None)
        self.tokens = REMEMBER * self.tokens + 1 + kept
        self.seconds = REMEMBER * self.seconds + seconds
        expected = (outcome.proposal.expected_tokens or 1.0) - 1
        self.foreseen = REMEMBER * self.foreseen + expected
        self.kept = REMEMBER * self.kept + kept


class Composite(Drafter):
    """Copies when a copy is likelier to be right than the model's drafts have been; else the model drafts."""

    def __init__(self, copiers: Sequence[Arm], model: Arm, costs: Costs) -> None:
        self.copiers = copiers
        self.model = model
        self.costs = costs
        self._chosen: Arm = model

    @property
    def arms(self) -> list[Arm]:
        """All of them."""
        return [*self.copiers, self.model]

    def start(self, prompt_ids: Sequence[int]) -> Requesting[None]:
        """Start every drafter."""
        for arm in self.arms:
            yield from arm.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Requesting[Proposal]:
        """The first copy that is good enough, or the model's draft."""
        for arm in self.copiers:
            proposal = yield from arm.propose(committed, budget, self.costs)
            if len(proposal):
                chance = arm.calibration.chance(proposal.confidences[0])
                if chance >= self.model.calibration.mean:
                    self._chosen = arm
                    return proposal
        self._chosen = self.model
        return (yield from self.model.propose(committed, budget, self.costs))

    def observe(self, outcome: Outcome) -> None:
        """The step counts for the one that drafted it; the others learn the text."""
        observe_all(self.arms, self._chosen, outcome)

    def verifying(self, proposal: Proposal) -> None:
        """The one that drafted may work beside the target."""
        if self._chosen:
            self._chosen.drafter.verifying(proposal)

    def close(self) -> None:
        """End the run of every drafter."""
        for arm in self.arms:
            arm.drafter.close()


class Auto(Drafter):
    """Chooses among copying, the draft model and plain decoding by expected tokens a second, step by step.

    A copy's rate is foreseen from its match and the measured costs; the model's is what its last steps gave.
    A model that loses rests, and is tried again now and then; where its usual drafts would lose, as for many runs
    at once, it does not even read the prompt. Nothing of this touches the distribution.
    """

    def __init__(self, copiers: Sequence[Arm], model: Arm | None, costs: Costs) -> None:
        self.copiers = copiers
        self.model = model
        self.costs = costs
        self._chosen: Arm | None = None
        self._reads = False  # whether the model knows the text
        self._trials = TRY  # steps in which the model is asked whatever it gave
        # Steps since it was asked, and until it is tried again.
        self._idle, self._rest = 0, FIRST_REST

    @property
    def arms(self) -> list[Arm]:
        """All of them."""
        return [*self.copiers, *([self.model] if self.model else [])]

    def start(self, prompt_ids: Sequence[int]) -> Requesting[None]:
        """Start every drafter that may be used."""
        for arm in self.copiers:
            yield from arm.drafter.start(prompt_ids)
        self._reads = False
        if self.model and self._usually_pays(self.model):
            yield from self._begin(self.model, prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Requesting[Proposal]:
        """The draft of whichever promises most tokens a second; empty when plain decoding does."""
        plain = self.costs.plain_rate()
        model, trial = self._model(plain)
        rates = {"plain": plain}
        if self.model:
            rates[self.model.name] = self.model.rate or 0.0
            self._idle += 1
        to_beat = max(plain, (model.rate or plain) if model else plain)
        best, draft = None, Proposal(source="plain")
        for arm in self.copiers:
            proposal = yield from arm.propose(committed, budget, self.costs)
            if len(proposal):
                rate = arm.promise(proposal)
                rates[arm.name] = rate
                if rate > to_beat:
                    best, draft, to_beat = arm, proposal, rate
        if best is None and model is not None:
            if not self._reads:
                yield from self._begin(model, committed)
            best, draft = model, (yield from model.propose(committed, budget, self.costs))
            model.believe(draft)
            self._idle, self._trials = 0, max(0, self._trials - 1)
        self._chosen = best
        return replace(draft, reason=self._why(draft, rates, trial and best is model))

    def observe(self, outcome: Outcome) -> None:
        """The step counts for the one that drafted it; the others learn the text."""
        observe_all(self.arms, self._chosen, outcome)

    def verifying(self, proposal: Proposal) -> None:
        """The one that drafted may work beside the target."""
        if self._chosen:
            self._chosen.drafter.verifying(proposal)

    def close(self) -> None:
        """End the run of every drafter."""
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
            self._rest, self._trials = min(LONGEST_REST, 2 * self._rest), 1
        return model, True

    def _usually_pays(self, model: Arm) -> bool:
        """Whether a few tokens of a model of which nothing is known yet would be faster than plain decoding."""
        costs, chance = self.costs, model.calibration.mean
        tokens = survival = 1.0
        for drafted in range(1, USUAL + 1):
            survival *= chance
            tokens += survival
            seconds = costs.verify_seconds(drafted) + drafted * costs.draft_step
            if tokens > seconds * costs.plain_rate():
                return True
        return False

    def _begin(self, model: Arm, committed: Sequence[int]) -> Requesting[None]:
        yield from model.drafter.start(committed)
        self._reads = True

    def _why(self, draft: Proposal, rates: dict[str, float], trial: bool) -> str:  # noqa: FBT001
        others = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
        how = "on trial" if trial else "best"
        return f"auto: {draft.source} is {how} (tokens/s: {others}). {draft.reason}".rstrip()


def observe_all(arms: Sequence[Arm], chosen: Arm | None, outcome: Outcome) -> None:
    """Give a step to the arm that drafted it; the others hear the text, as of a step without a draft."""
    silent = replace(
        outcome,
        proposal=Proposal(),
        verdict=replace(outcome.verdict, path=(), accept_probs=()),
        draft_seconds=0.0,
    )
    for arm in arms:
        if arm is chosen:
            arm.observe(outcome)
        else:
            arm.drafter.observe(silent)


def _copiers(context: DraftingContext) -> list[Arm]:
    """Copying drafters, each with a calibration of its own, that copy on as long as it pays."""

    def arm(method: Method, make: Callable[[Lookahead], Drafter]) -> Arm:
        calibration = context.calibrate(method.prior)
        policy = CostAware(COPY_MOST, context.costs, calibration, 0.0)
        return Arm(method.name, make(policy), calibration)

    arms = [arm(NGRAM, lambda policy: Ngram(known_texts(context), policy))]
    if context.store is not None:
        store = context.store
        arms.append(arm(RETRIEVAL, lambda policy: Retrieval(store, policy, shortest=3)))
    return arms


def _model(context: DraftingContext, policy: Callable[[Calibration], Lookahead]) -> Arm:
    """The draft model, with a calibration of its own, which its policy reads."""
    calibration = context.calibrate(DRAFT_MODEL.prior)
    drafter = DraftModel(context.draft_model(), policy(calibration))
    return Arm(DRAFT_MODEL.name, drafter, calibration, context.costs.draft_step)


def _composite(context: DraftingContext) -> Composite:
    model = _model(context, lambda calibration: context.lookahead(calibration=calibration))
    return Composite(_copiers(context), model, context.costs)


def _auto(context: DraftingContext) -> Auto:
    """Without the tree: over the same draft the chain gave more wherever the compiled pass was measured."""
    most, costs = context.settings.lookahead, context.costs
    model = None
    if context.draft is not None:
        model = _model(context, lambda calibration: CostAware(most, costs, calibration))
    return Auto(_copiers(context), model, costs)


AUTO = Method(
    name="auto",
    title="Auto",
    summary="Copies, asks the draft model or decodes plainly, step by step: what measured costs promise to be fastest.",
    make=_auto,
    takes=("draft", "store"),
    options=("lookahead", "memory"),
    tokens="mixed",
)
COMPOSITE = Method(
    name="composite",
    title="Composite",
    summary="Copies where the text repeats itself, and asks the draft model everywhere else.",
    make=_composite,
    needs=("draft",),
    takes=("store",),
    options=(*POLICY, "memory", "fallback"),
    tokens="mixed",
)
