"""A draft model that also reads the target's hidden states, as a chain and as a tree (EAGLE 2401.15077, EAGLE-2 2406.16858)."""

from __future__ import annotations

from specdemo.drafters.base import POLICY, Method, TrainedDrafter
from specdemo.drafters.draft_model import DraftModel
from specdemo.drafters.tree import grow

FEATURE = Method(
    name="feature",
    title="Feature drafter",
    summary="A draft model that also reads what the target knew one token earlier (after EAGLE).",
    make=lambda context: DraftModel(context.trained_drafter("feature"), context.lookahead()),
    paper="Li 2401.15077",
    needs=("feature",),
    options=(*POLICY, "fallback"),
    trained=TrainedDrafter(
        "feature",
        "a feature drafter",
        "a small drafter that also reads the target's hidden states",
        "A feature drafter (EAGLE family) for `{target}`: {layers} above the target's hidden states, "
        "and above its own while it drafts on. Its output head has the {words:,} words that the target says most.",
    ),
)
FEATURE_TREE = Method(
    name="feature_tree",
    title="Feature drafter, tree",
    summary="The same with several continuations at once, grown where the target is likely to follow.",
    make=lambda context: grow(context, context.trained_drafter("feature")),
    label="feature tree",
    paper="Li 2406.16858",
    needs=("feature",),
    options=("policy", "lookahead", "nodes", "fallback"),
)
