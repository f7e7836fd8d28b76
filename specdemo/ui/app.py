"""The page: `create_app` builds its head and its tabs, `launch_options` returns the options of the server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

import gradio as gr
from gradio.components import Component

from specdemo.config.strings import JsonView, strings
from specdemo.session.door import EngineClient
from specdemo.trace.replay import recorded_runs
from specdemo.ui import words
from specdemo.ui.checks import Page
from specdemo.ui.endpoint import create_endpoint
from specdemo.ui.links import follow, others_reach, own_address, qr
from specdemo.ui.model import StatusHandlers, wire_model_menu
from specdemo.ui.run_tab import QUICK, Follow, current_session_id
from specdemo.ui.serving import launch_options
from specdemo.ui.tabs.play import Play
from specdemo.ui.tabs.race import Race, against_plain
from specdemo.ui.view import find_tabs, mounted, only, script
from specdemo.ui.words import languages

__all__ = ["create_app", "launch_options"]

teach = strings("teach")
TEACH = "page/teach.js"
TOGGLE_MORE = "() => { document.body.classList.toggle('sd-header-open'); }"
TOGGLE_THEME = "() => { document.body.classList.toggle('dark'); }"
LOADING_SECONDS = 0.5  # seconds between polls of the loading progress
QUEUE_SECONDS = 0.02  # seconds between Gradio's polls of its queue


def create_app(studio: EngineClient) -> gr.Blocks:
    """Create the page of a studio; nothing is loaded yet."""
    demo: Page
    with Page(studio.settings, title=words.TITLE, analytics_enabled=False, fill_width=True) as demo:
        status, share = create_header()
        if studio.replay_only:
            note = f'<p class="sd-replay-note">{escape(str(studio.replay_only))}</p>'
            gr.HTML(note, elem_id="sd-replay", apply_default_css=False, padding=False)
        made: dict[str, Any] = {}  # components of each tab, of a class of its own
        with gr.Tabs(elem_id="sd-tabs") as tabs:
            for tab in find_tabs():
                with gr.Tab(tab.label, id=tab.name, elem_id=f"sd-tab-{tab.name}"):
                    made[tab.name] = tab.create(studio)
        first: Play = made["play"]
        dialogs = create_dialogs(studio, share, first.fields)
        race: Race = made["race"]
        refreshed = _follow_model(demo, studio, status, first, made["methods"].card, race.follow)
        _race_methods(studio, tabs, made["methods"].table, race.setup)
        names = tuple(tab.id for tab in tabs.children)
        dialogs.sent(
            partial(follow, fields=first.fields, tabs=names),
            dialogs,
            [dialogs, tabs, *first.fields.values()],
            **QUICK,
        ).then(*refreshed, **QUICK).then(None, None, None, js=script(TEACH, "applied"))
        create_endpoint(demo, studio)
        demo.unload(lambda: studio.leave(current_session_id()))
    waiting = studio.settings.waiting_visitors
    demo.queue(api_open=False, max_size=waiting, default_concurrency_limit=4)
    # By default Gradio polls its queue a thousand times a second: a tenth of a core, and passes wait for it.
    demo._queue.sleep_when_free = QUEUE_SECONDS
    return demo


def create_header() -> tuple[gr.HTML, gr.Button]:
    """Name, status and buttons. returns: status, and Share, whose click needs the controls' values"""
    with gr.Row(elem_id="sd-header"):
        gr.HTML(
            f'<a class="sd-skip" href="#sd-text">{words.SKIP}</a><div class="sd-title"><h1>{words.TITLE}</h1></div>',
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
        "opening": recorded_runs()[0].name,
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


def _follow_model(
    demo: gr.Blocks,
    studio: EngineClient,
    status: gr.HTML,
    play: Play,
    card: gr.HTML,
    others: Sequence[Follow],
) -> Follow:
    """Update components that depend on the loaded model and the chosen method.

    others: events of other tabs after another model was loaded
    returns: the event for the method
    """
    timer, model = gr.Timer(LOADING_SECONDS), StatusHandlers(studio)
    fields, drawing = play.settings.fields, play.settings.drawing
    method, preset = [fields["method"], fields["policy"]], fields["preset"]
    menu = [*play.settings.menu, card]
    refreshed: Follow = (model.menu, method, menu)
    redrawn: Follow = (model.drawing, preset, drawing)
    loaded: list[Follow] = [refreshed, redrawn, *others]
    for event in ((model.status, None, status), refreshed, redrawn):
        demo.load(*event, **QUICK)
    timer.tick(model.tick, [*method, preset], [status, timer, *drawing, *menu], **QUICK)
    fields["method"].input(*refreshed, **QUICK)
    preset.change(*redrawn, **QUICK)
    if play.model:
        wire_model_menu(play.model, status, loaded)
        # After a run the header names the model, which another visitor may have changed.
        shown = play.answered.then(model.status, None, status, **QUICK)
        for event in loaded:
            shown = shown.then(*event, **QUICK)
    return refreshed


def _race_methods(
    studio: EngineClient, tabs: gr.Tabs, table: gr.HTML, raced: list[Component]
) -> None:
    """Race a method of the table when it is chosen there."""

    def race_it(asked: str) -> list[object]:
        known = {method.name for method in studio.methods()}
        name = asked.removeprefix("race ")
        if name not in known:
            return [gr.skip()] * (1 + len(raced))
        return [gr.Tabs(selected="race"), *against_plain(name)]

    table.sent(race_it, table, [tabs, *raced], **QUICK)
