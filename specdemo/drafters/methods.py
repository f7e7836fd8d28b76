"""The one table of methods, in words alone: menu, command line, contract tests and the documentation's table.

It is read before torch is there, or where there is none; `base` makes the drafters.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdemo.models.drafts.trained import KINDS


@dataclass(frozen=True, slots=True)
class Method:
    """One way of drafting.

    needs: what it cannot do without: draft, copy or store; a pair says whether it is there
    takes: what it uses beside that where it is there
    options: the run settings that it reads
    states: it reads the target's hidden states, where drafters were trained for that
    lossy: it changes the distribution of what is said, on purpose, and is marked wherever it appears
    """

    title: str
    summary: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    lossy: bool = False
    states: bool = False

    @property
    def uses(self) -> tuple[str, ...]:
        """All that it drafts with."""
        return (*self.needs, *self.takes)


POLICY = ("policy", "lookahead", "threshold")
METHODS: dict[str, Method] = {
    "auto": Method(
        "Auto",
        "Copies, asks the draft model or decodes plainly, step by step: what measured costs promise to be fastest.",
        takes=("draft", "store"),
        options=("lookahead", "memory"),
    ),
    "draft_model": Method(
        "Draft model",
        "A small language model guesses the next tokens one by one.",
        needs=("draft",),
        options=(*POLICY, "fallback"),
    ),
    "tree": Method(
        "Tree",
        "The draft model guesses several continuations at once; the target checks all branches in one pass.",
        needs=("draft",),
        options=("policy", "lookahead", "nodes", "fallback"),
    ),
    "feature": Method(
        "Feature drafter",
        "A draft model that also reads what the target knew one token earlier (after EAGLE).",
        needs=("feature",),
        options=(*POLICY, "fallback"),
        states=True,
    ),
    "feature_tree": Method(
        "Feature drafter, tree",
        "The same with several continuations at once, grown where the target is likely to follow.",
        needs=("feature",),
        options=("policy", "lookahead", "nodes", "fallback"),
        states=True,
    ),
    "exit": Method(
        "Early exit",
        "The target's own first layers and a small trained adapter guess the next tokens.",
        needs=("exit",),
        options=(*POLICY, "fallback"),
        states=True,
    ),
    "medusa": Method(
        "Medusa",
        "Heads on the target's last state guess several tokens ahead at once; the best combinations form a tree.",
        needs=("medusa",),
        options=("policy", "lookahead", "nodes", "fallback"),
        states=True,
    ),
    "medusa_static": Method(
        "Medusa, static tree",
        "The same heads with one fixed tree for every text, as first published.",
        needs=("medusa",),
        options=("lookahead", "nodes", "fallback"),
        states=True,
    ),
    "block": Method(
        "DSpark",
        "One pass guesses a whole block; each guess heeds the one before it and says how sure it is.",
        needs=("block",),
        options=("policy", "lookahead", "fallback"),
        states=True,
    ),
    "jet": Method(
        "JetSpec",
        "One pass guesses a whole block; the best combinations form a tree at whose nodes the target draws.",
        needs=("jet",),
        options=("policy", "lookahead", "nodes", "fallback"),
        states=True,
    ),
    "ngram": Method(
        "N-gram (prompt lookup)",
        "Copies what followed the same words earlier in the text or this visit; costs next to nothing.",
        options=(*POLICY, "memory", "fallback"),
    ),
    "retrieval": Method(
        "Retrieval",
        "Copies what mostly followed the same words in a datastore of earlier answers.",
        needs=("store",),
        options=(*POLICY, "fallback"),
    ),
    "composite": Method(
        "Composite",
        "Copies where the text repeats itself, and asks the draft model everywhere else.",
        needs=("draft",),
        takes=("store",),
        options=(*POLICY, "memory", "fallback"),
    ),
    "online": Method(
        "Online",
        "The draft model learns while you use it: by counting in the run, and by gradient steps between runs.",
        needs=("draft",),
        options=(*POLICY, "memory", "fallback"),
    ),
    "parallel": Method(
        "Parallel",
        "The draft model prepares the next draft while the target is still checking the last one; needs a core to spare.",
        needs=("draft",),
        options=(*POLICY, "fallback"),
    ),
    "quantised_self": Method(
        "Quantised self",
        "A 4-bit copy of the target drafts for the full target; no other model is needed.",
        needs=("copy",),
        options=(*POLICY, "fallback"),
    ),
    "look_back": Method(
        "Look back",
        "Drops drafted tokens that look unlikely, after drawing them: the mistake that changes the output, to be seen.",
        needs=("draft",),
        options=POLICY,
        lossy=True,
    ),
    "nothing": Method("Plain decoding", "No drafts: one target pass for each token, the baseline."),
}
NEEDED = {
    "draft": "a draft model",
    "copy": "a target in bf16 or fp32, whose 4-bit copy drafts",
    "store": "a datastore of texts",
    **KINDS,
}
