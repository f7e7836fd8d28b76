"""vLLM: the tokens of one engine step arrive as one chunk, and its last chunk may count the steps (from version 0.29)."""

from __future__ import annotations

from specdemo.attach.client import Client
from specdemo.attach.openai import OpenAIServer, first_model
from specdemo.attach.rounds import Generation, Knowledge
from specdemo.attach.servers import Pages


def detect(client: Client, pages: Pages) -> OpenAIServer | None:
    """Return the vLLM server at this address. One that drafts has counters of drafts in its metrics.

    `--per-request-spec-decode-metrics detailed` makes it report each step; it is off by default.
    """
    version = pages["/version"].values.get("version")
    metrics = pages["/metrics"].text if isinstance(version, str) else ""
    model = first_model(client, pages) if "vllm:" in metrics else None
    if model is None:
        return None
    about = Generation("vLLM", str(version)[:60], Knowledge.ARRIVAL, model=model)
    drafting = "vllm:spec_decode_" in metrics
    return OpenAIServer(client, about, drafting, {"return_token_ids": True})
