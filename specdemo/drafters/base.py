"""Entry of a method in the table, the resources of a method in a run, and plain decoding. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from specdemo.config.settings import POLICIES, RunSettings
from specdemo.config.strings import load
from specdemo.drafters.policies import lookahead as policies
from specdemo.drafters.policies.calibration import MODEL_DRAFT, Calibration, Priors
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.types import Drafter, Proposal
from specdemo.trace.events import Reason

if TYPE_CHECKING:
    from specdemo.drafters.memory.datastore import Datastore
    from specdemo.drafters.memory.markov import MarkovBias
    from specdemo.drafters.memory.visit import Memory
    from specdemo.drafters.reader import DraftReader
    from specdemo.engine.sampling import Shaper
    from specdemo.engine.target import Features


Tokens = Literal["drawn", "chosen", "copied", "mixed", "none"]
TREE_POLICIES = ("constant", "cost")
# options of methods that draft chains, and of tree methods
CHAIN_OPTIONS = ("policy", "lookahead", "threshold", "exact")
TREE_OPTIONS = ("policy", "lookahead", "nodes", "fallback")
# Any other need is the kind of a drafter that `python -m specdemo train KIND` makes for the target.
NEEDS = ("draft", "copy", "store")
WORDS = load("methods")


@dataclass(frozen=True, slots=True)
class Method:
    """Entry of a method: everything that the page, the command line, the documents, the training and the tests show.

    name: in settings, in traces and on the command line
    make: makes the drafter of a run
    title, summary: in menus and tables, one sentence; by default those of `assets/words`
    paper: publication
    needs: required resources: of NEEDS, or the kind of a trained drafter
    takes: optional resources, used if they are available
    options: the run settings that it reads; with "fallback" it pauses while drafting loses
    policies: the lookahead policies that it implements; by default all if it reads "policy"
    prior: how often tokens of a confidence are accepted, before the run has shown it
    tokens: how they are selected: drawn from a distribution, chosen from one, or copied from a text
    lossy: it changes the distribution of the output, on purpose, and is marked wherever it appears
    """

    name: str
    make: Callable[[DraftingContext], Drafter]
    title: str = ""
    summary: str = ""
    paper: str = ""
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    prior: Priors = MODEL_DRAFT
    tokens: Tokens = "drawn"
    lossy: bool = False

    def __post_init__(self) -> None:
        title, summary = (WORDS[part].get(self.name) for part in ("TITLES", "SUMMARIES"))
        object.__setattr__(self, "title", self.title or title or self.name)
        object.__setattr__(self, "summary", self.summary or summary or "")
        if "policy" in self.options and not self.policies:
            object.__setattr__(self, "policies", POLICIES)

    @property
    def uses(self) -> tuple[str, ...]:
        """Everything that it drafts with."""
        return (*self.needs, *self.takes)

    @property
    def states(self) -> bool:
        """Whether it reads the target's hidden states, as every drafter does that was trained for the target."""
        return any(need not in NEEDS for need in self.needs)

    def honoured(self, settings: RunSettings) -> RunSettings:
        """Return the settings with a policy that the method implements: `cost` instead of any other."""
        if not self.policies or settings.policy in self.policies:
            return settings
        return replace(settings, policy=self.policies[-1])


@dataclass(frozen=True, slots=True)
class DraftingContext:
    """Resources with which a method makes the drafter of one run.

    profile: measured when the pair was loaded
    memory: results of this session's earlier runs; None if they must not be used
    models: opens the model that meets a need, for all needs that are met but a store
    taken: the need of the model with which methods draft that take a draft model; "" if there is none
    features: the target's hidden states in this conversation
    store: the datastore that `retrieval` searches
    together: returns how many runs, including this one, are likely to share its passes
    prior: of the run's method
    costs, calibration: of this run; they start from the profile and the prior
    """

    settings: RunSettings
    shaper: Shaper
    vocabulary_size: int
    profile: CostProfile = field(default_factory=CostProfile)
    memory: Memory | None = None
    models: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    taken: str = "draft"
    features: Features | None = None
    store: Datastore | None = None
    together: Callable[[], int] = lambda: 1
    prior: Priors = MODEL_DRAFT
    costs: Costs = field(init=False)
    calibration: Calibration = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "costs", Costs(self.profile, self.together()))
        object.__setattr__(self, "calibration", self.calibrate(self.prior))

    def has(self, need: str) -> bool:
        return need in self.models or (need == "store" and self.store is not None)

    def calibrate(self, prior: Priors) -> Calibration:
        if self.settings.sampling.greedy:
            return Calibration(prior.greedy)
        return Calibration((self.shaper.tickets and prior.coupled) or prior.sampled)

    def distributions(self, need: str, bias: MarkovBias | None = None) -> DraftReader:
        """Return the distributions of the model that meets a method's need, shaped as the target's are.

        need: "draft", "copy", or the kind of a trained drafter that is read as a language model; bias: added from memory
        """
        from specdemo.drafters.reader import DraftReader

        return DraftReader(self.models[need](), self.shaper, self.vocabulary_size, self.costs, bias)

    def lookahead(
        self, token_seconds: float | None = None, calibration: Calibration | None = None
    ) -> policies.Lookahead:
        """Return the policy of the settings.

        token_seconds: duration of drafting a token; None for a step of the draft model
        calibration: that of the run by default
        """
        settings = self.settings
        match settings.policy:
            case "constant":
                return policies.Constant(settings.lookahead)
            case "heuristic":
                return policies.Heuristic(settings.lookahead)
            case "confidence":
                return policies.Confidence(settings.threshold, settings.lookahead)
        calibration = calibration or self.calibration
        return policies.CostAware(settings.lookahead, self.costs, calibration, token_seconds)


class Plain(Drafter):
    """Proposes nothing: plain decoding, the baseline of every other method."""

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        return Proposal(reasons=(Reason("plain"),))


PLAIN = Method(
    name="nothing",  # in traces, links and recordings; `plain` is accepted wherever it is given
    make=lambda _context: Plain(),
    tokens="none",
)
