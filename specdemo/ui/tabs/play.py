"""One prompt, answered live, and recorded runs: the first tab."""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import gradio as gr
from gradio.events import Dependency

from specdemo.config.errors import UserError
from specdemo.config.strings import ASSETS, Json, strings
from specdemo.session.door import ConversationClient, EngineClient
from specdemo.trace.codec import encode
from specdemo.trace.events import Drafted, Event, RunStarted, Trace
from specdemo.trace.metrics import answering, output_text
from specdemo.trace.replay import recorded_runs
from specdemo.ui import present, words
from specdemo.ui.batch import create_batch
from specdemo.ui.checks import asked_settings, asked_system, asked_text
from specdemo.ui.model import ModelMenu, create_model_menu
from specdemo.ui.run_tab import (
    IN_LINE,
    QUICK,
    TELLING,
    YIELD_SECONDS,
    Lines,
    RunTab,
    TabState,
    create_state,
    current_session_id,
)
from specdemo.ui.settings_panel import (
    Control,
    SettingsPanel,
    by_name,
    create_method,
    create_settings,
)
from specdemo.ui.view import Tab, mounted, script

WORDS = strings("teach").WORDS

EXAMPLES = ASSETS / "examples.json"
DETAIL = 5  # alternatives of both models that the inspector shows


@dataclass(frozen=True, slots=True)
class Play:
    """Components of the tab for other parts of the page. answered: the event of the run; fields: contents of a link, by name"""

    settings: SettingsPanel
    model: ModelMenu | None
    answered: Dependency
    fields: Json


@dataclass(slots=True)
class PlayState(TabState):
    """Conversation of one visitor, its earlier turns as (prompt, answer), and the latest run."""

    conversation: ConversationClient
    turns: list[tuple[str, str]] = field(default_factory=list)

    def close(self) -> None:
        """Stop the run, and free the caches."""
        self.task.stop()
        self.conversation.close()


class PlayHandlers(RunTab[PlayState]):
    """Handlers of the first tab."""

    def arrive(self) -> PlayState:
        self.studio.start()
        return self.newcomer()

    def newcomer(self) -> PlayState:
        return PlayState(self.studio.open(current_session_id()))

    def play(self, visitor: PlayState | None, name: str) -> str:
        """Handle the choice of a recorded run, which replaces a live one. returns: stream"""
        if visitor is not None:
            visitor.task.replace()
        run = next((run for run in recorded_runs() if run.name == name), None)
        if run is None:
            raise UserError("run.not_recorded")
        return present.recorded_line(run.name, run.title, uuid.uuid4().hex)

    def ask(
        self, visitor: PlayState | None, prompt: str | None, continues: object
    ) -> tuple[PlayState, object]:
        """Handle Run immediately. returns: visitor, and the view until the run starts

        continues: whether the prompt continues the conversation; otherwise the earlier messages are dropped
        Raises UserError for an empty prompt; the run on show stays.
        """
        if not asked_text(prompt).strip():
            raise UserError("prompt.empty")
        if visitor is not None and not continues:
            _drop_turns(visitor)
        return self.begin(visitor)

    def opening(self, visitor: PlayState, waiting: str, *asked: object) -> str:
        return _opening(visitor, waiting)

    def work(
        self,
        visitor: PlayState,
        lines: Lines,
        prompt: str | None,
        system: str | None,
        values: Mapping[str, object],
    ) -> Generator[None, None, None]:
        """Answer the prompt. prompt, system: None if the browser has never sent a box's text"""
        cancel = lines.task.cancel
        if cancel.is_set():  # stopped before its turn
            lines.restart(_opening(visitor))
            return
        settings = replace(asked_settings(values, self.studio.settings), detail=DETAIL)
        prompt, system = asked_text(prompt), asked_system(system)
        answer: list[Event] = []
        whole_steps = False
        turns = visitor.turns  # Clear assigns another list
        events = visitor.conversation.run(
            prompt, settings, system=system, cancel=cancel, every=YIELD_SECONDS
        )
        for event in events:
            lines.add(encode(event) + "\n")
            if isinstance(event, RunStarted):
                whole_steps = event.knowledge is not None
            answer.append(event)
            # A server of another program reports a start and a draft with the check after it: show these at the same time.
            if not (whole_steps and isinstance(event, RunStarted | Drafted)):
                yield
        turns.append((prompt, output_text(answering(Trace(tuple(answer))))))

    def new(self, visitor: PlayState | None) -> tuple[PlayState, str, str]:
        """Clear the conversation and all text that later drafts could copy. returns: visitor, empty stream, empty prompt"""
        visitor = visitor or self.newcomer()
        visitor.task.replace()
        _drop_turns(visitor)
        visitor.conversation.forget()
        gr.Info(words.CLEARED)
        return visitor, _opening(visitor), ""

    def forget(self, visitor: PlayState | None) -> None:
        """Drop everything that earlier runs of this visit taught."""
        if visitor is not None:
            visitor.conversation.forget()
        gr.Info(words.FORGOTTEN)


def _drop_turns(visitor: PlayState) -> None:
    visitor.conversation.reset()
    visitor.turns = []


def _create_prompt(
    studio: EngineClient,
) -> tuple[gr.Textbox, gr.Button, gr.Button, gr.Button, gr.Checkbox, Control, gr.Button]:
    """Create the first row. returns: prompt, buttons to run, stop and clear, switch of the conversation, menu of methods, button of the settings"""
    with gr.Row(elem_id="sd-ask"):
        prompt = gr.Textbox(
            label=words.PROMPT,
            show_label=False,
            container=False,
            placeholder=words.PROMPT_HINT,
            lines=1,
            max_lines=4,
            scale=8,
            elem_id="sd-prompt",
        )
        live = not studio.replay_only
        run = gr.Button(words.RUN, variant="primary", scale=1, elem_id="sd-run", interactive=live)
        stop = gr.Button(words.STOP, scale=1, elem_id="sd-stop")
        new = gr.Button(words.NEW, scale=1, elem_id="sd-new")
        continues = gr.Checkbox(
            False, label=words.CONTINUE, container=False, scale=0, elem_id="sd-continue"
        )
        method = create_method(
            studio, container=False, show_label=False, scale=1, min_width=120, info=None
        )
        drawer = gr.Button(words.DRAWER, scale=1, elem_id="sd-settings")
    return prompt, run, stop, new, continues, method, drawer


def create_runs() -> gr.HTML:
    """Create the menu of recorded runs; its event `sent` leaves the chosen one's name as its value."""
    runs = [[run.name, run.title, run.prompt, run.method, run.group] for run in recorded_runs()]
    return mounted(
        "",
        "play/runs.js",
        "mountRuns",
        "sd-runs",
        own_words={"label": WORDS["runs"], "groups": WORDS["run_groups"], "runs": runs},
    )


def create_play(studio: EngineClient) -> Play:
    """Create the tab's components and their events. Call it inside the tab."""
    handlers = PlayHandlers(studio)
    visitor = create_state()
    prompt, run, stop, new, continues, method, drawer = _create_prompt(studio)
    with gr.Row(elem_id="sd-starts"):
        runs = create_runs()
        with gr.Row(elem_id="sd-examples"):
            recorded = {run.prompt for run in recorded_runs()}
            for example in read_examples(EXAMPLES):
                if studio.replay_only and example["prompt"] not in recorded:
                    continue
                button = gr.Button(example["title"], size="sm")
                button.click(None, None, prompt, js=_example(example["prompt"]))
    with gr.Row(elem_classes="sd-page-row"):
        with gr.Column(scale=4, min_width=320):
            first = recorded_runs()[0]  # the page opens with it
            opening = present.recorded_line(first.name, first.title, "opening")
            view = mounted(opening, "play/view.js", "mount", "sd-view")
        with gr.Column(scale=1, min_width=250, elem_id="sd-controls"):
            settings = create_settings(studio, method)
            model = create_model_menu(studio)
    create_batch(studio, settings)

    gr.on(None, handlers.arrive, None, visitor, **QUICK)  # when the page is opened
    begun = gr.on(
        [run.click, prompt.submit],
        handlers.ask,
        [visitor, prompt, continues],
        [visitor, view],
        **TELLING,
        api_name="begin_answer",
    )
    answered = begun.success(
        by_name(handlers.run, settings.fields),
        [visitor, prompt, settings.system, *settings.fields.values()],
        view,
        api_name="show_answer",
        **IN_LINE,
    )
    runs.sent(handlers.play, [visitor, runs], view, **QUICK)
    prompts = {run.name: run.prompt for run in recorded_runs()}
    runs.sent(None, runs, prompt, js=f"(name) => ({json.dumps(prompts)})[name] ?? ''")
    drawer.click(None, js=script("page/presenter.js", "turn", json.dumps(words.DRAWER_WORDS)))
    stop.click(handlers.stop, visitor, None, **QUICK)
    new.click(handlers.new, visitor, [visitor, view, prompt], **TELLING)
    settings.forget.click(handlers.forget, visitor, None, show_progress="hidden")
    fields = {"prompt": prompt, "system": settings.system, **settings.links()}
    return Play(settings, model, answered, fields)


def _example(prompt: str) -> str:
    """Return the JavaScript of an example's button: it plays the recording if there is one, and returns the prompt."""
    given = json.dumps(prompt)
    return f"() => {{ ({script('play/runs.js', 'example', given)})(); return {given}; }}"


def read_examples(path: Path) -> list[dict[str, str]]:
    """Return the examples that the page shows: title, task and prompt each."""
    examples: list[dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))["examples"]
    return [example for example in examples if example.get("shown")]


def _opening(visitor: PlayState, waiting: str = "") -> str:
    """Return the first lines of a new stream: the reason why it waits, and the earlier turns."""
    first = present.open_line("live", uuid.uuid4().hex, waiting=waiting)
    return first + "".join(
        present.line("earlier", prompt=prompt, answer=answer) for prompt, answer in visitor.turns
    )


def _site(_studio: EngineClient, folder: Path) -> dict[str, object]:
    runs = recorded_runs(folder)
    choices = [
        (run.name, run.title, present.recorded_line(run.name, run.title, run.name)) for run in runs
    ]
    return {"choices": choices, "words": {}}


TAB = Tab(1, "play", words.TAB_PLAY, create_play, _site)
