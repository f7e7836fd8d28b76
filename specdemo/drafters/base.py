"""Entry of a method in the table, the resources of a method in a run, and drafters without a model. Imports no torch.

Those are plain decoding, and scripts that test the loop and bound the gain of any policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from specdemo.config.settings import RunSettings
from specdemo.drafters.policies.calibration import MODEL_DRAFT, Calibration, Priors
from specdemo.drafters.policies.lookahead import Lookahead, make_lookahead
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.types import Drafter, Proposal
from specdemo.trace.events import Reason

if TYPE_CHECKING:
    from specdemo.drafters.memory.datastore import Datastore
    from specdemo.drafters.memory.markov import MarkovBias
    from specdemo.drafters.memory.visit import Memory
    from specdemo.drafters.reader import DraftReader
    from specdemo.engine.sampling import Shaper
    from specdemo.engine.target import Features, PrefixReader


Tokens = Literal["drawn", "chosen", "copied", "mixed", "none"]
CHAIN_POLICIES = ("constant", "heuristic", "confidence", "cost")
TREE_POLICIES = ("constant", "cost")
CHAIN_OPTIONS = ("policy", "lookahead", "threshold", "exact")  # options with CHAIN_POLICIES
TREE_OPTIONS = ("policy", "lookahead", "nodes", "fallback")  # options of tree methods
NEEDS = {
    "draft": "a draft model",
    "copy": "a target in bf16 or fp32, whose 4-bit copy drafts",
    "store": "a datastore of texts",
}  # any other need is the kind of a drafter that was trained for the target


@dataclass(frozen=True, slots=True)
class TrainedDrafter:
    """A kind of drafter that `python -m specdemo train KIND` makes.

    kind: its folder among a target's trained drafters, and a method's need for it
    title: with its article; about: a description, as a clause
    card: first paragraph of its README; {target}, {layers} and {words} are filled in
    """

    kind: str
    title: str
    about: str
    card: str


@dataclass(frozen=True, slots=True)
class Method:
    """Entry of a method: everything that the page, the command line, the documents, the training and the tests show.

    name: in settings, in traces and on the command line
    title, summary: in menus and tables; the summary is one sentence
    make: makes the drafter of a run
    label: its name within a sentence; by default the title in lower case
    paper: publication
    needs: required resources: one of NEEDS, or the kind of a trained drafter
    takes: optional resources, used if they are available
    options: the run settings that it reads; with "fallback" it pauses while drafting loses
    policies: the lookahead policies that it implements, if it reads "policy"
    prior: how often tokens of a confidence are accepted, before the run has shown it
    tokens: how they are selected: drawn from a distribution, chosen from one, or copied from a text
    lossy: it changes the distribution of the output, on purpose, and is marked wherever it appears
    trained: the drafter that is trained for it; named by one method if several use the same
    """

    name: str
    title: str
    summary: str
    make: Callable[[DraftingContext], Drafter]
    label: str = ""
    paper: str = ""
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    prior: Priors = MODEL_DRAFT
    tokens: Tokens = "drawn"
    lossy: bool = False
    trained: TrainedDrafter | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.title.lower())

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
    draft, copy: readers of the conversation's draft model and of the target's quantised copy
    trained: opens drafters that were trained for the target, by kind
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
    draft: PrefixReader | None = None
    copy: PrefixReader | None = None
    trained: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
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
        return getattr(self, need) is not None if need in NEEDS else need in self.trained

    def calibrate(self, prior: Priors) -> Calibration:
        if self.settings.sampling.greedy:
            return Calibration(prior.greedy)
        return Calibration((self.shaper.tickets and prior.coupled) or prior.sampled)

    def distributions(
        self, reader: PrefixReader | None, bias: MarkovBias | None = None
    ) -> DraftReader:
        """Return a model's distributions, shaped as the target's are. bias: added from memory"""
        from specdemo.drafters.reader import DraftReader

        assert reader is not None, "make_drafter checks the needs of a method"
        return DraftReader(reader, self.shaper, self.vocabulary_size, self.costs, bias)

    def draft_model(self) -> DraftReader:
        """Return the distributions of the conversation's draft model, for methods that need `draft`."""
        return self.distributions(self.draft)

    def trained_drafter(self, kind: str) -> DraftReader:
        """Return those of a trained drafter that is read as a language model."""
        return self.distributions(self.trained[kind]())

    def lookahead(
        self, token_seconds: float | None = None, calibration: Calibration | None = None
    ) -> Lookahead:
        """Return the policy of the settings.

        token_seconds: duration of drafting a token; None for a step of the draft model
        calibration: that of the run by default
        """
        return make_lookahead(
            self.settings, self.costs, calibration or self.calibration, token_seconds
        )


class Plain(Drafter):
    """Proposes nothing: plain decoding, the baseline of every other method."""

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        return Proposal(reasons=(Reason("plain"),))


PLAIN = Method(
    name="nothing",  # in traces, links and recordings; `plain` is accepted wherever it is given
    title="Plain decoding",
    summary="No drafts: one target pass for each token, the baseline.",
    make=lambda _context: Plain(),
    tokens="none",
)
