"""The head of the page: its name, the model's status and the page's own buttons."""

from __future__ import annotations

from html import escape

import gradio as gr

from specdemo.config.errors import UserError
from specdemo.ui import words
from specdemo.ui.dialogs import create_dialog_buttons
from specdemo.ui.view import status_view

TOGGLE_THEME = "() => { document.body.classList.toggle('dark'); }"


def create_header() -> tuple[gr.HTML, gr.Button]:
    """Name, one sentence, status and buttons. returns: status, Share"""
    with gr.Row(elem_id="sd-header"):
        gr.HTML(
            f'<a class="sd-skip" href="#sd-text">{words.SKIP}</a><div class="sd-title"><h1>{words.TITLE}</h1><p>{words.SUBTITLE}</p></div>',
            apply_default_css=False,
        )
        status = status_view()
        share = create_dialog_buttons()
        theme = gr.Button(words.THEME, size="sm", scale=0, elem_id="sd-theme")
    theme.click(None, js=TOGGLE_THEME)
    return status, share


def create_replay_note(why: UserError) -> None:
    """Why there are no live runs here, for as long as there are none."""
    sentences = (why.message, why.unaffected, why.advice)
    text = " ".join(escape(sentence) for sentence in sentences)
    note = f'<p class="sd-replay-note">{text}</p>'
    gr.HTML(note, elem_id="sd-replay", apply_default_css=False, padding=False)
