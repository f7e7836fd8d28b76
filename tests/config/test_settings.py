"""The table of settings: its rows, its checks, and everything that is made from it."""

import dataclasses
from pathlib import Path

import pytest

from specdemo.config.errors import Phrase, UserError
from specdemo.config.settings import (
    GROUPS,
    PRESET_NAMES,
    AppSettings,
    RunSettings,
    Sampling,
    field,
    fields,
    widget_order,
)
from specdemo.drafters.methods import METHODS
from specdemo.ui import words
from specdemo.ui.settings_panel import OPTIONS

TABLES = [RunSettings, AppSettings]


@pytest.mark.parametrize("table", TABLES)
def test_every_setting_has_a_row_and_each_row_is_whole(table):
    rows = {setting.name: setting for setting in fields(table)}
    own = {item.name for item in dataclasses.fields(table)} - {"sampling"}
    drawn = {item.name for item in dataclasses.fields(Sampling)} if table is RunSettings else set()
    assert set(rows) == own | drawn
    for row in rows.values():
        assert row.group in GROUPS
        assert row.help
        assert not row.help.endswith(".")
        assert row.kind in (str, Path, bool) or (row.low is not None and row.high is not None)
        row.check(row.default)
        if row.public is not None:
            row.check(row.public)


@pytest.mark.parametrize("name", ["flag", "link", "variable"])
def test_no_two_settings_share_a_name(name):
    rows = [getattr(row, name) for table in TABLES for row in fields(table) if getattr(row, name)]
    assert len(rows) == len(set(rows))


def test_each_value_of_a_slider_is_possible():
    for row in fields():
        if row.widget and row.widget.kind == "slider":
            for value in (row.widget.low, row.widget.high):
                row.taken(value)


def test_the_page_asks_for_every_setting_that_has_a_widget_and_a_link_holds_it():
    asked = widget_order()
    assert set(asked) == {row.name for row in fields() if row.widget}
    assert len(asked) == len(set(asked))
    assert all(field(name).link for name in asked)
    assert asked[:2] == ("method", "policy")
    folded = [field(name).widget.folded for name in asked]
    assert folded == sorted(folded)


def test_the_drawer_has_the_settings_that_methods_read():
    read = {option for method in METHODS.values() for option in method.options}
    # The box of the exact mode stays in sight: its hint explains why a method has none.
    assert tuple(name for name in widget_order() if name in read - {"exact"}) == OPTIONS


def test_every_choice_has_a_word():
    assert tuple(words.POLICIES) == field("policy").choices
    assert tuple(words.VERIFICATIONS) == field("verification").choices


def test_settings_survive_the_way_through_plain_values():
    settings = RunSettings(
        lookahead=3, memory=False, sampling=Sampling(0.7, 5, 0.9, 1.1, 2**63 - 1)
    )
    flat = {row.name: settings.value(row.name) for row in fields()}
    assert RunSettings.from_values(flat) == settings
    assert RunSettings.from_values(settings.to_dict()) == settings
    assert RunSettings.from_values({}) == RunSettings()


def test_a_preset_stands_for_values_of_sampling_and_leaves_the_seed():
    recommended = Sampling(0.7, 20, 0.8, 1.1)
    drawn = {
        preset: RunSettings(preset=preset, sampling=Sampling(2.0, 3, seed=9)).drawn(recommended)
        for preset in field("preset").choices
    }
    assert drawn["own"].sampling == Sampling(2.0, 3, seed=9)
    assert drawn["greedy"].sampling == Sampling(seed=9)
    assert drawn["recommended"].sampling == dataclasses.replace(recommended, seed=9)
    assert all(settings.drawn(recommended) == settings for settings in drawn.values())
    assert RunSettings().drawn(recommended) == RunSettings()
    assert set(words.PRESETS) == set(field("preset").choices)
    assert {setting.name for setting in fields(Sampling)} == {*PRESET_NAMES, "seed"}


def test_plain_values_take_the_type_of_their_setting():
    settings = RunSettings.from_values({"lookahead": 8.0, "temperature": 1, "threshold": 1})
    assert repr(settings.lookahead) == "8"
    assert repr(settings.sampling.temperature) == "1.0"
    assert repr(settings.threshold) == "1.0"


WRONG = [None, "", "8", [], [1], {}, float("nan"), float("inf"), -1, 10**6000, object(), True]


@pytest.mark.parametrize("row", fields(), ids=lambda row: row.name)
@pytest.mark.parametrize("value", WRONG, ids=lambda value: type(value).__name__)
def test_an_impossible_value_is_refused_with_the_setting_and_its_range(row, value):
    if isinstance(value, row.kind) and not row.choices and row.kind in (str, bool):
        assert RunSettings.from_values({row.name: value}).value(row.name) == value
        return
    with pytest.raises(UserError) as refused:
        RunSettings.from_values({row.name: value})
    error = refused.value
    label = str(Phrase(f"label.{row.name}"))
    assert error.message.startswith(f"The {label} is ")
    assert str(row.range) in error.message
    assert error.unaffected == "Nothing was run."
    assert len(error.message) < 300
    with pytest.raises(UserError, match=label):
        made(row.name, value).checked()


def made(name, value):
    settings = RunSettings()
    if name in {item.name for item in dataclasses.fields(Sampling)}:
        sampling = dataclasses.replace(settings.sampling, **{name: value})
        return dataclasses.replace(settings, sampling=sampling)
    return dataclasses.replace(settings, **{name: value})


@pytest.mark.parametrize("row", [row for row in fields() if row.high is not None], ids=str)
def test_both_ends_of_a_range_are_possible_and_nothing_beyond(row):
    for value in (row.low, row.high):
        RunSettings.from_values({row.name: value})
    for value in (row.low - 1, row.high + 1):
        with pytest.raises(UserError):
            RunSettings.from_values({row.name: value})


@pytest.mark.parametrize("values", [{"sampling": 3}, {"sampling": {"heat": 1}}, {"x": 1}, {2: 3}])
def test_names_that_are_no_settings_are_refused(values):
    with pytest.raises(UserError, match="settings"):
        RunSettings.from_values(values)


def test_a_setting_of_an_earlier_version_has_no_effect():
    assert RunSettings.from_values({"stand_in": False, "lookahead": 3}) == RunSettings(lookahead=3)


def test_a_fraction_is_no_whole_number():
    with pytest.raises(UserError, match=r"lookahead is 2\.5"):
        RunSettings(lookahead=2.5).checked()


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("SPECDEMO_TARGET", "tiny", "target", "tiny"),
        ("SPECDEMO_THREADS", "3", "threads", 3),
        ("SPECDEMO_CACHE", "a/b", "cache_dir", Path("a/b")),
        ("SPECDEMO_REPLAY", "1", "replay", True),
        ("SPECDEMO_REPLAY", "0", "replay", False),
        ("SPECDEMO_REPLAY", "", "replay", False),
        ("SPECDEMO_PORT", "", "port", 7860),
    ],
)
def test_the_environment_gives_values(monkeypatch, variable, text, name, value):
    monkeypatch.setenv(variable, text)
    assert getattr(AppSettings.from_environment(), name) == value


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("SPECDEMO_PORT", "many", "a whole number between 0 and 65,535"),
        ("SPECDEMO_PORT", "70000", "between 0 and 65,535"),
        ("SPECDEMO_THREADS", "-1", "between 0 and"),
        ("SPECDEMO_THREADS", "9" * 5000, "between 0 and"),
        ("SPECDEMO_PRECISION", "int3", "one of auto, nf4, file, int8, bf16, fp32"),
    ],
)
def test_the_environment_is_checked_and_the_variable_is_named(monkeypatch, variable, text, told):
    monkeypatch.setenv(variable, text)
    with pytest.raises(UserError, match=f"{variable} is .*{told}"):
        AppSettings.from_environment()


def test_a_given_value_wins_over_the_environment_and_is_checked_too(monkeypatch):
    monkeypatch.setenv("SPECDEMO_PRECISION", "int8")
    assert AppSettings.from_environment(precision=None).precision == "int8"
    assert AppSettings.from_environment(precision="bf16").precision == "bf16"
    with pytest.raises(UserError, match="precision is 'int3'"):
        AppSettings.from_environment(precision="int3")


@pytest.mark.parametrize(
    ("given", "public"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "::1", "allowed_hosts": "localhost, 127.0.0.1"}, False),
        ({"host": "0.0.0.0"}, True),  # noqa: S104
        ({"host": "class.example"}, True),
        ({"allowed_hosts": "localhost,class.example"}, True),
        ({"allowed_hosts": "*"}, True),
    ],
)
def test_limits_hold_where_others_reach_the_page(given, public):
    settings = AppSettings.from_environment(**given)
    assert settings.public is public
    assert settings.allow_model_switch == ("off" if public else "catalogue")
    assert (settings.runs_a_minute > 0) is public
    assert (settings.prompt_tokens > 0) is public
    told = AppSettings.from_environment(**given, allow_model_switch="any")
    assert told.allow_model_switch == "any"


def test_a_space_serves_its_container_and_is_public_whatever_it_listens_on(monkeypatch):
    monkeypatch.setenv("SPACE_ID", "a/b")
    assert AppSettings.from_environment().host == "0.0.0.0"  # noqa: S104
    monkeypatch.setenv("SPECDEMO_HOST", "127.0.0.1")
    settings = AppSettings.from_environment()
    assert (settings.host, settings.allow_model_switch) == ("127.0.0.1", "off")
    monkeypatch.setenv("SPECDEMO_ALLOW_MODEL_SWITCH", "catalogue")
    assert AppSettings.from_environment().allow_model_switch == "catalogue"
