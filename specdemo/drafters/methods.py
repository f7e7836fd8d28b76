"""The one list of methods, in the menu's order, and the drafter of a run. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specdemo.config.errors import UserError
from specdemo.drafters import auto, block, copies, copy_through, draft_model, medusa, parallel, tree
from specdemo.drafters.base import PLAIN, WORDS, DraftingContext, Method
from specdemo.drafters.policies.guard import Fallback, WithForecast
from specdemo.engine.cost import ANY_ROWS
from specdemo.engine.types import Drafter

_LIST: tuple[Method, ...] = (
    auto.AUTO,
    draft_model.DRAFT_MODEL,
    tree.TREE,
    draft_model.FEATURE,
    tree.FEATURE_TREE,
    draft_model.EXIT,
    medusa.MEDUSA,
    block.BLOCK,
    block.BLOCK_TREE,
    block.JET,
    copies.NGRAM,
    copies.RETRIEVAL,
    copy_through.COPY_THROUGH,
    draft_model.ONLINE,
    parallel.PARALLEL,
    draft_model.QUANTISED_SELF,
    draft_model.LOOK_BACK,
    PLAIN,
)
METHODS = {method.name: method for method in _LIST}
NEEDED: dict[str, str] = WORDS["NEEDED"]  # with their articles


def make_drafter(context: DraftingContext, known: Mapping[str, Method] = METHODS) -> Drafter:
    """Make the drafter that the settings name: with a forecast, and with fallback to plain decoding if they require it."""
    settings = context.settings
    method = known.get(settings.method)
    if method is None:
        raise UserError("method.unknown", method=settings.method, names=", ".join(known))
    for need in method.needs:
        if not context.has(need):
            raise UserError("method.needs", method=method.title, need=NEEDED[need])
    settings = method.honoured(settings)
    context = replace(context, settings=settings, prior=method.prior)
    drafter = method.make(context)
    if settings.fallback and "fallback" in method.options:
        drafter = Fallback(drafter, context.costs)
    models = "draft" in method.needs or method.states
    step = (models and context.profile.draft_step) or 0.0
    most = None
    if settings.exact:
        rows = context.profile.exact_rows
        if error := no_exact(method, rows):
            raise error
        if rows != ANY_ROWS:
            most = max(0, rows - 1)  # one row is the pending token's
    return WithForecast(drafter, context.costs, context.calibration, step, context.together, most)


def no_exact(method: Method, rows: int) -> UserError | None:
    """Why a method has no exact mode. rows: see `CostProfile.exact_rows`"""
    if method.tokens == "none" or rows == ANY_ROWS:
        return None
    if not rows:
        return UserError("exact.unknown")
    if rows == 1:
        return UserError("exact.none")
    if "exact" not in method.options:
        return UserError("exact.chains_only", method=method.title)
    return None
