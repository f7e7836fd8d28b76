"""A tab is added as docs/architecture.md describes: a module, a script and strings."""

import json
import shutil

from specdemo.config import strings
from specdemo.config.settings import AppSettings
from specdemo.session.studio import Studio
from specdemo.ui import site, tabs
from specdemo.ui.app import create_app
from specdemo.ui.view import find_tabs

ECHO = """
from specdemo.config.strings import strings
from specdemo.ui.view import Tab, mounted

words = strings("echo")


def create(studio):
    return mounted("{}", "echo/echo.js", "mountEcho", "sd-echo", own_words=words.WORDS)


TAB = Tab(99, "echo", words.TAB, create, lambda studio, runs: {"value": "{}", "words": words.WORDS})
"""


def test_a_tab_needs_a_module_a_script_and_strings(monkeypatch, tmp_path):
    known = [tab.name for tab in find_tabs()]
    (tmp_path / "tabs").mkdir()
    (tmp_path / "tabs" / "echo.py").write_text(ECHO)
    monkeypatch.setattr(tabs, "__path__", [*tabs.__path__, str(tmp_path / "tabs")])
    words = shutil.copytree(strings.WORDS, tmp_path / "words")
    (words / "en" / "echo.json").write_text(json.dumps({"TAB": "Echo", "WORDS": {"said": "hello"}}))
    monkeypatch.setattr(strings, "WORDS", words)

    assert [tab.name for tab in find_tabs()] == [*known, "echo"]
    page = create_app(Studio(AppSettings(replay=True))).config["components"]
    (tab,) = [one for one in page if one["props"].get("elem_id") == "sd-tab-echo"]
    (view,) = [one for one in page if one["props"].get("elem_id") == "sd-echo"]
    assert tab["props"]["label"] == "Echo"
    assert "view/echo/echo.js" in view["props"]["js_on_load"]
    assert site.parts()["echo"]["words"] == {"said": "hello"}


def test_the_methods_of_the_race_follow_another_model():
    """After loading, the events of the tab update its menus: the methods depend on the model."""
    page = create_app(Studio(AppSettings()))
    menus = {f"sd-race-method-{number}" for number in range(1, 5)}
    (event,) = [number for number, one in page.fns.items() if one.api_name == "load"]
    updated: set[str] = set()
    while following := [n for n, one in page.fns.items() if one.trigger_after == event]:
        (event,) = following
        updated |= {one.elem_id for one in page.fns[event].outputs}
    assert updated >= menus
