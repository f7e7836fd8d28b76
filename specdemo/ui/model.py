"""What the page says about the loaded model: its status, what the chosen method makes of it, and loading another."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import gradio as gr

from specdemo.errors import UserError
from specdemo.models.progress import Progress
from specdemo.session.door import Door
from specdemo.session.menu import MethodInfo
from specdemo.settings import PRECISIONS
from specdemo.ui import present, words
from specdemo.ui.settings_panel import OPTIONS
from specdemo.ui.streaming import Task, stream
from specdemo.ui.visits import switch_allowed, tell
from specdemo.ui.words.en import limits


@dataclass(frozen=True, slots=True)
class ModelMenu:
    """What can be loaded instead, and the button that does it."""

    pair: gr.Dropdown
    precision: gr.Dropdown
    load: gr.Button


def create_model_menu(studio: Door) -> ModelMenu | None:
    """The pairs of models and the target's precision, folded away; None where visitors may not load another."""
    if studio.settings.allow_model_switch == "off":
        return None
    with gr.Accordion(words.MODEL, open=False):
        choices = [(pair.title, pair.target) for pair in studio.pairs()]
        known = any(target == studio.settings.target for _, target in choices)
        value = studio.settings.target if known or _any_model(studio) else None
        pair = gr.Dropdown(
            choices, value=value, label=words.PAIR, allow_custom_value=_any_model(studio)
        )
        precision = gr.Dropdown(
            list(PRECISIONS), value=studio.settings.precision, label=words.PRECISION
        )
        return ModelMenu(pair, precision, gr.Button(words.LOAD, size="sm"))


class ModelHandlers:
    """Handlers bound to one studio: what it can do now."""

    def __init__(self, studio: Door) -> None:
        self.studio = studio

    def status(self) -> str:
        """Value of the status component."""
        if self.studio.replay_only:
            return present.status("replay", words.REPLAY_ONLY)
        if self.studio.error and not self.studio.ready:
            return present.status("failed", words.FAILED.format(message=self.studio.error))
        if self.studio.ready:
            info = self.studio.target
            tell(self.studio)
            return present.status(
                "ready", words.READY.format(target=info.name, precision=info.precision)
            )
        progress = self.studio.progress()
        if progress is None:
            return present.loading(Progress("start"))
        return present.loading(progress)

    def menu(self, name: str) -> tuple[object, ...]:
        """What depends on the method and on the loaded pair.

        returns: updates of `SettingsPanel.menu`, then the training card
        """
        methods = self.studio.methods()
        chosen = next((method for method in methods if method.name == name), methods[0])
        return (
            gr.update(choices=present.method_choices(methods)),
            present.method_note(chosen),
            *(gr.update(visible=present.visible(chosen, option)) for option in OPTIONS),
            self._card(chosen),
        )

    def tick(self, name: str) -> tuple[object, ...]:
        """returns: status, the timer and the menu; the last two change once loading has ended"""
        loading = self.studio.progress() is not None
        menu = [gr.skip()] * (3 + len(OPTIONS)) if loading else self.menu(name)
        return self.status(), gr.Timer(active=loading), *menu

    def switch(self, target: str | None, precision: str | None) -> Iterator[object]:
        """Load another pair. yields: status, and the button, disabled meanwhile

        Whatever is not in the catalogue gets the same answer, and nothing is looked up.
        """
        loading = _Loading(self)
        work = self._switch((target or "").strip(), precision or "", loading)
        yield from stream(None, Task(), work, loading, seconds=0)

    def _switch(
        self, target: str, precision: str, loading: _Loading
    ) -> Generator[None, None, None]:
        drafts = {pair.target: pair.draft for pair in self.studio.pairs()}
        allowed = _any_model(self.studio) or target in drafts
        if not (allowed and switch_allowed(self.studio) and precision in PRECISIONS):
            raise UserError(limits.SWITCH_OFF)
        draft = drafts.get(target, "auto")
        for progress in self.studio.switch(target, draft, precision):
            loading.status = present.loading(progress)
            yield
        loading.end()

    def _card(self, method: MethodInfo) -> str:
        """Value of the view of a method's training card."""
        if not self.studio.ready:
            return json.dumps({"none": words.CARD_LOADING})
        return present.training_card(method, self.studio.card(method.name))


def _any_model(studio: Door) -> bool:
    """Whether files and hub names may be loaded: where the operator says so, and nobody else reaches the page."""
    return studio.settings.allow_model_switch == "any" and not studio.settings.public


class _Loading:
    """How far loading another pair is. status: of the loaded pair when it is empty"""

    def __init__(self, handlers: ModelHandlers) -> None:
        self.handlers = handlers
        self.status, self.busy = "", True

    def value(self) -> tuple[str, gr.Button]:
        """Status, and the button."""
        return self.status or self.handlers.status(), gr.Button(interactive=not self.busy)

    def wait(self, sentence: str) -> None:
        """Nothing: it stands in no line."""

    def end(self, status: str = "") -> None:
        """Nothing is being loaded any more."""
        self.status, self.busy = status, False

    def fail(self, error: UserError) -> None:
        """The old pair stays."""
        self.end(present.status("failed", str(error)))
