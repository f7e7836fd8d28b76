"""A draft model that learns while it is used: from counts in the run, from gradient steps between runs (OSD 2310.07177)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdemo.drafters.base import POLICY, DraftingContext, Method
from specdemo.drafters.draft_model import DraftModel
from specdemo.drafters.memory.markov import MarkovBias

if TYPE_CHECKING:
    from specdemo.engine.types import Drafter


def _make(context: DraftingContext) -> Drafter:
    """The draft model, alone where nothing may be remembered."""
    assert context.draft is not None  # make_drafter has looked
    memory = context.memory
    draft = context.distributions(context.draft, MarkovBias(memory.counts) if memory else None)
    draft.head = memory.head_bias(draft.reader.model) if memory else None
    return DraftModel(draft, context.lookahead())


ONLINE = Method(
    name="online",
    title="Online",
    summary="The draft model learns while you use it: by counting in the run, and by gradient steps between runs.",
    make=_make,
    paper="Liu 2310.07177",
    needs=("draft",),
    options=(*POLICY, "memory", "fallback"),
)
