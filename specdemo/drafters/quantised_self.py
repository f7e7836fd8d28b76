"""A 4-bit copy of the target drafts for the full target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdemo.drafters.base import POLICY, DraftingContext, Method
from specdemo.drafters.draft_model import DraftModel

if TYPE_CHECKING:
    from specdemo.engine.types import Drafter


def _make(context: DraftingContext) -> Drafter:
    assert context.copy is not None  # make_drafter has looked
    return DraftModel(context.distributions(context.copy), context.lookahead())


QUANTISED_SELF = Method(
    name="quantised_self",
    title="Quantised self",
    summary="A 4-bit copy of the target drafts for the full target; no other model is needed.",
    make=_make,
    needs=("copy",),
    options=(*POLICY, "fallback"),
)
