"""What every method has: its entry in the table, and what it may use in a run. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from specdemo.config.settings import RunSettings
from specdemo.drafters.policies.calibration import MODEL_DRAFT, Calibration, Priors
from specdemo.drafters.policies.lookahead import Lookahead, make_lookahead
from specdemo.engine.cost import CostProfile, Costs

if TYPE_CHECKING:
    from specdemo.drafters.draft_reader import DraftReader
    from specdemo.drafters.memory.datastore import Datastore
    from specdemo.drafters.memory.markov import MarkovBias
    from specdemo.drafters.memory.visit import Memory
    from specdemo.drafters.policies.learned import LookaheadWeights
    from specdemo.engine.features import Features
    from specdemo.engine.prefix import PrefixReader
    from specdemo.engine.sampling import Shaper
    from specdemo.engine.types import Drafter

Tokens = Literal["drawn", "chosen", "copied", "mixed", "none"]
POLICY = ("policy", "lookahead", "threshold", "exact")  # options of a method that drafts chains
NEEDS = {
    "draft": "a draft model",
    "copy": "a target in bf16 or fp32, whose 4-bit copy drafts",
    "store": "a datastore of texts",
}  # any other need is the kind of a drafter that was trained for the target


@dataclass(frozen=True, slots=True)
class TrainedDrafter:
    """A kind of drafter that `python -m specdemo train KIND` makes.

    kind: its folder among a target's trained drafters, and a method's need for it
    title: with its article; about: what it is, in a clause
    card: the first paragraph of its README; {target}, {layers} and {words} are filled in
    """

    kind: str
    title: str
    about: str
    card: str


@dataclass(frozen=True, slots=True)
class Method:
    """The entry of a method: what the page, the command line, the documents, the training and the tests know of it.

    name: in settings, in traces and on the command line
    title, summary: in menus and tables; the summary is one sentence
    make: makes the drafter of a run
    label: what it is called within a sentence; the title in lower case where nothing is said
    paper: where it was published
    needs: what it cannot do without: one of NEEDS, or the kind of a trained drafter
    takes: what it uses beside that where it is there
    options: the run settings that it reads; with "fallback" it rests while drafting loses
    prior: how often tokens of a confidence are kept, before the run has shown it
    tokens: how they come about: drawn from a distribution, chosen from one, or copied from a text
    lossy: it changes the distribution of what is said, on purpose, and is marked wherever it appears
    trained: the drafter that is trained for it; told once where several methods use the same
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
    prior: Priors = MODEL_DRAFT
    tokens: Tokens = "drawn"
    lossy: bool = False
    trained: TrainedDrafter | None = None

    def __post_init__(self) -> None:
        """A method without a label of its own has its title as one."""
        object.__setattr__(self, "label", self.label or self.title.lower())

    @property
    def uses(self) -> tuple[str, ...]:
        """All that it drafts with."""
        return (*self.needs, *self.takes)

    @property
    def states(self) -> bool:
        """Whether it reads the target's hidden states, as every drafter does that was trained for the target."""
        return any(need not in NEEDS for need in self.needs)


@dataclass(frozen=True, slots=True)
class DraftingContext:
    """What a method may use to make the drafter of one run.

    profile: measured when the pair was loaded
    memory: what this visitor's earlier runs left; None when nothing may be remembered
    draft, copy: readers of the conversation's draft model and of the target's quantised copy
    trained: opens drafters that were trained for the target, by kind (see `models.drafts.trained`)
    features: the target's hidden states in this conversation
    store: the datastore that `retrieval` looks things up in
    lookahead_weights: the trained classifier of the `learned` policy
    together: says how many runs, with this one, are likely to share its passes
    prior: of the run's method
    costs, calibration: this run's own; they begin as the profile and the prior say
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
    lookahead_weights: LookaheadWeights | None = None
    together: Callable[[], int] = lambda: 1
    prior: Priors = MODEL_DRAFT
    costs: Costs = field(init=False)
    calibration: Calibration = field(init=False)

    def __post_init__(self) -> None:
        """A run begins with costs and a calibration of its own."""
        object.__setattr__(self, "costs", Costs(self.profile, self.together()))
        object.__setattr__(self, "calibration", self.calibrate(self.prior))

    def has(self, need: str) -> bool:
        """Whether what a method needs is there."""
        return getattr(self, need) is not None if need in NEEDS else need in self.trained

    def calibrate(self, prior: Priors) -> Calibration:
        """A new calibration that begins with a prior."""
        return Calibration(prior.greedy if self.settings.sampling.greedy else prior.sampled)

    def distributions(self, reader: PrefixReader, bias: MarkovBias | None = None) -> DraftReader:
        """A model's distributions, shaped as the target's are. bias: what memory adds to them"""
        from specdemo.drafters.draft_reader import DraftReader

        return DraftReader(reader, self.shaper, self.vocabulary_size, self.costs, bias)

    def draft_model(self) -> DraftReader:
        """The distributions of the conversation's draft model, for methods that need `draft`."""
        assert self.draft is not None  # make_drafter has looked
        return self.distributions(self.draft)

    def trained_drafter(self, kind: str) -> DraftReader:
        """Those of a trained drafter that answers as a language model does."""
        return self.distributions(self.trained[kind]())

    def lookahead(
        self, token_seconds: float | None = None, calibration: Calibration | None = None
    ) -> Lookahead:
        """The policy that the settings name.

        token_seconds: what drafting a token takes; None for a step of the draft model
        calibration: that of the run by default
        """
        return make_lookahead(
            self.settings,
            self.costs,
            calibration or self.calibration,
            self.lookahead_weights,
            token_seconds,
        )
