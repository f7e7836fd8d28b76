"""The settings of a run as components, by name: the first minute's settings in sight, the rest folded away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import gradio as gr
from gradio.components import Component

from specdemo.config.settings import OWN, PRESET_NAMES, Widget, field, widget_order
from specdemo.config.strings import Json
from specdemo.session.door import EngineClient, MethodInfo
from specdemo.ui import present, words
from specdemo.ui.view import note_view

Control: TypeAlias = gr.Dropdown | gr.Radio | gr.Slider | gr.Number | gr.Checkbox
"""The component of a setting."""

_ANSWER = field("max_new_tokens").default
# Settings that some methods read and others do not.
OPTIONS = ("policy", "lookahead", "nodes", "memory", "threshold", "fallback")


@dataclass(frozen=True, slots=True)
class SettingsPanel:
    """Components of the settings.

    fields: by the name of the setting, in the order of the handlers' inputs
    menu: components that depend on the chosen method: the menu, its note, the containers of OPTIONS, and the exact mode,
        whose hint explains why a method has none
    forget: the button that clears the memory
    """

    fields: Json
    menu: list[Component]
    forget: gr.Button
    system: gr.Textbox

    @property
    def drawing(self) -> list[Component]:
        """The preset of sampling, and its values in the order of `PRESET_NAMES`."""
        return [self.fields["preset"], *(self.fields[name] for name in PRESET_NAMES)]

    def links(self) -> Json:
        """Return the components by their names in a link."""
        return {field(name).link: component for name, component in self.fields.items()}


def create_method(studio: EngineClient, **given: object) -> Control:
    """Create the menu of methods. given: options of the component"""
    methods = studio.methods()
    chosen = _default(methods).name
    choices = present.method_choices(methods)
    return create_widget("method", choices, value=chosen, elem_id="sd-method", **given)


def create_settings(studio: EngineClient, method: Control) -> SettingsPanel:
    """Create a widget for each row of the table of settings that has one. method: the menu of methods"""
    methods = studio.methods()
    chosen = _default(methods)
    # Every policy may be sent; which are shown depends on the method, see `present.option_update`.
    seen = {option: present.option_update(chosen, option)["visible"] for option in OPTIONS}
    names = widget_order()
    folded = [name for name in names if _widget(name).folded]

    most = {"maximum": min(_widget("max_new_tokens").high, studio.settings.answer_tokens)}
    limits = {"max_new_tokens": {**most, "value": min(most["maximum"], _ANSWER)}}
    limits["exact"] = {"info": present.exact_hint(chosen)}

    def widget(name: str) -> Control:
        given = limits.get(name, {})
        return create_widget(name, visible=seen.get(name, True), elem_id=f"sd-{name}", **given)

    fields: dict[str, Control] = {"method": method}
    note = note_view(present.method_note(chosen))
    for name in names:
        if name == "memory":
            with gr.Row(visible=seen[name], elem_id="sd-memory") as learning:
                fields[name] = create_widget(name, min_width=220)
                forget = gr.Button(words.FORGET, size="sm", scale=0)
        elif name not in (*fields, *folded):
            fields[name] = widget(name)
    with gr.Accordion(words.MORE, open=False):
        fields |= {name: widget(name) for name in folded}
        system = gr.Textbox(label=words.SYSTEM, lines=2)
    for name in PRESET_NAMES:  # a value that is chosen is the visitor's own from then on
        fields[name].input(None, None, fields["preset"], js=f"() => {json.dumps(OWN)}")
    shown = {**fields, "memory": learning}
    menu = [fields["method"], note, *(shown[name] for name in OPTIONS), fields["exact"]]
    return SettingsPanel(fields, menu, forget, system)


def _default(methods: Sequence[MethodInfo]) -> MethodInfo:
    default = field("method").default
    return next((method for method in methods if method.name == default), methods[0])


def create_widget(
    name: str, choices: list[tuple[str, str]] | None = None, **given: object
) -> Control:
    """Create the component of a setting from its row in the table.

    choices: of a dropdown, (label, value) each; default: the policies
    given: options that override the row
    """
    row, widget = field(name), _widget(name)
    value = row.default if widget.begins is None else widget.begins
    options = {"value": value, "label": words.SETTINGS[name], **given}
    if name in words.SETTING_HINTS:
        options.setdefault("info", words.SETTING_HINTS[name])
    match widget.kind:
        case "dropdown":
            return gr.Dropdown(choices or _titled(words.POLICIES), **options)
        case "radio":
            titles = {"preset": words.PRESETS, "verification": words.VERIFICATIONS}[name]
            return gr.Radio(_titled(titles), **options)
        case "slider":
            ends = {"minimum": widget.low, "maximum": widget.high, "step": widget.step}
            return gr.Slider(**{**ends, **options})
        case "number":
            return gr.Number(minimum=row.low, precision=0, **options)
        case _:
            return gr.Checkbox(**options)


def _titled(titles: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(title, value) for value, title in titles.items()]


def _widget(name: str) -> Widget:
    widget = field(name).widget
    assert widget, f"the page does not ask for {name}"
    return widget


def by_name(
    handler: Callable[..., Iterator[object]], fields: Mapping[str, object]
) -> Callable[..., Iterator[object]]:
    """Return a handler for Gradio, which passes values in order, of one whose last argument is the values by name.

    fields: the event's last inputs, by name
    """

    def handle(*values: object) -> Iterator[object]:
        first = len(values) - len(fields)
        named = dict(zip(fields, values[first:], strict=True))
        yield from handler(*values[:first], named)

    handle.__name__ = handler.__name__  # Gradio names its interface after it
    return handle
