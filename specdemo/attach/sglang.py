"""SGLang: the last chunk has the sums of the drafts, and how many tokens the verifications accepted."""

from __future__ import annotations

from specdemo.attach.client import Client
from specdemo.attach.openai import OpenAIServer, first_model
from specdemo.attach.rounds import Generation, Knowledge
from specdemo.attach.servers import Pages


def detect(client: Client, pages: Pages) -> OpenAIServer | None:
    """Return the SGLang server at this address; its arguments are in `/server_info`, earlier `/get_server_info`."""
    for path in ("/server_info", "/get_server_info"):
        values = pages[path].values
        if "internal_states" in values:
            break
    else:
        return None
    model = first_model(client, pages)
    if model is None:
        return None
    version, method = (str(values.get(name) or "")[:60] for name in ("version", "speculative_algorithm"))  # fmt: skip
    about = Generation("SGLang", version, Knowledge.TOTALS, model=model, method=method)
    drafting = bool(method) if "speculative_algorithm" in values else None
    return OpenAIServer(client, about, drafting, {"return_spec_tokens_details": True})
