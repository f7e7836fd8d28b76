"""LM Studio: the last chunk has the sums of the drafts. It answers every path with status 200, so bodies are checked."""

from __future__ import annotations

from specdemo.attach.client import Client
from specdemo.attach.openai import OpenAIServer
from specdemo.attach.rounds import Generation, Knowledge
from specdemo.attach.servers import Pages


def detect(client: Client, pages: Pages) -> OpenAIServer | None:
    """Return the LM Studio at this address with the model that it has loaded, or else its first one."""
    data = pages["/api/v0/models"].values.get("data")
    listed = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    models = [one for one in listed if isinstance(one.get("state"), str)]
    if not models:
        return None
    model = next((one for one in models if one["state"] == "loaded"), models[0])
    about = Generation("LM Studio", "", Knowledge.TOTALS, model=str(model.get("id", ""))[:200])
    return OpenAIServer(client, about)
