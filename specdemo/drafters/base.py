"""The one table of methods: menu, command line, contract tests and the documentation's table come from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specdemo.drafters.automaton import SuffixAutomaton
from specdemo.drafters.block import DSpark, JetSpec
from specdemo.drafters.calibration import (
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
from specdemo.drafters.composite import TRY, Arm, Auto, Composite
from specdemo.drafters.draft_model import DraftModel
from specdemo.drafters.draft_reader import DraftReader
from specdemo.drafters.fallback import Fallback
from specdemo.drafters.forecast import Forecast
from specdemo.drafters.look_back import LookBack
from specdemo.drafters.lookahead import CostAware, Lookahead, make_lookahead
from specdemo.drafters.markov import MarkovBias, MarkovCounts
from specdemo.drafters.medusa import Medusa
from specdemo.drafters.memory import Memory
from specdemo.drafters.ngram import Ngram
from specdemo.drafters.nothing import Nothing
from specdemo.drafters.parallel import Parallel
from specdemo.drafters.retrieval import Retrieval
from specdemo.drafters.tree import Tree
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.features import Features
from specdemo.engine.prefix import PrefixReader
from specdemo.engine.sampling import Shaper
from specdemo.engine.types import Drafter
from specdemo.errors import UserError
from specdemo.models.trained import KINDS
from specdemo.settings import RunSettings

if TYPE_CHECKING:
    from specdemo.drafters.datastore import Datastore
    from specdemo.drafters.learned import LookaheadWeights

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
    costs: Costs = field(init=False)
    calibration: Calibration = field(init=False)

    def __post_init__(self) -> None:
        """A run begins with costs and a calibration of its own."""
        object.__setattr__(self, "costs", Costs(self.profile))
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


@dataclass(frozen=True, slots=True)
class Method:
    """One way of drafting.

    needs: what it cannot do without: draft, copy or store; a pair says whether it is there
    options: the run settings that it reads
    states: it reads the target's hidden states, where drafters were trained for that
    lossy: it changes the distribution of what is said, on purpose, and is marked wherever it appears
    """

    title: str
    summary: str
    factory: Callable[[DraftingContext], Drafter]
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    lossy: bool = False
    states: bool = False


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


def _feature(context: DraftingContext) -> Drafter:
    return DraftModel(_trained(context, "feature"), _lookahead(context))


def _feature_tree(context: DraftingContext) -> Drafter:
    draft = _trained(context, "feature")
    return _grow(context, draft, context.calibration, context.settings.policy)


def _exit(context: DraftingContext) -> Drafter:
    return DraftModel(_trained(context, "exit"), _lookahead(context))


def _medusa(context: DraftingContext, *, static: bool = False) -> Drafter:
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


def _medusa_static(context: DraftingContext) -> Drafter:
    return _medusa(context, static=True)


def _block(context: DraftingContext) -> Drafter:
    draft, settings = _trained(context, "block"), context.settings
    scheduled = settings.policy != "constant"
    return DSpark(draft, most=settings.lookahead, scheduled=scheduled)


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


def _draft_model(context: DraftingContext) -> Drafter:
    return DraftModel(_reader(context), _lookahead(context))


def _online(context: DraftingContext) -> Drafter:
    draft = _reader(context, biased=context.memory is not None)
    if context.memory:
        draft.head = context.memory.head_bias(draft.reader.model)
    return DraftModel(draft, _lookahead(context))


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


def _ngram(context: DraftingContext) -> Drafter:
    return Ngram(_texts(context), _lookahead(context, 0.0))


def _texts(context: DraftingContext) -> SuffixAutomaton:
    return context.memory.texts if context.memory else SuffixAutomaton()


def _retrieval(context: DraftingContext) -> Drafter:
    assert context.store is not None  # make_drafter has looked
    return Retrieval(context.store, _lookahead(context, 0.0))


def _quantised_self(context: DraftingContext) -> Drafter:
    assert context.copy is not None  # make_drafter has looked
    draft = DraftReader(context.copy, context.shaper, context.vocabulary_size, context.costs)
    return DraftModel(draft, _lookahead(context))


def _parallel(context: DraftingContext) -> Drafter:
    return Parallel(_reader(context), _lookahead(context), context.calibration)


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


def _composite(context: DraftingContext) -> Drafter:
    calibration = Calibration(context.prior("draft_model"))
    draft = _reader(context, biased=context.memory is not None)
    drafter = DraftModel(draft, _lookahead(context, calibration=calibration))
    model = Arm("draft_model", drafter, calibration, context.costs.draft_step)
    return Composite(_copiers(context), model, context.costs)


def _auto(context: DraftingContext) -> Drafter:
    models: list[Arm] = []
    if context.draft is not None:
        draft, settings = _reader(context, biased=context.memory is not None), context.settings
        for name in ("draft_model", "tree"):
            calibration = Calibration(context.prior(name))
            drafter: Drafter = (
                _grow(context, draft, calibration, "cost")
                if name == "tree"
                else DraftModel(draft, CostAware(settings.lookahead, context.costs, calibration))
            )
            # The first is tried at once, the other when it has waited.
            trials = 0 if models else TRY
            models.append(Arm(name, drafter, calibration, context.costs.draft_step, trials=trials))
    return Auto(_copiers(context), models, context.costs)


POLICY = ("policy", "lookahead", "threshold")
METHODS: dict[str, Method] = {
    "auto": Method(
        "Auto",
        "Chooses among all of these while running, by measured cost and what was kept; plain when that is faster.",
        _auto,
        options=("lookahead", "nodes", "memory"),
    ),
    "draft_model": Method(
        "Draft model",
        "A small language model guesses the next tokens one by one.",
        _draft_model,
        needs=("draft",),
        options=(*POLICY, "fallback"),
    ),
    "tree": Method(
        "Tree",
        "The draft model guesses several continuations at once; the target checks all branches in one pass.",
        _tree,
        needs=("draft",),
        options=("policy", "lookahead", "nodes", "fallback"),
    ),
    "feature": Method(
        "Feature drafter",
        "A draft model that also reads what the target knew one token earlier (after EAGLE).",
        _feature,
        needs=("feature",),
        options=(*POLICY, "fallback"),
        states=True,
    ),
    "feature_tree": Method(
        "Feature drafter, tree",
        "The same with several continuations at once, grown where the target is likely to follow.",
        _feature_tree,
        needs=("feature",),
        options=("policy", "lookahead", "nodes", "fallback"),
        states=True,
    ),
    "exit": Method(
        "Early exit",
        "The target's own first layers and a small trained adapter guess the next tokens.",
        _exit,
        needs=("exit",),
        options=(*POLICY, "fallback"),
        states=True,
    ),
    "medusa": Method(
        "Medusa",
        "Heads on the target's last state guess several tokens ahead at once; the best combinations form a tree.",
        _medusa,
        needs=("medusa",),
        options=("policy", "lookahead", "nodes", "fallback"),
        states=True,
    ),
    "medusa_static": Method(
        "Medusa, static tree",
        "The same heads with one fixed tree for every text, as first published.",
        _medusa_static,
        needs=("medusa",),
        options=("lookahead", "nodes", "fallback"),
        states=True,
    ),
    "block": Method(
        "DSpark",
        "One pass guesses a whole block; each guess heeds the one before it and says how sure it is.",
        _block,
        needs=("block",),
        options=("policy", "lookahead", "fallback"),
        states=True,
    ),
    "jet": Method(
        "JetSpec",
        "One pass guesses a whole block; the best combinations form a tree at whose nodes the target draws.",
        _jet,
        needs=("jet",),
        options=("policy", "lookahead", "nodes", "fallback"),
        states=True,
    ),
    "ngram": Method(
        "N-gram (prompt lookup)",
        "Copies what followed the same words earlier in the text or this visit; costs next to nothing.",
        _ngram,
        options=(*POLICY, "memory", "fallback"),
    ),
    "retrieval": Method(
        "Retrieval",
        "Copies what mostly followed the same words in a datastore of earlier answers.",
        _retrieval,
        needs=("store",),
        options=(*POLICY, "fallback"),
    ),
    "composite": Method(
        "Composite",
        "Copies where the text repeats itself, and asks the draft model everywhere else.",
        _composite,
        needs=("draft",),
        options=(*POLICY, "memory", "fallback"),
    ),
    "online": Method(
        "Online",
        "The draft model learns while you use it: by counting in the run, and by gradient steps between runs.",
        _online,
        needs=("draft",),
        options=(*POLICY, "memory", "fallback"),
    ),
    "parallel": Method(
        "Parallel",
        "The draft model prepares the next draft while the target is still checking the last one; needs a core to spare.",
        _parallel,
        needs=("draft",),
        options=(*POLICY, "fallback"),
    ),
    "quantised_self": Method(
        "Quantised self",
        "A 4-bit copy of the target drafts for the full target; no other model is needed.",
        _quantised_self,
        needs=("copy",),
        options=(*POLICY, "fallback"),
    ),
    "look_back": Method(
        "Look back",
        "Drops drafted tokens that look unlikely, after drawing them: the mistake that changes the output, to be seen.",
        _look_back,
        needs=("draft",),
        options=POLICY,
        lossy=True,
    ),
    "nothing": Method(
        "Plain decoding", "No drafts: one target pass for each token, the baseline.", _nothing
    ),
}
NEEDED = {
    "draft": "a draft model",
    "copy": "a target in bf16 or fp32, whose 4-bit copy drafts",
    "store": "a datastore of texts",
    **KINDS,
}


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
    drafter = method.factory(context)
    if settings.fallback and "fallback" in method.options:
        drafter = Fallback(drafter)
    step = context.costs.draft_step if {"draft", *KINDS} & set(method.needs) else 0.0
    return Forecast(drafter, context.costs, context.calibration, step)
