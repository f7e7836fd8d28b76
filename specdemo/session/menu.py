"""What the menus of methods and pairs show."""

from __future__ import annotations

from dataclasses import dataclass

from specdemo.drafters.methods import METHODS, NEEDED, TRAINED


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """One entry of the method menu.

    needs: in words; why_not: a sentence when it is not available
    memory_mb: what it takes beside the target
    no_exact: why it has no exact mode with the loaded pair, as a sentence; empty where it has one
    """

    name: str
    title: str
    summary: str
    options: tuple[str, ...]
    available: bool
    why_not: str = ""
    needs: tuple[str, ...] = ()
    lossy: bool = False
    memory_mb: float = 0.0
    no_exact: str = ""


@dataclass(frozen=True, slots=True)
class PairInfo:
    """One entry of the menu of pairs: names of both models, titles of both, their licence and what they suit.

    draft: "auto" where no other model drafts; draft_title: "" where nothing is trained to draft
    """

    target: str
    draft: str
    title: str
    draft_title: str = ""
    licence: str = ""
    suits: str = ""


def method_labels() -> dict[str, str]:
    """What each method is called within a sentence."""
    return {name: method.label for name, method in METHODS.items()}


def method_titles() -> dict[str, str]:
    """What each method is called in menus."""
    return {name: method.title for name, method in METHODS.items()}


def method_summaries() -> dict[str, str]:
    """What each method does, in a sentence."""
    return {name: method.summary for name, method in METHODS.items()}


def method_needs() -> dict[str, str]:
    """What methods cannot do without, in words, by name."""
    return dict(NEEDED)


def drafter_kinds() -> dict[str, str]:
    """What each kind of drafter is that can be trained, as a sentence."""
    abouts = {kind: trained.about for kind, trained in TRAINED.items()}
    return {kind: f"{about[0].upper()}{about[1:]}." for kind, about in abouts.items()}
