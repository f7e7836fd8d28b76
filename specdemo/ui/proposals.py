"""What every drafter would have drafted at the same place of the same text."""

from __future__ import annotations

from specdemo.session import Studio


def create_proposals(studio: Studio) -> None:
    """The tab's components and what they do. Called inside its tab."""
