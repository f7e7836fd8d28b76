"""The page in a window of its own, by pywebview; without it in the default browser."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

from specdemo.config.strings import ASSETS

ICON = ASSETS / "icons" / "app.png"
WIDTH, HEIGHT = 1280, 840
NO_SCREEN = "There is no screen for a window here: open {url} in a browser."
NO_WINDOW = (
    "There is nothing here that opens a window of its own (requirements-desktop.txt names what does), "
    "so the page opens in the browser: {url}"
)
NO_QT = "Qt cannot open a window here{missing}, so the page opens in the browser: {url}"
MISSING = ", as the packages {packages} are missing"
QT = "from PyQt6.QtWidgets import QApplication; QApplication([])"


def open_window(
    url: str, title: str, wait: Callable[[], None], say: Callable[[str], object], kept: Path
) -> None:
    """Show the page in a window of its own and return when it is closed.

    wait: blocks until the program is interrupted; used if the page opens in a browser
    say: called with a message if there is no window
    kept: folder for data that the page stores, such as the chosen language
    """
    if not _has_screen():
        say(NO_SCREEN.format(url=url))
    elif (missing := _qt_trouble()) is not None:
        named = MISSING.format(packages=", ".join(missing)) if missing else ""
        say(NO_QT.format(missing=named, url=url))
        webbrowser.open(url)
    elif _webview(url, title, kept):
        return
    else:
        say(NO_WINDOW.format(url=url))
        webbrowser.open(url)
    wait()


def _has_screen() -> bool:
    """Return whether windows can be shown. Qt ends the whole process if they cannot."""
    if sys.platform != "linux":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _qt_trouble() -> list[str] | None:
    """Return the Debian packages of libraries that Qt misses; None if it opens windows, or another library does.

    Another process tries, since Qt ends its process where it cannot.
    """
    found = importlib.util.find_spec("PyQt6")
    if sys.platform != "linux" or not found or importlib.util.find_spec("gi"):
        return None
    if not subprocess.run([sys.executable, "-c", QT], capture_output=True, check=False).returncode:
        return None
    folders = found.submodule_search_locations or []
    plugins = [path for folder in folders for path in Path(folder).rglob("libqxcb.so")]
    if not plugins or not shutil.which("ldd"):
        return []
    linked = subprocess.run(["ldd", *plugins], capture_output=True, text=True, check=False).stdout
    names = re.findall(r"(\S+)\.so\.(\d+) => not found", linked)
    # Debian's rule: a number after a digit is set off.
    return sorted({f"{name}{'-' * name[-1].isdigit()}{number}" for name, number in names})


def _webview(url: str, title: str, kept: Path) -> bool:
    """Show the page by pywebview. returns: whether it was shown and closed"""
    if not importlib.util.find_spec("webview"):
        return False
    import webview
    from webview.errors import WebViewException

    logging.getLogger("pywebview").setLevel(
        logging.CRITICAL
    )  # it logs every library that it fails to find
    if _is_root():
        os.environ.setdefault("QTWEBENGINE_DISABLE_SANDBOX", "1")
    webview.settings["ALLOW_DOWNLOADS"] = True  # saved runs
    webview.create_window(title, url, width=WIDTH, height=HEIGHT, text_select=True, zoomable=True)
    try:
        webview.start(icon=str(ICON), private_mode=False, storage_path=str(kept))
    except WebViewException:  # neither Qt nor GTK
        return False
    return True


def _is_root() -> bool:
    """Return whether this is root: Chromium, which is inside Qt too, then refuses to run with its sandbox."""
    return hasattr(os, "geteuid") and os.geteuid() == 0
