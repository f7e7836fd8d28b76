"""Finds out which program's server is at an address, and the llama-server that an Ollama has started."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from functools import cache
from urllib.parse import urlsplit

from specdemo.attach import llama_server, openai
from specdemo.attach.client import Client
from specdemo.attach.servers import OLLAMA, Pages, Server
from specdemo.config.errors import UserError

# In this order; the last one accepts every server with OpenAI's API.
DETECTORS: tuple[Callable[[Client, Pages], Server | None], ...] = (
    llama_server.detect,
    openai.lm_studio,
    openai.vllm,
    openai.sglang,
    openai.any_other,
)


def attach(url: str, key: str = "", *, ollama_child: bool = False) -> Server:
    """Return the server at an address. Raises UserError if none answers, or none that can be used.

    ollama_child: whether the user agrees to find the llama-server of an Ollama by the list of processes
    """
    server = _at(Client(url, key))
    if ollama_child and server.about.server == OLLAMA:
        return _at(Client(_child_url(server.client)))
    return server


def _at(client: Client) -> Server:
    pages = cache(client.get)
    for detect in DETECTORS:
        if (server := detect(client, pages)) is not None:
            return server
    raise UserError("attach.unknown_server", url=client.url)


def _child_url(ollama: Client) -> str:
    """Return the address of the llama-server that an Ollama on this machine has started; one that drafts, if there are several.

    Raises UserError if there is none.
    """
    local = urlsplit(ollama.url).hostname in ("127.0.0.1", "localhost", "::1")
    fields = [line.split(maxsplit=2) for line in _processes() if local]
    listed = [(one[0], one[1], one[2]) for one in fields if len(one) == 3]
    ours = {number for number, _, words in listed if "ollama" in words}
    children = [words for _, parent, words in listed if parent in ours and "llama-server" in words]
    children.sort(key=lambda words: "--spec-type" not in words)
    ports = (re.search(r"--port[ =](\d{1,5})(?!\d)", words) for words in children)
    port = next((found[1] for found in ports if found), None)
    if port is None:
        raise UserError("attach.no_child", url=ollama.url)
    return f"http://127.0.0.1:{port}"


def _processes() -> list[str]:
    """Return this machine's processes, a line each: id, parent's id, command. Empty where `ps` is missing, as on Windows."""
    command = ["ps", "-axww", "-o", "pid=,ppid=,args="]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()
