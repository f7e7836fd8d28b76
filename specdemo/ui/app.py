"""The page: reads like its outline. `create_app` builds it, `launch` serves it."""

from __future__ import annotations

from functools import partial

import gradio as gr
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from specdemo.export.table import player_page, style_files
from specdemo.session.studio import Studio
from specdemo.ui import words
from specdemo.ui.handlers import MOST_PROMPTS, Handlers, Visitor
from specdemo.ui.lab import create_lab
from specdemo.ui.lessons import create_lessons
from specdemo.ui.panels import (
    INPUTS,
    create_ask,
    create_batch,
    create_controls,
    create_header,
    create_proof,
    create_replay_note,
    create_training,
)
from specdemo.ui.proposals import create_proposals
from specdemo.ui.race import create_race
from specdemo.ui.runs import opening_line
from specdemo.ui.teach import create_teach, follow, script
from specdemo.ui.view import ASSETS, Preload, page_head, run_view, serve_assets

VISITOR_SECONDS = 3600
QUEUE, RUNS = 32, 8  # visitors who wait, and who are answered at the same time
LOOK_SECONDS = 0.02  # between two looks of Gradio at its queue
BATCHES = 1  # the prompts of one are a full pass


def create_app(studio: Studio) -> gr.Blocks:
    """The page of a studio; nothing is loaded yet."""
    serve_assets()
    handlers = Handlers(studio)
    with gr.Blocks(title=words.TITLE, analytics_enabled=False, fill_width=True) as demo:
        visitor = gr.State(None, time_to_live=VISITOR_SECONDS, delete_callback=_leave)
        status, share = create_header()
        if studio.replay_only:
            create_replay_note(studio.replay_only)
        with gr.Tabs(elem_id="sd-tabs") as tabs:
            with _tab(words.TAB_PLAY, "play"):
                ask = create_ask()
                with gr.Row(elem_classes="sd-page-row"):
                    with gr.Column(scale=4, min_width=320):
                        view = run_view(opening_line())
                    controls = create_controls(studio)
                batch = create_batch(MOST_PROMPTS)
            with _tab(words.TAB_RACE, "race"):
                create_race(studio)
            with _tab(words.TAB_PROPOSALS, "proposals"):
                create_proposals(studio)
            with _tab(words.TAB_LAB, "lab"):
                create_lab(studio)
            with _tab(words.TAB_LESSONS, "lessons"):
                create_lessons(studio)
            with _tab(words.TAB_METHODS, "methods"):
                card = create_training()
                proof = create_proof()
        timer = gr.Timer(0.5)
        fields = {
            "prompt": ask.prompt,
            "system": controls.system,
            **dict(zip(INPUTS, controls.inputs, strict=True)),
        }
        teach = create_teach(studio, share, fields)

        menu = [*controls.menu, card]
        quick = {"queue": False, "show_progress": "hidden"}
        demo.load(handlers.arrive, None, [visitor, status], **quick)
        demo.load(handlers.menu, controls.method, menu, **quick)
        demo.load(handlers.audit, None, proof, **quick)
        timer.tick(handlers.tick, controls.method, [status, timer, *menu], **quick)
        controls.method.input(handlers.menu, controls.method, menu, **quick)
        controls.forget.click(handlers.forget, visitor, None, show_progress="hidden")
        started = gr.on(
            [ask.run.click, ask.prompt.submit],
            handlers.begin,
            visitor,
            [visitor, view],
            # A message of its own, as the one that there are no live runs, reaches the page through the queue alone.
            **{**quick, "queue": bool(studio.replay_only)},
            api_name="begin_answer",
        )
        started.then(
            handlers.run,
            [visitor, ask.prompt, controls.system, *controls.inputs],
            view,
            show_progress="hidden",
            api_name="answer",
            concurrency_id="engine",
            concurrency_limit=RUNS,
        )
        ask.runs.sent(handlers.play, [visitor, ask.runs], view, **quick)
        ask.stop.click(handlers.stop, visitor, None, **quick)
        ask.new.click(handlers.new, visitor, [visitor, view, ask.prompt], **quick)
        gathered = batch.run.click(
            handlers.begin_batch, [visitor, batch.prompts], [visitor, batch.answers], **quick
        )
        gathered.then(
            handlers.run_batch,
            [visitor, batch.prompts, controls.system, *controls.inputs],
            batch.answers,
            show_progress="hidden",
            concurrency_id="batch",
            concurrency_limit=BATCHES,
        )
        batch.stop.click(handlers.stop_batch, visitor, None, **quick)
        names = tuple(tab.id for tab in tabs.children)
        followed = teach.sent(
            partial(follow, fields=fields, tabs=names),
            teach,
            [teach, tabs, *fields.values()],
            **quick,
        )
        followed = followed.then(handlers.menu, controls.method, menu, **quick)
        followed.then(None, None, None, js=script("applied"))
        controls.load.click(
            handlers.switch,
            [controls.pair, controls.precision],
            [status, controls.load],
            show_progress="hidden",
            concurrency_limit=1,
        ).then(handlers.menu, controls.method, menu, **quick)
    demo.queue(max_size=QUEUE, default_concurrency_limit=4)
    # Gradio looks a thousand times a second whether there is something to do: a tenth of a core, and a pass that waits.
    demo._queue.sleep_when_free = LOOK_SECONDS
    return demo


def _tab(label: str, name: str) -> gr.Tab:
    return gr.Tab(label, id=name, elem_id=f"sd-tab-{name}")


def launch_options() -> dict[str, object]:
    """What Gradio takes at launch: looks, Plotly, the empty player and what must stay off."""
    return {
        "theme": _theme(),
        "css_paths": style_files(),
        "head": page_head(),
        "app_kwargs": {
            "routes": [Route("/player.html", _player), Route("/words/{language}.json", _words)],
            "middleware": [Middleware(Preload)],
        },
        "favicon_path": ASSETS / "icons" / "favicon.svg",
        "ssr_mode": False,
        "run_history": False,
        "show_error": False,
        "quiet": True,
    }


def _theme() -> gr.themes.Base:
    """Gradio's default in calm greys with a colour-blind safe blue; the fonts lie in the package."""
    light = {
        "body_background_fill": "#f6f6f3",
        "body_text_color": "#1c2126",
        "body_text_color_subdued": "#59626c",
        "block_border_color": "#dcdcd6",
        "block_title_text_color": "#59626c",
        "block_label_text_color": "#59626c",
        "block_info_text_color": "#59626c",
        "input_border_color": "#c9c9c2",
        "input_placeholder_color": "#666e77",
        "button_primary_background_fill": "#005a8c",
        "button_primary_background_fill_hover": "#00466e",
        "button_primary_text_color": "white",
        "button_secondary_background_fill": "white",
        "button_secondary_background_fill_hover": "#ecece7",
        "button_secondary_border_color": "#c9c9c2",
        "button_secondary_text_color": "#1c2126",
        "slider_color": "#0072b2",
    }
    dark = {
        "body_background_fill_dark": "#131619",
        "body_text_color_dark": "#e9e7e2",
        "body_text_color_subdued_dark": "#a7b0b9",
        "block_background_fill_dark": "#1b1f23",
        "block_border_color_dark": "#343a40",
        "block_title_text_color_dark": "#a7b0b9",
        "block_label_text_color_dark": "#a7b0b9",
        "block_info_text_color_dark": "#a7b0b9",
        "input_background_fill_dark": "#1b1f23",
        "input_border_color_dark": "#464d54",
        "input_placeholder_color_dark": "#98a1aa",
        "button_primary_background_fill_dark": "#0069a5",
        "button_primary_background_fill_hover_dark": "#00588a",
        "button_primary_text_color_dark": "white",
        "button_secondary_background_fill_dark": "#1b1f23",
        "button_secondary_background_fill_hover_dark": "#2e3338",
        "button_secondary_border_color_dark": "#464d54",
        "button_secondary_text_color_dark": "#e9e7e2",
        "slider_color_dark": "#56b4e9",
    }
    shape = {
        "button_border_width": "1px",
        "button_large_text_weight": "700",
        "button_large_text_size": "15px",
        "button_small_text_weight": "400",
        "block_title_text_size": "13px",
    }
    return gr.themes.Default(
        spacing_size="sm",
        radius_size="md",
        primary_hue="blue",
        neutral_hue="gray",
        # Not 600: the semi-bold files in the package hold few of the letters.
        font=(gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif"),
        font_mono=(gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "monospace"),
    ).set(**light, **dark, **shape)


def _player(_request: Request) -> HTMLResponse:
    """The one-file player, into which the script puts the run that is exported."""
    return HTMLResponse(player_page(words.VIEW))


def _words(request: Request) -> Response:
    """The page's texts in another language, by the English ones."""
    language = request.path_params["language"]
    if language not in words.LANGUAGES:
        return Response(status_code=404)
    return JSONResponse(words.translations(language))


def _leave(visitor: Visitor | None) -> None:
    if visitor is not None:
        visitor.close()
