"""The one table of methods: menu, command line, contract tests and the documentation's table come from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdemo.drafters.draft_model import DraftModel
from specdemo.drafters.fallback import Fallback
from specdemo.drafters.lookahead import make_lookahead
from specdemo.drafters.ngram import Ngram
from specdemo.drafters.nothing import Nothing
from specdemo.engine.prefix import PrefixReader
from specdemo.engine.sampling import Shaper
from specdemo.engine.types import Drafter
from specdemo.errors import UserError
from specdemo.settings import RunSettings


@dataclass(frozen=True, slots=True)
class DraftingContext:
    """What a factory may use. draft: the conversation's draft model, None when there is none."""

    settings: RunSettings
    shaper: Shaper
    vocabulary_size: int
    draft: PrefixReader | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """One way of drafting. `options` names the run settings that it reads."""

    title: str
    summary: str
    factory: Callable[[DraftingContext], Drafter]
    needs_draft: bool = False
    options: tuple[str, ...] = ()


def _nothing(_context: DraftingContext) -> Drafter:
    return Nothing()


def _draft_model(context: DraftingContext) -> Drafter:
    if context.draft is None:
        raise UserError(
            "This target has no draft model.",
            unharmed="The target is loaded and works.",
            advice="Choose another method, or train a draft: python -m specdemo train draft.",
        )
    lookahead = make_lookahead(context.settings)
    return DraftModel(context.draft, lookahead, context.shaper, context.vocabulary_size)


def _ngram(context: DraftingContext) -> Drafter:
    return Ngram(context.settings.lookahead)


METHODS: dict[str, Method] = {
    "draft_model": Method(
        "Draft model",
        "A small language model guesses the next tokens one by one.",
        _draft_model,
        needs_draft=True,
        options=("policy", "lookahead", "threshold"),
    ),
    "ngram": Method(
        "N-gram (prompt lookup)",
        "Copies what followed the same words earlier in the text; costs next to nothing.",
        _ngram,
        options=("lookahead",),
    ),
    "nothing": Method(
        "Plain decoding", "No drafts: one target pass for each token, the baseline.", _nothing
    ),
}


def make_drafter(context: DraftingContext) -> Drafter:
    """The drafter that the settings name, with fallback to plain decoding if they ask for it."""
    method = METHODS.get(context.settings.method)
    if method is None:
        raise UserError(
            f"There is no drafting method {context.settings.method!r}.",
            advice=f"Choose one of {', '.join(METHODS)}.",
        )
    drafter = method.factory(context)
    if context.settings.fallback and context.settings.method != "nothing":
        return Fallback(drafter)
    return drafter
