"""A first visit to a Space, as any visitor makes it: the page is opened, and a prompt is answered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from specdemo.cli.space.hub import POLL_SECONDS, Report
from specdemo.cli.space.plan import STATIC
from specdemo.config.errors import UserError

if TYPE_CHECKING:
    from huggingface_hub import SpaceInfo

PROMPT = "Why is the sky blue?"
SETTINGS = {"max_new_tokens": 32, "baseline": False}
READY_SECONDS = 10 * 60.0  # for a model that is downloaded and loaded after the page is there
SHOWN_LETTERS = 80


def visit(space: SpaceInfo, report: Report, poll: float = POLL_SECONDS) -> None:
    """Open the page and, where there is a model, have a prompt answered. Raises UserError.

    The token of this machine is sent to a private Space only. poll: seconds between two questions
    """
    import httpx
    from gradio_client.exceptions import AppError
    from huggingface_hub import get_token

    page = str(space.host)
    token = get_token() if space.private else None
    try:
        if space.sdk == STATIC:
            _read(page, token)
            report(f"The site is at {page}")
        else:
            report(f"The page is at {page} and answers: {_ask(page, token, poll)}")
    except (AppError, httpx.HTTPError, ValueError) as error:
        raise UserError(
            "space.visit_failed",
            page=page,
            error=" ".join(str(error).split()) or type(error).__name__,
            repo=space.id,
        ) from error


def _read(page: str, token: str | None) -> None:
    """Raises httpx.HTTPError, and ValueError for a page of another program."""
    import httpx

    from specdemo.ui.site import MARK

    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(page, headers=headers, follow_redirects=True, timeout=60).raise_for_status()
    if MARK not in answer.text:
        raise ValueError("it is not this program's site.")


def _ask(page: str, token: str | None, poll: float) -> str:
    """The beginning of an answer, once the model is loaded."""
    import httpx
    from gradio_client import Client

    who: str = token or False  # type: ignore[assignment]  # False keeps the client from sending this machine's token
    client = Client(page, token=who, verbose=False, download_files=False, analytics_enabled=False)
    try:
        until = time.monotonic() + READY_SECONDS
        while True:
            health = httpx.get(f"{client.src}health", headers=client.headers, timeout=60)
            state = health.json()["status"]
            if state != "loading" or time.monotonic() > until:
                break
            time.sleep(poll)
        if state != "ready":
            raise ValueError(f"its model is not ready ({state}).")
        text, _, _ = client.predict(
            prompt=PROMPT, settings=SETTINGS, trace=False, api_name="/answer"
        )
        return " ".join(text.split())[:SHOWN_LETTERS]
    finally:
        client.close()
