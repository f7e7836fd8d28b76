"""The settings' components come from the table, and handlers get their values by name."""

import gradio as gr
import pytest
from ui.scripted import ScriptedStudio

from specdemo.config.settings import RunSettings, field, widget_order
from specdemo.ui import words
from specdemo.ui.settings_panel import OPTIONS, by_name, create_method, create_settings


@pytest.fixture(scope="module")
def panel():
    with gr.Blocks():
        return create_settings(ScriptedStudio(), create_method(ScriptedStudio()))


def test_every_setting_of_the_page_has_a_word_and_a_component(panel):
    assert set(words.SETTINGS) == set(widget_order())
    assert set(words.SETTING_HINTS) <= set(widget_order())
    assert tuple(panel.fields) == widget_order()
    for name, component in panel.fields.items():
        assert component.label == words.SETTINGS[name]
    assert set(panel.links()) == {field(name).link for name in widget_order()}


def test_the_components_start_with_the_defaults_of_a_run(panel):
    shown = {name: component.value for name, component in panel.fields.items()}
    shown["method"] = RunSettings().method  # not in the studio of this test
    assert RunSettings.from_values(shown) == RunSettings(preset="recommended")


def test_the_options_of_a_method_stand_in_their_order_on_the_panel(panel):
    menu, _note, *options, exact = panel.menu
    assert menu is panel.fields["method"]
    assert exact is panel.fields["exact"]
    assert len(options) == len(OPTIONS)
    for name, component in zip(OPTIONS, options, strict=True):
        assert component.elem_id == f"sd-{name}"


def test_a_handler_gets_its_last_values_by_name():
    def handler(visitor, values):
        yield visitor, values

    named = by_name(handler, {"a": object(), "b": object()})
    assert list(named("me", 1, 2)) == [("me", {"a": 1, "b": 2})]
    with pytest.raises(ValueError, match="argument"):
        list(named(1))
