"""Eight short lessons, each with a recorded run, a live part, questions and a takeaway."""

from __future__ import annotations

from specdemo.session import Studio


def create_lessons(studio: Studio) -> None:
    """The tab's components and what they do. Called inside its tab."""
