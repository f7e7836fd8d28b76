"""Two to four lanes on the same prompt and clock, each really run, replayed together."""

from __future__ import annotations

from specdemo.session import Studio


def create_race(studio: Studio) -> None:
    """The tab's components and what they do. Called inside its tab."""
