"""Words of the methods, as the methods' own entries say them, and why one may be missing."""

from __future__ import annotations

from specdemo.session.menu import method_needs, method_summaries, method_titles
from specdemo.ui.words.en import LOSSY as _LOSSY
from specdemo.ui.words.en import UNAVAILABLE as _UNAVAILABLE

TITLES = method_titles()
MARKED = [f"{{title}} ({marks})" for marks in (_LOSSY, _UNAVAILABLE, f"{_LOSSY}, {_UNAVAILABLE}")]
SUMMARIES = method_summaries()
NEEDED = method_needs()
MISSING = {
    "draft": "The target has no draft model.",
    "unknown": "No draft is known for this target.",
    "copy": "The target itself already runs in {precision}; load it in bf16 or fp32 to draft with a quantised copy.",
    "trained": "Nobody has trained {what} for {name} yet: {command} makes one.",
    "store": "There is no datastore for this target; {command} builds one.",
}
