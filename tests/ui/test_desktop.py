"""The window of its own: it opens, closing it ends the wait, and messages explain why there is none."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from programs import free_port, python

from specdemo.models.doctor import installed
from specdemo.ui import desktop

URL = "http://127.0.0.1:7860/"


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """A machine with a screen, without pywebview and without a browser."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "webview" else real(name)
    )
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setenv("DISPLAY", ":0")
    found = SimpleNamespace(said=[], browser=[], waited=[], kept=tmp_path / "kept")
    monkeypatch.setattr(desktop.webbrowser, "open", found.browser.append)
    found.open = lambda: desktop.open_window(
        URL, "specdemo", lambda: found.waited.append(True), found.said.append, found.kept
    )
    return found


def test_without_such_a_program_the_default_browser_opens_with_a_note(opened):
    opened.open()
    assert opened.browser == [URL]
    assert opened.waited == [True]
    (sentence,) = opened.said
    assert URL in sentence
    assert "requirements-desktop.txt" in sentence


@pytest.mark.skipif(sys.platform != "linux", reason="only there are windows a matter of variables")
def test_without_a_screen_nothing_opens_and_a_note_says_so(opened, monkeypatch):
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    opened.open()
    assert opened.said == [desktop.NO_SCREEN.format(url=URL)]
    assert opened.waited == [True]
    assert not opened.browser


class FakeWindows(ModuleType):
    """pywebview without windows. trouble: whether its start raises"""

    def __init__(self, monkeypatch, trouble=False):
        super().__init__("webview")
        self.settings, self.windows, self.started = {}, [], {}
        self.trouble = trouble
        errors = ModuleType("webview.errors")
        errors.WebViewException = type("WebViewException", (Exception,), {})
        self.errors = errors
        monkeypatch.setattr(importlib.util, "find_spec", {"webview": True}.get)
        monkeypatch.setattr(desktop, "_is_root", lambda: False)  # sets a variable for Qt
        monkeypatch.setitem(sys.modules, "webview", self)
        monkeypatch.setitem(sys.modules, "webview.errors", errors)

    def create_window(self, title, url, **options):
        self.windows.append((title, url, options))

    def start(self, **options):
        self.started = options
        if self.trouble:
            raise self.errors.WebViewException("You must have either QT or GTK")


def test_pywebview_shows_the_page_with_its_icon_and_may_save_files(opened, monkeypatch):
    webview = FakeWindows(monkeypatch)
    opened.open()
    ((title, url, options),) = webview.windows
    assert (title, url, options["text_select"]) == ("specdemo", URL, True)
    assert Path(webview.started["icon"]).read_bytes().startswith(b"\x89PNG")
    assert webview.started["storage_path"] == str(opened.kept)
    assert webview.settings["ALLOW_DOWNLOADS"]
    assert [opened.said, opened.waited, opened.browser] == [[], [], []]


def test_pywebview_without_qt_and_gtk_is_noted_and_the_browser_opens(opened, monkeypatch):
    FakeWindows(monkeypatch, trouble=True)
    opened.open()
    assert opened.browser == [URL]
    assert len(opened.said) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only there does Qt end the process")
@pytest.mark.parametrize("broken", [True, False])
def test_a_qt_that_aborts_leaves_the_browser(opened, monkeypatch, tmp_path, broken):
    qt = tmp_path / "PyQt6"
    plugin = qt / "Qt6" / "plugins" / "platforms" / "libqxcb.so"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    (qt / "__init__.py").touch()
    body = "import os\nQApplication = lambda _: os.abort()" if broken else "QApplication = list"
    (qt / "QtWidgets.py").write_text(body)
    ldd = tmp_path / "ldd"
    missing = ("libxcb-icccm.so.4", "libxkbcommon-x11.so.0")
    ldd.write_text("#!/bin/sh\n" + "".join(f"echo '{name} => not found'\n" for name in missing))
    ldd.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _: str(ldd))
    webview = FakeWindows(monkeypatch)
    found = SimpleNamespace(submodule_search_locations=[str(qt)])
    specs = {"PyQt6": found, "webview": found}
    monkeypatch.setattr(importlib.util, "find_spec", specs.get)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    opened.open()
    assert len(webview.windows) == (not broken)
    assert opened.browser == ([URL] if broken else [])
    assert [("libxcb-icccm4, libxkbcommon-x11-0" in said) for said in opened.said] == [
        True
    ] * broken


REAL = """
import sys, threading, time
import webview
from specdemo.cli.parser import main

def close():
    while not webview.windows:
        time.sleep(0.05)
    window = webview.windows[0]
    for _ in range(300):
        title = window.evaluate_js("document.title")
        if title:
            break
        time.sleep(0.2)
    print("title:", title, flush=True)
    window.destroy()

threading.Thread(target=close, daemon=True).start()
raise SystemExit(main(["app", "--replay", "--desktop", "--port", sys.argv[1]]))
"""


@pytest.mark.browser
def test_closing_a_real_window_ends_the_process(tmp_path):
    if not shutil.which("Xvfb"):
        pytest.skip("no Xvfb")
    pytest.importorskip("webview", reason="needs pywebview, see requirements-desktop.txt")
    if not (installed("PyQt6.QtWebEngineWidgets") or installed("gi.repository.WebKit2")):
        pytest.skip("neither Qt nor GTK")
    read, write = os.pipe()
    command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x900x24"]
    screen = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL)
    try:
        number = os.read(read, 16).decode().strip()
        given = {"DISPLAY": f":{number}", "SPECDEMO_CACHE": str(tmp_path)}
        said = python("-c", REAL, free_port(), **given)
    finally:
        screen.terminate()
        screen.wait(10)
        os.close(read)
        os.close(write)
    assert "title: specdemo" in said
