"""Makes the drafter of a run: a factory for each method of the table in `methods`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from specdemo.drafters.block import DSpark, JetSpec
from specdemo.drafters.composite import Arm, Auto, Composite
from specdemo.drafters.draft_model import DraftModel
from specdemo.drafters.draft_reader import DraftReader
from specdemo.drafters.look_back import LookBack
from specdemo.drafters.medusa import Medusa
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.memory.markov import MarkovBias, MarkovCounts
from specdemo.drafters.memory.visit import Memory
from specdemo.drafters.methods import METHODS, NEEDED
from specdemo.drafters.ngram import Ngram
from specdemo.drafters.nothing import Nothing
from specdemo.drafters.parallel import Parallel
from specdemo.drafters.policies.calibration import (
    Calibration,
    Prior,
    chosen_guess,
    greedy_model,
    ngram_copy,
    retrieved_copy,
    sampled_model,
    sampled_ngram,
    sampled_retrieval,
)
from specdemo.drafters.policies.fallback import Fallback
from specdemo.drafters.policies.forecast import Forecast
from specdemo.drafters.policies.lookahead import CostAware, Lookahead, make_lookahead
from specdemo.drafters.retrieval import Retrieval
from specdemo.drafters.tree import Tree
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.features import Features
from specdemo.engine.prefix import PrefixReader
from specdemo.engine.sampling import Shaper
from specdemo.engine.types import Drafter
from specdemo.errors import UserError
from specdemo.models.drafts.trained import KINDS
from specdemo.settings import RunSettings

if TYPE_CHECKING:
    from specdemo.drafters.memory.datastore import Datastore
    from specdemo.drafters.policies.learned import LookaheadWeights

COPY_MOST = 24  # a good copy may be long: the policy stops it earlier


@dataclass(frozen=True, slots=True)
class DraftingContext:
    """What a factory may use.

    profile: measured when the pair was loaded
    memory: what this visitor's earlier runs left; None when nothing may be remembered
    draft, copy: readers of the conversation's draft model and of the target's quantised copy
    trained: opens drafters that were trained for the target, by kind (see `models.trained`)
    features: the target's hidden states in this conversation
    store: the datastore that `retrieval` looks things up in
    lookahead_weights: the trained classifier of the `learned` policy
    together: runs, with this one, that are likely to share its passes
    costs, calibration: this run's own, begun from the profile
    """

    settings: RunSettings
    shaper: Shaper
    vocabulary_size: int
    profile: CostProfile = field(default_factory=CostProfile)
    memory: Memory | None = None
    draft: PrefixReader | None = None
    copy: PrefixReader | None = None
    trained: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    features: Features = field(default_factory=Features)
    store: Datastore | None = None
    lookahead_weights: LookaheadWeights | None = None
    together: int = 1
    costs: Costs = field(init=False)
    calibration: Calibration = field(init=False)

    def __post_init__(self) -> None:
        """A run begins with costs and a calibration of its own."""
        object.__setattr__(self, "costs", Costs(self.profile, self.together))
        object.__setattr__(self, "calibration", Calibration(self.prior(self.settings.method)))

    def has(self, need: str) -> bool:
        """Whether what a method needs is there."""
        return need in self.trained if need in KINDS else getattr(self, need) is not None

    def prior(self, drafter: str) -> Prior:
        """How far to trust a drafter's confidences before anything was seen."""
        if drafter in ("medusa", "medusa_static", "jet"):
            return chosen_guess
        if self.settings.sampling.greedy:
            return {"ngram": ngram_copy, "retrieval": retrieved_copy}.get(drafter, greedy_model)
        return {"ngram": sampled_ngram, "retrieval": sampled_retrieval}.get(drafter, sampled_model)


Factory: TypeAlias = Callable[[DraftingContext], Drafter]
FACTORIES: dict[str, Factory] = {}


def makes(name: str) -> Callable[[Factory], Factory]:
    """Marks the factory of a method of the table."""

    def enter(factory: Factory) -> Factory:
        FACTORIES[name] = factory
        return factory

    return enter


@makes("nothing")
def _nothing(_context: DraftingContext) -> Drafter:
    return Nothing()


def _reader(context: DraftingContext, *, biased: bool = False) -> DraftReader:
    """The conversation's draft model; biased by what this visitor's runs have shown, if that may be remembered."""
    assert context.draft is not None  # make_drafter has looked
    counts = context.memory.counts if context.memory else MarkovCounts()
    bias = MarkovBias(counts) if biased else None
    return DraftReader(context.draft, context.shaper, context.vocabulary_size, context.costs, bias)


def _trained(context: DraftingContext, kind: str) -> DraftReader:
    """A trained drafter that answers as a language model does."""
    reader = context.trained[kind]()
    return DraftReader(reader, context.shaper, context.vocabulary_size, context.costs)


@makes("feature")
def _feature(context: DraftingContext) -> Drafter:
    return DraftModel(_trained(context, "feature"), _lookahead(context))


@makes("feature_tree")
def _feature_tree(context: DraftingContext) -> Drafter:
    draft = _trained(context, "feature")
    return _grow(context, draft, context.calibration, context.settings.policy)


@makes("exit")
def _exit(context: DraftingContext) -> Drafter:
    return DraftModel(_trained(context, "exit"), _lookahead(context))


@makes("medusa")
def _medusa(context: DraftingContext) -> Drafter:
    return _heads(context, static=False)


@makes("medusa_static")
def _medusa_static(context: DraftingContext) -> Drafter:
    return _heads(context, static=True)


def _heads(context: DraftingContext, *, static: bool) -> Medusa:
    settings = context.settings
    return Medusa(
        context.trained["medusa"](),
        context.features,
        context.shaper,
        context.calibration,
        context.costs,
        nodes=settings.nodes,
        depth=settings.lookahead,
        static=static,
    )


@makes("block")
def _block(context: DraftingContext) -> Drafter:
    draft, settings = _trained(context, "block"), context.settings
    scheduled = settings.policy != "constant"
    return DSpark(draft, most=settings.lookahead, scheduled=scheduled)


@makes("jet")
def _jet(context: DraftingContext) -> Drafter:
    draft, settings = _trained(context, "jet"), context.settings
    return JetSpec(
        draft,
        context.calibration,
        nodes=settings.nodes,
        most=settings.lookahead,
        costly=settings.policy != "constant",
    )


def _lookahead(
    context: DraftingContext,
    token_seconds: float | None = None,
    calibration: Calibration | None = None,
) -> Lookahead:
    """The policy. token_seconds: of drafters that ask no model, see `CostAware`; calibration: the run's by default"""
    return make_lookahead(
        context.settings,
        context.costs,
        calibration or context.calibration,
        context.lookahead_weights,
        token_seconds,
    )


@makes("draft_model")
def _draft_model(context: DraftingContext) -> Drafter:
    return DraftModel(_reader(context), _lookahead(context))


@makes("online")
def _online(context: DraftingContext) -> Drafter:
    draft = _reader(context, biased=context.memory is not None)
    if context.memory:
        draft.head = context.memory.head_bias(draft.reader.model)
    return DraftModel(draft, _lookahead(context))


@makes("tree")
def _tree(context: DraftingContext) -> Drafter:
    return _grow(context, _reader(context), context.calibration, context.settings.policy)


def _grow(
    context: DraftingContext, draft: DraftReader, calibration: Calibration, policy: str
) -> Tree:
    settings = context.settings
    return Tree(
        draft,
        calibration,
        nodes=settings.nodes,
        depth=settings.lookahead,
        costly=policy != "constant",
    )


@makes("ngram")
def _ngram(context: DraftingContext) -> Drafter:
    return Ngram(_texts(context), _lookahead(context, 0.0))


def _texts(context: DraftingContext) -> SuffixAutomaton:
    return context.memory.texts if context.memory else SuffixAutomaton()


@makes("retrieval")
def _retrieval(context: DraftingContext) -> Drafter:
    assert context.store is not None  # make_drafter has looked
    return Retrieval(context.store, _lookahead(context, 0.0))


@makes("quantised_self")
def _quantised_self(context: DraftingContext) -> Drafter:
    assert context.copy is not None  # make_drafter has looked
    draft = DraftReader(context.copy, context.shaper, context.vocabulary_size, context.costs)
    return DraftModel(draft, _lookahead(context))


@makes("parallel")
def _parallel(context: DraftingContext) -> Drafter:
    return Parallel(_reader(context), _lookahead(context), context.calibration)


@makes("look_back")
def _look_back(context: DraftingContext) -> Drafter:
    return LookBack(DraftModel(_reader(context), _lookahead(context)), context.settings.threshold)


def _copiers(context: DraftingContext) -> list[Arm]:
    """Copying drafters, each with a calibration of its own, that copy on as long as it pays."""

    def arm(name: str, make: Callable[[Lookahead], Drafter]) -> Arm:
        calibration = Calibration(context.prior(name))
        return Arm(name, make(CostAware(COPY_MOST, context.costs, calibration, 0.0)), calibration)

    arms = [arm("ngram", lambda policy: Ngram(_texts(context), policy))]
    if context.store is not None:
        store = context.store
        arms.append(arm("retrieval", lambda policy: Retrieval(store, policy, shortest=3)))
    return arms


def _model(context: DraftingContext, policy: Callable[[Calibration], Lookahead]) -> Arm:
    """The draft model, with a calibration of its own, which its policy reads."""
    calibration = Calibration(context.prior("draft_model"))
    drafter = DraftModel(_reader(context), policy(calibration))
    return Arm("draft_model", drafter, calibration, context.costs.draft_step)


@makes("composite")
def _composite(context: DraftingContext) -> Drafter:
    model = _model(context, lambda calibration: _lookahead(context, calibration=calibration))
    return Composite(_copiers(context), model, context.costs)


@makes("auto")
def _auto(context: DraftingContext) -> Drafter:
    """Without the tree: over the same draft the chain gave more wherever the compiled pass was measured."""
    most, costs = context.settings.lookahead, context.costs
    policy = partial(CostAware, most, costs)
    model = _model(context, policy) if context.draft is not None else None
    return Auto(_copiers(context), model, costs)


def make_drafter(context: DraftingContext) -> Drafter:
    """The drafter that the settings name: with a forecast, and with fallback to plain decoding if they ask for it."""
    settings = context.settings
    method = METHODS.get(settings.method)
    if method is None:
        raise UserError(
            f"There is no drafting method {settings.method!r}.",
            advice=f"Choose one of {', '.join(METHODS)}.",
        )
    for need in method.needs:
        if not context.has(need):
            raise UserError(
                f"{method.title} needs {NEEDED[need]}, and this target has none.",
                unharmed="The target is loaded and works.",
                advice="Choose another method; python -m specdemo methods says what each needs.",
            )
    drafter = FACTORIES[settings.method](context)
    if settings.fallback and "fallback" in method.options:
        drafter = Fallback(drafter)
    step = context.costs.draft_step if {"draft", *KINDS} & set(method.needs) else 0.0
    return Forecast(drafter, context.costs, context.calibration, step)
