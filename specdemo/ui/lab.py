"""The cost model with sliders, beside what this machine measured, and experiments on the real model."""

from __future__ import annotations

from specdemo.session import Studio


def create_lab(studio: Studio) -> None:
    """The tab's components and what they do. Called inside its tab."""
