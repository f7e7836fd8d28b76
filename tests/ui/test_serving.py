"""How the page is served: what its answer names, how often Gradio looks at its queue."""

from __future__ import annotations

import asyncio
import inspect
import re
from concurrent.futures import ThreadPoolExecutor

from gradio.queueing import Queue

from specdemo.export.table import SCRIPTS
from specdemo.ui.files import version
from specdemo.ui.serving import Preload


def answered(path):
    """Headers of an empty answer to a request that went through the middleware."""
    sent = []

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})

    async def keep(message):
        sent.append(message)

    # In a thread of its own: where browser tests have run, this one has an event loop already.
    page = Preload(app)({"type": "http", "path": path}, None, keep)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, page).result()
    return dict(sent[0]["headers"])


def test_the_page_names_the_scripts_that_it_will_import():
    *links, run = answered("/")[b"link"].decode().split(", ")
    low = "; fetchpriority=low"  # Gradio's own scripts come first
    assert re.fullmatch(r"<files/.*/runs/.*\.jsonl>; rel=preload; as=fetch; crossorigin" + low, run)
    shape = rf"<files/{version()}/view/(.*)>; rel=modulepreload{low}"
    named = [re.fullmatch(shape, link)[1] for link in links]
    assert all((SCRIPTS / name).is_file() for name in named)
    assert len(set(named)) == len(named)
    assert {"play/view.js", "core/reducer.js", "parts/dom.js", "core/permalink.js"} < set(named)
    assert answered("/gradio_api/queue/join") == {b"a": b"b"}


def test_gradio_still_sleeps_between_two_looks_at_its_queue():
    """Else `app.QUEUE_SECONDS` sets something that nobody reads, and an idle page costs a tenth of a core again."""
    assert "asyncio.sleep(self.sleep_when_free)" in inspect.getsource(Queue.start_processing)
