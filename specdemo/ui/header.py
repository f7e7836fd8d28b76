"""The head of the page: its name, the model's status and the page's own buttons."""

from __future__ import annotations

import json
from html import escape

import gradio as gr

from specdemo.config.errors import UserError
from specdemo.config.strings import JsonView, strings
from specdemo.session.door import EngineClient
from specdemo.ui import words
from specdemo.ui.links import others_reach, own_address, qr
from specdemo.ui.view import mounted, only, recorded_runs, script
from specdemo.ui.words import languages

teach = strings("teach")
TEACH = "page/teach.js"
TOGGLE_MORE = "() => { document.body.classList.toggle('sd-header-open'); }"
TOGGLE_THEME = "() => { document.body.classList.toggle('dark'); }"


def create_header() -> tuple[gr.HTML, gr.Button]:
    """Name, one sentence, status and buttons. returns: status, and Share, whose click needs the controls' values"""
    with gr.Row(elem_id="sd-header"):
        gr.HTML(
            f'<a class="sd-skip" href="#sd-text">{words.SKIP}</a><div class="sd-title"><h1>{words.TITLE}</h1><p>{words.SUBTITLE}</p></div>',
            apply_default_css=False,
        )
        own = only("loading")  # the status of the model: one JSON object with state, text and done
        status = mounted("{}", "page/status.js", "mountStatus", "sd-model", own_words=own)
        share = gr.Button(teach.SHARE, size="sm", scale=0, elem_id="sd-share")
        present = gr.Button(teach.PRESENT, size="sm", scale=0, elem_id="sd-present")
        keys = gr.Button(teach.KEYS, size="sm", scale=0, elem_id="sd-keys")
        theme = gr.Button(words.THEME, size="sm", scale=0, elem_id="sd-theme")
        more = gr.Button(words.HEADER_MORE, size="sm", scale=0, elem_id="sd-header-more")
    present.click(None, js=script(TEACH, "present"))
    keys.click(None, js=script(TEACH, "keys"))
    theme.click(None, js=TOGGLE_THEME)
    more.click(None, js=TOGGLE_MORE)
    return status, share


def create_replay_note(why: UserError) -> None:
    """Why there are no live runs here, for as long as there are none."""
    sentences = (why.message, why.unaffected, why.advice)
    text = " ".join(escape(sentence) for sentence in sentences)
    note = f'<p class="sd-replay-note">{text}</p>'
    gr.HTML(note, elem_id="sd-replay", apply_default_css=False, padding=False)


def create_dialogs(studio: EngineClient, share: gr.Button, fields: JsonView) -> gr.HTML:
    """Create the dialogs, and the component that follows links.

    fields: the controls that a link contains, by their names in it
    returns: the component through which the script sends queries, see `links.follow`
    """

    def reach(origin: str) -> dict[str, str]:
        return others_reach(origin, studio.settings.host, own_address())

    given = {
        "fields": [[name, control.value] for name, control in fields.items()],
        "languages": ["en", *languages()],
        "opening": next((run.name for run in recorded_runs()), ""),
    }
    dialogs = mounted(
        json.dumps(given),
        TEACH,
        "mountTeach",
        "sd-teach",
        own_words={**teach.WORDS, **only("headline")},
        answers=(qr, reach),
    )
    share.click(None, list(fields.values()), None, js=script(TEACH, "share"))
    return dialogs
