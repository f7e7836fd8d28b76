"""The target's own first layers draft, with a small trained adapter on them (Draft & Verify 2309.08168, LayerSkip 2404.16710)."""

from __future__ import annotations

from specdemo.drafters.base import POLICY, Method, TrainedDrafter
from specdemo.drafters.draft_model import DraftModel

EXIT = Method(
    name="exit",
    title="Early exit",
    summary="The target's own first layers and a small trained adapter guess the next tokens.",
    make=lambda context: DraftModel(context.trained_drafter("exit"), context.lookahead()),
    paper="Elhoushi 2404.16710",
    needs=("exit",),
    options=(*POLICY, "fallback"),
    trained=TrainedDrafter(
        "exit",
        "an exit adapter",
        "an adapter that lets the target's first layers draft",
        "An exit adapter for `{target}`: the target's own lower layers, {layers} trained to follow them, and "
        "an output head over the {words:,} words that the target says most.",
    ),
)
