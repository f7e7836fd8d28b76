"""The loaded model on the page: its status, the components that depend on it, and the menu that loads another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import TypeAlias

import gradio as gr
from gradio.components import Component

from specdemo.config.errors import UserError
from specdemo.config.settings import OWN, PRECISIONS, PRESET_NAMES, RECOMMENDED, RunSettings
from specdemo.files.progress import Progress
from specdemo.session.door import EngineClient, MethodInfo
from specdemo.session.studio import Offer, Studio
from specdemo.ui import present, words
from specdemo.ui.run_tab import QUICK, Follow
from specdemo.ui.settings_panel import OPTIONS
from specdemo.ui.view import note_view
from specdemo.ui.visits import switch_allowed, tell

AUTO_TARGET = "auto"  # the target that the program chooses
Sent: TypeAlias = str | None  # value of a menu
Updates: TypeAlias = tuple[object, ...]
NONE = "none"  # for no published drafter


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A visitor's choice in the menu. drafter: name of a published drafter, "none" for none"""

    target: str
    precision: str
    drafter: str


@dataclass(frozen=True, slots=True)
class ModelMenu:
    """Menu of models, a note on the chosen one, and the button that loads it.

    studio: the engine in this process, which loads the chosen model
    drafter: menu of published drafters for the target
    question: row that is visible until the visitor agrees to a download
    """

    studio: Studio
    box: gr.Accordion
    pair: gr.Dropdown
    precision: gr.Dropdown
    drafter: gr.Dropdown
    note: gr.HTML
    load: gr.Button
    question: gr.Row
    agree: gr.Button
    decline: gr.Button

    @property
    def chosen(self) -> list[Component]:
        """The target, its precision and a published drafter for it."""
        return [self.pair, self.precision, self.drafter]

    @property
    def told(self) -> list[Component | gr.Row]:
        """Components that `ModelHandlers.look` updates."""
        return [self.pair, self.drafter, self.note, self.load, self.question]


def create_model_menu(studio: EngineClient) -> ModelMenu | None:
    """Create the menus of models and precision, folded away. returns: None if visitors may not load another model

    Engines in other processes load their model when they start.
    """
    if not isinstance(studio, Studio) or studio.settings.allow_model_switch == "off":
        return None
    with gr.Accordion(words.MODEL, open=False, elem_id="sd-models") as box:
        target, pairs = studio.settings.target, studio.pairs()
        named = _any_model(studio) and target != AUTO_TARGET
        known = named or any(pair.name == target for pair in pairs)
        pair = gr.Dropdown(
            present.pair_choices(pairs, {}, target, named=named),
            value=target if known else None,
            label=words.PAIR,
            allow_custom_value=_any_model(studio),
            elem_id="sd-pair",
        )
        precision = gr.Dropdown(
            list(PRECISIONS), value=studio.settings.precision, label=words.PRECISION
        )
        # All that any target has may be sent; which are shown depends on the target, see `ModelHandlers.look`.
        offers = [one for other in pairs for one in studio.drafters(other.name)]
        offers += studio.drafters(target) if known and named else []
        loaded = studio.settings.drafter or NONE
        drafter = gr.Dropdown(
            present.drafter_choices(offers, loaded),
            value=loaded,
            label=words.DRAFTER,
            info=words.DRAFTER_NAMED if _any_model(studio) else words.DRAFTER_INFO,
            allow_custom_value=_any_model(studio),
            elem_id="sd-drafter",
        )
        note = note_view("[]", "sd-pair-note")
        load = gr.Button(words.LOAD, size="sm")
        with gr.Row(visible=False) as question:
            agree = gr.Button(words.DOWNLOAD, size="sm", variant="primary")
            decline = gr.Button(words.NOT_NOW, size="sm")
    return ModelMenu(studio, box, pair, precision, drafter, note, load, question, agree, decline)


def wire_model_menu(
    menu: ModelMenu,
    status: gr.HTML,
    loaded: Sequence[Follow],
) -> None:
    """Connect the menu. loaded: the events after loading"""
    handlers = ModelHandlers(menu.studio)
    look = (handlers.look, menu.chosen, menu.told)
    gr.on([menu.box.expand, menu.precision.input, menu.drafter.input], *look, **QUICK)
    menu.pair.input(handlers.another, menu.chosen, menu.told, **QUICK)
    menu.decline.click(*look, **QUICK)
    for button, name in ((menu.load, "load"), (menu.agree, "download")):
        event = button.click(
            partial(handlers.load, agreed=button is menu.agree),
            menu.chosen,
            [status, *menu.told],
            api_name=name,
            show_progress="hidden",
            concurrency_limit=1,
            concurrency_id="sd-switch",
        )
        for each in loaded:
            event = event.then(*each, **QUICK)


class StatusHandlers:
    """Handlers of the status and of components that depend on the loaded model."""

    def __init__(self, studio: EngineClient) -> None:
        self.studio = studio

    def status(self) -> str:
        """Return the value of the status component."""
        if self.studio.replay_only:
            return present.status("replay", words.REPLAY_ONLY)
        if self.studio.error and not self.studio.ready:
            return present.status("failed", words.FAILED.format(message=self.studio.error))
        if self.studio.ready:
            tell(self.studio)
            about = self.studio.loaded_about()
            return present.ready(about.target, about.remark)
        return present.loading(self.studio.progress() or Progress("start"))

    def menu(self, name: str, policy: str | None = None) -> Updates:
        """Return updates for the chosen method and the loaded pair: `SettingsPanel.menu`, then the training card."""
        methods = self.studio.methods()
        chosen = next((method for method in methods if method.name == name), methods[0])
        return (
            gr.update(choices=present.method_choices(methods)),
            present.method_note(chosen),
            *(gr.update(**present.option_update(chosen, option, policy)) for option in OPTIONS),
            gr.update(info=present.exact_hint(chosen)),
            self._card(chosen),
        )

    def drawing(self, preset: str) -> Updates:
        """Return updates of `SettingsPanel.drawing` with the preset's values for the loaded target."""
        recommended, known = self.studio.recommended, self.studio.ready or preset != RECOMMENDED
        told = gr.update(info=present.drawing(preset, recommended) if known else "")
        if preset == OWN or not known:
            return told, *(gr.skip() for _ in PRESET_NAMES)
        sampling = RunSettings(preset=preset).drawn(recommended.sampling).sampling
        return told, *(gr.update(value=getattr(sampling, name)) for name in PRESET_NAMES)

    def tick(self, name: str, policy: str | None = None, preset: str = OWN) -> Updates:
        """Poll the status. returns: status, timer, drawing and menu; all but the first change only after loading"""
        loading = self.studio.progress() is not None
        later = (*self.drawing(preset), *self.menu(name, policy))
        return (
            self.status(),
            gr.Timer(active=loading),
            *([gr.skip()] * len(later) if loading else later),
        )

    def _card(self, method: MethodInfo) -> str:
        if not self.studio.ready:
            return json.dumps({"none": words.CARD_LOADING})
        return present.training_card(method, self.studio.loaded_about().cards.get(method.name))


class ModelHandlers(StatusHandlers):
    """Handlers of the model menu."""

    studio: Studio

    def another(self, target: Sent, precision: Sent, drafter: Sent) -> Updates:
        """Handle the choice of another model. returns: as `look`, without a drafter of the model before"""
        choice, current = self._choice(target, precision, drafter), self.studio.settings
        known = {one.name for one in self.studio.drafters(choice.target)}
        known |= {current.drafter} if choice.target == current.target else set()
        return self._look(choice if choice.drafter in known else replace(choice, drafter=NONE))

    def look(self, target: Sent, precision: Sent, drafter: Sent) -> Updates:
        """Handle a choice in the menu. returns: updates of `ModelMenu.told` that describe the chosen model"""
        return self._look(self._choice(target, precision, drafter))

    def load(
        self, target: Sent, precision: Sent, drafter: Sent, *, agreed: bool = False
    ) -> Iterator[Updates]:
        """Load the chosen pair, or ask whether to download it if files are missing. yields: status, then as `look`

        agreed: the visitor wants the download
        All names that the visitor may not load get the same answer, without a search. After a failure the old pair stays.
        Closing the iterator, as Gradio does when the browser disconnects, cancels loading.
        """
        choice = self._choice(target, precision, drafter)
        try:
            if not self._may_load(choice):
                raise UserError("page.no_switch")
            if not agreed and not self._here(choice):
                yield self.status(), *self._question(choice)
                return
            note = json.dumps([("needs", words.COMING)]) if agreed else gr.skip()
            told = *(gr.skip(),) * 2, note, gr.Button(interactive=False), gr.Row(visible=False)
            yield self.status(), *told
            switching = self.studio.switch(choice.target, choice.precision, choice.drafter)
            for progress in switching:
                yield present.loading(progress), *told
            status = self.status()
        except UserError as error:
            status = present.status("failed", str(error))
        except Exception as error:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            status = present.status("failed", str(UserError("page.unexpected", error=error)))
        *menus, _, question = self.look(*astuple(choice))
        yield status, *menus, gr.Button(visible=True, interactive=True), question

    def _choice(self, target: Sent, precision: Sent, drafter: Sent) -> ModelChoice:
        precision = precision if precision in PRECISIONS else self.studio.settings.precision
        return ModelChoice((target or "").strip(), precision or "", (drafter or "").strip() or NONE)

    def _look(self, choice: ModelChoice) -> Updates:
        current = self.studio.settings
        if choice.target in ("", AUTO_TARGET):
            choice = replace(choice, target=current.target)
        target, drafter = choice.target, choice.drafter
        pairs, offers = self.studio.pairs(), self.studio.drafters(target)
        outlooks = self.studio.outlooks(choice.precision)
        pair = next((pair for pair in pairs if pair.name == target), None)
        shown = current.drafter or NONE if target == current.target else NONE
        same = ModelChoice(current.target, current.precision, current.drafter or NONE)
        named = _any_model(self.studio)
        chosen = self._offered(drafter, offers)
        loaded = self.studio.ready and choice == same
        note = present.pair_note(pair, outlooks.get(target), loaded=loaded)
        return (
            gr.update(
                choices=present.pair_choices(pairs, outlooks, current.target, named=named),
                value=target if named or pair else None,
            ),
            gr.update(
                choices=present.drafter_choices(offers, shown),
                value=drafter if named or chosen or drafter == shown else NONE,
                visible=bool(offers) or named or shown != NONE,
            ),
            json.dumps([*note, *present.drafter_note(chosen)]),
            gr.Button(visible=True),
            gr.Row(visible=False),
        )

    def _question(self, choice: ModelChoice) -> Updates:
        """Return updates of `ModelMenu.told`: the question whether to download the missing files."""
        titles = {pair.name: pair.target.title for pair in self.studio.pairs()}
        try:
            # The hub is queried only now, because the visitor wishes to load this pair.
            named = choice.drafter != NONE
            drafter = self.studio.drafter(choice.drafter, ask=True) if named else None
        except UserError as error:
            note = json.dumps([("missing", str(error))])
            return *(gr.skip(),) * 2, note, gr.Button(visible=True), gr.skip()
        title = titles.get(choice.target, choice.target)
        size = self.studio.to_download(choice.target, choice.precision)
        question = json.dumps(present.download_question(title, size, drafter))
        return *(gr.skip(),) * 2, question, gr.Button(visible=False), gr.Row(visible=True)

    def _may_load(self, choice: ModelChoice) -> bool:
        if not switch_allowed(self.studio) or _any_model(self.studio):
            return switch_allowed(self.studio)
        offers = {NONE, *(one.name for one in self.studio.drafters(choice.target))}
        known = (pair.name for pair in self.studio.pairs())
        return choice.drafter in offers and choice.target in known

    def _offered(self, drafter: str, offers: Sequence[Offer]) -> Offer | None:
        """Return the facts of a drafter without the network; None for "none" and for one that the visitor may not name."""
        if drafter == NONE:
            return None
        known = next((one for one in offers if one.name == drafter), None)
        if known or not (_any_model(self.studio) and switch_allowed(self.studio)):
            return known
        return self.studio.drafter(drafter, ask=False)

    def _here(self, choice: ModelChoice) -> bool:
        """Return whether all files are on this disk. Call it only for pairs that the visitor may load."""
        named = choice.drafter != NONE
        if named and not self.studio.drafter(choice.drafter, ask=False).here:
            return False
        return self.studio.to_download(choice.target, choice.precision) == 0


def _any_model(studio: EngineClient) -> bool:
    """Return whether files and hub names may be loaded: only if the operator allows it and the page is not public."""
    return studio.settings.allow_model_switch == "any" and not studio.settings.public
