"""The cost model with sliders, next to the measurements of this machine."""

from __future__ import annotations

from specdemo.config.strings import Json, strings
from specdemo.session.door import EngineClient
from specdemo.ui import words as page
from specdemo.ui.view import Tab, mounted

WORDS = strings("lab").WORDS


def create_lab(studio: EngineClient) -> None:
    """Create the tab's components. Call it inside the tab."""

    def machine(_asked: str) -> Json | None:
        """Return this machine's costs for the script, None until a model is loaded."""
        return studio.about.machine if studio.about else None

    mounted("", "lab/lab.js", "mountLab", "sd-lab", own_words=WORDS, answers=[machine])


TAB = Tab(4, "lab", page.TAB_LAB, create_lab, lambda *_: {"value": "{}", "words": WORDS})
