"""The window of its own: which program shows it, and that closing it ends the wait."""

from __future__ import annotations

import importlib.util
import shutil
import stat
import sys
from pathlib import Path

import pytest

from specdemo.ui import desktop

URL = "http://127.0.0.1:7860/"


@pytest.fixture(autouse=True)
def no_webview(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "webview" else real(name)
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in browser is a shell script")
def test_a_browser_shows_the_page_as_an_app_with_a_profile_of_its_own(monkeypatch, tmp_path):
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(shutil, "which", lambda name: str(browser) if name == "msedge" else None)
    desktop.open_window(URL, "specdemo", lambda: pytest.fail("waited although the window closed"))
    options = seen.read_text().splitlines()
    assert f"--app={URL}" in options
    profile = next(option for option in options if option.startswith("--user-data-dir="))
    assert not Path(profile.partition("=")[2]).exists()


def test_without_such_a_program_the_default_browser_is_used(monkeypatch):
    opened, waited = [], []
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(desktop.webbrowser, "open", opened.append)
    desktop.open_window(URL, "specdemo", lambda: waited.append(True))
    assert opened == [URL]
    assert waited == [True]
