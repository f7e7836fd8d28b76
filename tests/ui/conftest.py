"""One Chromium for all browser tests of a file; each test has a context of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# Not for a whole session: while Playwright runs, nothing else can wait in this thread, as Ray does.
@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """A running Chromium; tests that ask for it are skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        pytest.skip("no Chromium")
    with sync_api.sync_playwright() as play:
        running = play.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()
