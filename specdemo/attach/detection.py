"""Finds out which program's server is at an address."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from specdemo.attach import llama_server, openai
from specdemo.attach.client import Client
from specdemo.attach.servers import Pages, Server
from specdemo.config.errors import UserError

# In this order; the last one accepts every server with OpenAI's API.
DETECTORS: tuple[Callable[[Client, Pages], Server | None], ...] = (
    llama_server.detect,
    openai.lm_studio,
    openai.vllm,
    openai.sglang,
    openai.any_other,
)


def attach(url: str, key: str = "") -> Server:
    """Return the server at an address. Raises UserError if none answers, or none that can be used."""
    client = Client(url, key)
    pages = cache(client.get)
    for detect in DETECTORS:
        if (server := detect(client, pages)) is not None:
            return server
    raise UserError("attach.unknown_server", url=client.url)
