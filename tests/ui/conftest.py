"""One Chromium for all browser tests of a file; each test has pages of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from ui.served import launched

from specdemo.config.settings import AppSettings

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Request

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
OWN_HOSTS = (None, "127.0.0.1", "localhost")  # None is that of a file, `data:` and `blob:`
SCREEN = {"width": 1280, "height": 800}
PATIENCE = 60_000  # milliseconds that a page may take for any action, also on a slow machine


def leave(context: BrowserContext) -> None:
    """Close the pages of a context and delete their storage."""
    for page in context.pages:
        origin = "://".join(urlsplit(page.url)[:2])
        page.goto("about:blank")
        cleared = {"origin": origin, "storageTypes": "local_storage"}
        context.new_cdp_session(page).send("Storage.clearDataForOrigin", cleared)
        page.close()


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
        new_context, contexts = running.new_context, {}

        def shared(**options: object) -> object:
            """A context with these options. The next test gets its cache of files, but not the storage of its pages."""
            key = repr(sorted(options.items()))
            if key not in contexts:
                contexts[key] = new_context(**options)
                contexts[key].set_default_timeout(PATIENCE)
                contexts[key].close = partial(leave, contexts[key])
            return contexts[key]

        running.new_context = shared
        yield running
        running.close()


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the page of the test file's STUDIO."""
    with launched(request.module.STUDIO(AppSettings())) as address:
        yield address


def watched(page: Page, problems: list[str]) -> Page:
    """Return the page with `problems`, its errors and its requests to other machines, and `asked`, the addresses that it has requested."""
    page.problems, page.asked = problems, []

    def requested(request: Request) -> None:
        page.asked.append(request.url)
        if urlsplit(request.url).hostname not in OWN_HOSTS:
            problems.append(request.url)

    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", requested)
    return page


@pytest.fixture
def open_page(browser: object) -> Iterator[Callable[..., object]]:
    """Return a function that opens an empty page with the given options of its context. An error of a page fails the test."""
    contexts, problems = [], []

    def opened(**options: object) -> object:
        contexts.append(browser.new_context(**{"viewport": SCREEN, **options}))
        return watched(contexts[-1].new_page(), problems)

    yield opened
    found = list(problems)
    for context in contexts:
        context.close()
    assert found == []


@pytest.fixture(scope="module")
def opened_once(browser: object, url: str, request: pytest.FixtureRequest) -> Page:
    """The page of a test file at the QUERY and with the MOTION of the file."""
    # A context of its own: those of `open_page` are emptied after each test.
    context = browser.new_context(viewport=SCREEN, accept_downloads=True)
    page = watched(context.new_page(), [])
    page.emulate_media(reduced_motion=getattr(request.module, "MOTION", "no-preference"))
    page.goto(url + getattr(request.module, "QUERY", ""))
    return page


@pytest.fixture
def page(opened_once: Page) -> Iterator[Page]:
    """A page that earlier tests of the file may have used, at its usual size. The test fails if the page reports an error."""
    opened_once.set_viewport_size(SCREEN)
    yield opened_once
    assert opened_once.problems == []


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
