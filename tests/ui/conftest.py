"""One Chromium for all browser tests of a file; each test has a context of its own."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60_000  # milliseconds that a page may take for any action, also on a slow machine


# Not for a whole session: while Playwright runs, nothing else can wait in this thread, as Ray does.
@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """A running Chromium; tests that need it are skipped without one."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        pytest.skip("no Chromium")
    with sync_api.sync_playwright() as play:
        running = play.chromium.launch(executable_path=path, args=FLAGS)
        new_context = running.new_context

        def patient(**options: object) -> object:
            context = new_context(**options)
            context.set_default_timeout(PATIENCE)
            return context

        running.new_context = patient
        yield running
        running.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the pages' current content to the report of a failure."""
    report = yield
    running = getattr(item, "funcargs", {}).get("browser")
    if report.failed and call.when == "call" and running:
        for context in running.contexts:
            for page in context.pages:
                with suppress(Exception):
                    said = page.evaluate("document.body.innerText")
                    report.sections.append((f"Page {page.url}", said[:4000]))
    return report
