"""How the chosen method was trained, and what the last audit proved."""

from __future__ import annotations

import json
from functools import partial

import gradio as gr

from specdemo.session.door import Door
from specdemo.ui import words
from specdemo.ui.streaming import QUICK
from specdemo.ui.view import audit_view, card_view


def create_methods(studio: Door) -> gr.HTML:
    """The tab's components. returns: the view of the training card of the method that is chosen on the first tab"""
    with gr.Accordion(words.TRAINING, open=False):
        card = card_view()
    with gr.Accordion(words.PROOF, open=False):
        audit = audit_view()
    gr.on(None, partial(last_audit, studio), None, audit, **QUICK)  # when the page is opened
    return card


def last_audit(studio: Door) -> str:
    """Value of the view of the last audit."""
    return json.dumps(studio.last_audit())
