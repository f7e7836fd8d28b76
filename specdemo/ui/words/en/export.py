"""Words of what leaves the page: the export menu, the one-file replay and the static site."""

from __future__ import annotations

WORDS: dict[str, object] = {
    "menu": "More",
    "trace": "Trace (JSON lines)",
    "trace_hint": "Everything that happened; “Open a saved run…” and python -m specdemo replay read it",
    "csv": "Table (CSV)",
    "csv_hint": "One row for each token, rejected ones included, for a spreadsheet or a script",
    "html": "Replay (one HTML file)",
    "html_hint": "This run and its player in one file, which opens without a network",
    "failed": "The file could not be made: the page's server did not answer. The run is unharmed; try again.",
    "page": {
        "title": "specdemo",
        "subtitle": "Speculative decoding: a draft guesses, the target checks.",
        "theme": "Light / dark",
        "tabs": {
            "play": "Play",
            "race": "Race",
            "proposals": "Drafts",
            "lab": "Lab",
            "lessons": "Lessons",
            "methods": "Methods",
        },
        "tabs_label": "Parts of the page",
        "choices": {"play": "Recorded run", "race": "Recorded race", "proposals": "Recorded text"},
    },
}
