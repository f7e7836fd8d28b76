"""What a visitor reads before Gradio's scripts have run: a recorded run's prompt, its first guess, and a sentence on it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from specdemo.config.paths import ASSETS
from specdemo.trace.events import SPECULATIVE, Drafted, Event
from specdemo.trace.replay import parse
from specdemo.trace.tables import data_block
from specdemo.ui import words
from specdemo.ui.files import PLOTLY_NAME, address
from specdemo.ui.recorded import recorded_runs
from specdemo.ui.view import RUNS

SCRIPT = ASSETS / "view/page/first.js"
BADGE, SENTENCE = "/VIEW/source/recorded", "/VIEW/tour/start"  # their paths in the words


def first_words() -> str:
    """HTML for the beginning of the page's body: the words, and the script that takes them away again.

    The page's script comes later, and so does Plotly, which takes a browser as long as all the rest.
    """
    english = words.texts("", "en")
    said = {language: words.texts("", language) for language in words.languages()}
    given = {
        "languages": ["en", *said],
        "words": {
            language: {english[path]: texts.get(path, english[path]) for path in (BADGE, SENTENCE)}
            for language, texts in said.items()
        },
        "plotly": address(PLOTLY_NAME),
    }
    script = SCRIPT.read_text(encoding="utf-8")
    shown = _words(english[BADGE], english[SENTENCE])
    return f"{shown}{data_block('sd-given', given)}<script>{script}</script>"


def _words(badge: str, sentence: str) -> str:
    for run in recorded_runs()[:1]:
        events = parse((RUNS / f"{run.name}.jsonl").read_text(encoding="utf-8")).trace.events
        return (
            f'<div id="sd-first"><h1>{words.TITLE}</h1><main><span class="sd-badge sd-badge-recorded">{escape(badge)}</span>'
            f'<p class="sd-asked">{escape(run.prompt)}</p>'
            f'<p class="sd-answer">{_guess(events)}</p><p class="sd-first-sentence">{escape(sentence)}</p></main></div>'
        )
    return ""


def _guess(events: Iterable[Event]) -> str:
    """The tokens of a run's first draft, marked as drafted; nothing of a run without drafts."""
    drafts = (event for event in events if isinstance(event, Drafted))
    nodes = next((draft.nodes for draft in drafts if draft.lane == SPECULATIVE), ())
    return "".join(
        f'<span class="sd-token sd-drafted"><span class="sd-mark">{escape(node.text)}</span></span>'
        for node in nodes
    )
