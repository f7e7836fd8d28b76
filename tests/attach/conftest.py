"""Real llama-servers with the embedded model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from llama_server import llama_server

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.files.catalogue import DEFAULT_TARGET, find
from specdemo.files.hub import fetch_gguf

NGRAM = """
kind = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
options.speculative.types, options.speculative.ngram_simple.size_n = [kind], 3
"""
LOSSY = "options.speculative.ngram_simple.size_n = options.speculative.ngram_simple.size_m = 2\n"
LOSSY += "options.speculative.synth_rates = [1.0, 1.0]"  # accepts every draft
KINDS = {"plain": "", "ngram": NGRAM, "lossy": NGRAM + LOSSY}


@pytest.fixture(scope="session")
def real_server() -> Iterator[Callable[[str], str]]:
    """Return a function from a name of KINDS to a server's address; skips without package or model file."""
    pytest.importorskip("xllamacpp")
    try:
        path = fetch_gguf(find(DEFAULT_TARGET).gguf, AppSettings().cache_dir)
    except UserError as error:
        pytest.skip(str(error))
    with ExitStack() as running:

        @cache
        def start(kind: str) -> str:
            options = f"options.n_ctx, options.endpoint_slots = 512, True\n{KINDS[kind]}"
            return running.enter_context(llama_server(str(path), options))

        yield start
