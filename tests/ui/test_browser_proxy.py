"""The page behind a proxy that removes its prefix, and behind one that keeps it."""

import http.client
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx
import pytest
from loopback import Handler, serving
from ui.scripted import ReadyStudio
from ui.served import launched

from specdemo.config.settings import AppSettings
from specdemo.config.strings import strings

pytestmark = pytest.mark.browser

PREFIX = "/demo"


@contextmanager
def proxied(port, *, kept):
    """A proxy that serves the page of a port under the prefix. kept: it passes the prefix on. yields: the address"""

    class Proxy(Handler):
        def forward(self):
            page = http.client.HTTPConnection("127.0.0.1", port)
            path = self.path if kept else self.path.removeprefix(PREFIX)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            page.request(self.command, path, body, dict(self.headers))
            answer = page.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            while part := answer.read1(65536):
                self.wfile.write(part)
                self.wfile.flush()
            self.close_connection = True

        do_GET = do_POST = do_HEAD = forward

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Proxy)) as address:
        yield f"{address}{PREFIX}/"


@pytest.fixture(scope="module")
def port():
    """The port of a page that knows its prefix, in each spelling that an operator may use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_ROOT_PATH", "demo/")
        with launched(ReadyStudio(AppSettings())) as url:
            yield urlsplit(url).port


@pytest.mark.parametrize("kept", [False, True], ids=["removed", "kept"])
def test_the_page_runs_a_prompt_behind_a_proxy(browser, port, kept):
    with proxied(port, kept=kept) as url:
        context = browser.new_context(reduced_motion="reduce", locale="de-DE")
        page = context.new_page()
        missing = []
        page.on("response", lambda got: got.status >= 400 and missing.append(got.url))
        page.goto(url)
        page.locator("#sd-view .sd-answer .sd-token").first.wait_for()
        page.locator("#sd-prompt textarea").fill("words")
        page.locator("#sd-run").click()
        page.locator("#sd-view .sd-badge-live").first.wait_for()
        page.locator("#sd-view .sd-answer .sd-token").first.wait_for()
        styled = page.evaluate("document.querySelectorAll('link[href*=\"css/view.css\"]').length")
        context.close()
        assert not missing
        assert styled
        opened = httpx.post(url + "rooms", json={"run": "20-larger-model", "at": 12}).json()
        room = browser.new_context().new_page()
        room.goto(f"{url}room.html?room={opened['code']}#{opened['key']}")
        room.locator(".sd-room-code", has_text=opened["code"]).wait_for()
        room.context.close()
        for closed in ("gradio_api/upload", "gradio_api//file=x", "monitoring"):
            assert httpx.get(url + closed).json()["error"] == strings("limits").CLOSED
