"""The page in a window of its own: pywebview, else Chromium or Edge as an app, else the default browser."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
import webbrowser
from collections.abc import Callable

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge", "microsoft-edge")


def open_window(url: str, title: str, wait: Callable[[], None]) -> None:
    """Show the page and return when its window is closed.

    wait: blocks until the program is interrupted; used with the default browser, whose tabs cannot be watched
    """
    if importlib.util.find_spec("webview"):
        import webview

        webview.create_window(title, url, width=1280, height=840)
        webview.start()
        return
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        webbrowser.open(url)
        wait()
        return
    with tempfile.TemporaryDirectory(prefix="specdemo-", ignore_cleanup_errors=True) as profile:
        # A profile of its own makes the browser stay this process, so that closing the window ends it.
        options = [
            f"--app={url}",
            f"--user-data-dir={profile}",
            "--no-first-run",
            "--window-size=1280,840",
        ]
        if _is_root():
            options.append("--no-sandbox")
        subprocess.run([browser, *options], check=False, stderr=subprocess.DEVNULL)  # noqa: S603


def _is_root() -> bool:
    """Chromium refuses to run as root with its sandbox, as in a container."""
    import os

    return hasattr(os, "geteuid") and os.geteuid() == 0
