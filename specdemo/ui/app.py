"""The page: `create_app` builds it in the order of its parts, `launch_options` returns the options of the server."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from specdemo.session.door import Door
from specdemo.ui import words
from specdemo.ui.checks import Page
from specdemo.ui.endpoint import create_endpoint
from specdemo.ui.header import create_dialogs, create_header, create_replay_note, script
from specdemo.ui.links import follow
from specdemo.ui.model import ModelHandlers, wire_model_menu
from specdemo.ui.run_tab import QUICK, whose
from specdemo.ui.serving import launch_options
from specdemo.ui.tabs.batch import create_batch
from specdemo.ui.tabs.lab import create_lab
from specdemo.ui.tabs.lessons import create_lessons
from specdemo.ui.tabs.methods import create_methods
from specdemo.ui.tabs.play import create_play
from specdemo.ui.tabs.proposals import create_proposals
from specdemo.ui.tabs.race import against_plain, create_race

__all__ = ["create_app", "launch_options"]

LOADING_SECONDS = 0.5  # seconds between polls of the loading progress
QUEUE_SECONDS = 0.02  # seconds between Gradio's polls of its queue


def create_app(studio: Door) -> gr.Blocks:
    """The page of a studio; nothing is loaded yet."""
    demo: Page
    with Page(studio.settings, title=words.TITLE, analytics_enabled=False, fill_width=True) as demo:
        status, share = create_header()
        if studio.replay_only:
            create_replay_note(studio.replay_only)
        with gr.Tabs(elem_id="sd-tabs") as tabs:
            with _tab(words.TAB_PLAY, "play"):
                play = create_play(studio)
                create_batch(studio, play.settings)
            with _tab(words.TAB_RACE, "race"):
                raced = create_race(studio)
            with _tab(words.TAB_PROPOSALS, "proposals"):
                create_proposals(studio)
            with _tab(words.TAB_LAB, "lab"):
                create_lab(studio)
            with _tab(words.TAB_LESSONS, "lessons"):
                create_lessons(studio)
            with _tab(words.TAB_METHODS, "methods"):
                methods = create_methods(studio)
        dialogs = create_dialogs(studio, share, play.fields)
        timer = gr.Timer(LOADING_SECONDS)

        # Components that depend on the loaded model and on the chosen method.
        model = ModelHandlers(studio)
        menu = [*play.settings.menu, methods.card]
        refreshed = (model.menu, play.settings.method, menu)
        preset, drawing = play.settings.fields["preset"], play.settings.drawing
        redrawn = (model.drawing, preset, drawing)
        demo.load(model.status, None, status, **QUICK)
        demo.load(*refreshed, **QUICK)
        demo.load(*redrawn, **QUICK)
        timer.tick(
            model.tick, [play.settings.method, preset], [status, timer, *drawing, *menu], **QUICK
        )
        play.settings.method.input(*refreshed, **QUICK)
        preset.change(*redrawn, **QUICK)
        if play.model:
            wire_model_menu(play.model, model, status, (refreshed, redrawn))
            # After a run the header names the model, which another visitor may have changed.
            play.answered.then(model.status, None, status, **QUICK).then(*refreshed, **QUICK).then(
                *redrawn, **QUICK
            )

        # A method of the table is raced.
        def race_it(asked: str) -> list[Any]:
            known = {method.name for method in studio.methods()}
            name = asked.removeprefix("race ")
            if name not in known:
                return [gr.skip()] * (1 + len(raced))
            return [gr.Tabs(selected="race"), *against_plain(name)]

        methods.table.sent(race_it, methods.table, [tabs, *raced], **QUICK)

        # Values that a link sets.
        names = tuple(tab.id for tab in tabs.children)
        dialogs.sent(
            partial(follow, fields=play.fields, tabs=names),
            dialogs,
            [dialogs, tabs, *play.fields.values()],
            **QUICK,
        ).then(*refreshed, **QUICK).then(None, None, None, js=script("applied"))
        create_endpoint(demo, studio)
        demo.unload(lambda: studio.leave(whose()))
    waiting = studio.settings.waiting_visitors
    demo.queue(api_open=False, max_size=waiting, default_concurrency_limit=4)
    # By default Gradio polls its queue a thousand times a second: a tenth of a core, and passes wait for it.
    demo._queue.sleep_when_free = QUEUE_SECONDS
    return demo


def _tab(label: str, name: str) -> gr.Tab:
    return gr.Tab(label, id=name, elem_id=f"sd-tab-{name}")
