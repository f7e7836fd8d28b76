"""Servers with OpenAI's API: text and speed, and the counts of drafts that the last chunk may have.

LM Studio, vLLM and SGLang are recognised by pages of their own; LM Studio answers every path with status 200.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate

from pydantic import AliasChoices, AliasPath, Field, ValidationError

from specdemo.attach.client import Client, Foreign, KnownCount, shown
from specdemo.attach.pasted import counters, reports
from specdemo.attach.records import Record
from specdemo.attach.servers import Generation, Pages, Part, Piece, Request, Round, Server
from specdemo.config.errors import UserError
from specdemo.config.strings import Json
from specdemo.trace.events import Count, Knowledge

MOST_CHUNKS = 4  # parts of a text for each token that was requested
FINISH = {"stop": "stop", "length": "length"}
REPORTS = ("metrics", "sglext", "stats")  # with counts of drafts: vLLM, SGLang, LM Studio


_CHOICE = partial(AliasPath, "choices", 0)
_IDS = AliasChoices(_CHOICE("token_ids"), _CHOICE("delta", "token_ids"))
_CONTENT = AliasChoices(_CHOICE("delta", "content"), _CHOICE("text"))


class Chunk(Foreign):
    """One chunk of a stream: of its first answer the new text, with ids if the server sends them, and counts."""

    reasoning: str | None = Field(None, validation_alias=_CHOICE("delta", "reasoning_content"))
    content: str | None = Field(None, validation_alias=_CONTENT)
    ids: tuple[Count, ...] | None = Field(None, validation_alias=_IDS)
    finish: str | None = Field(None, validation_alias=_CHOICE("finish_reason"))
    prompt_tokens: KnownCount = Field(None, validation_alias=AliasPath("usage", "prompt_tokens"))
    completion_tokens: KnownCount = Field(None, validation_alias=AliasPath("usage", "completion_tokens"))  # fmt: skip

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The tokens; without ids the text is one of them."""
        text = (self.reasoning or "") + (self.content or "")
        if self.ids:
            return (*(Piece("", one) for one in self.ids[:-1]), Piece(text, self.ids[-1]))
        return (Piece(text),) if text else ()


def _first_model(client: Client, pages: Pages) -> str | None:
    """Return the first model of `/v1/models`; None if there is no such list. Raises UserError if a key is needed."""
    if pages("/v1/models").status in (401, 403):
        raise UserError("attach.key", url=client.url)
    data = pages("/v1/models").values.get("data")
    if not isinstance(data, list) or not data or not isinstance(data[0], dict):
        return None
    return shown(data[0].get("id", ""))


def body_of(request: Request, model: str) -> Json:
    """Return the request for a streamed answer of `/v1/chat/completions`."""
    drawn = request.sampling
    return {
        "model": model,
        "messages": list(request.messages),
        "max_tokens": request.max_new_tokens,
        "temperature": drawn.temperature,
        "top_p": drawn.top_p,
        "seed": drawn.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def with_report(found: Generation, extra: Json, counted: Record | None = None) -> Generation:
    """Return an answer with the server's own counts of its drafts, if it reports any; else with what was counted meanwhile.

    Steps that the server lists win over the groups in which tokens arrived, since two may arrive as one; a step whose group
    differs has no time. It omits steps without a draft: if the listed ones do not make up the answer, the groups stay.
    """
    record = next(reports(extra), counted)
    if record is None:
        return replace(found, drafted=0, accepted=0) if extra.get("stats") == {} else found
    places = record.by_position if len(record.steps) <= found.tokens else ()
    whole = replace(found, drafted=record.drafted, accepted=record.accepted, positions=places)
    pieces = found.pieces[len(found.first) :]
    spare = sum(accepted + 1 for accepted, _ in record.steps) - len(pieces)
    if not record.steps or not 0 <= spare <= record.steps[-1][0]:
        return whole
    starts = accumulate((len(one.committed) for one in found.rounds), initial=0)
    arrived = {(at, len(one.committed)): one.seconds for at, one in zip(starts, found.rounds)}  # noqa: B905
    rounds, at = list[Round](), 0
    for accepted, drafted in record.steps:
        committed = tuple(pieces[at : at + accepted + 1])
        spent = arrived.get((at, len(committed)))
        rounds.append(Round(committed, drafted, accepted, spent))
        at += accepted + 1
    return replace(whole, rounds=tuple(rounds))


@dataclass(frozen=True, slots=True)
class OpenAIServer(Server):
    """A server with OpenAI's API. more: fields of a request with which it reports more about drafts"""

    more: Json = field(default_factory=dict)

    def stream(self, request: Request, cancel: threading.Event) -> Iterator[Part]:
        """Yield the parts of an answer: the first chunk came from the prompt, each other one is a round by arrival."""
        found, rounds, count, finish = self.about, list[Round](), 0, ""
        counts, extra = Chunk.model_validate({}), Json()
        counted_before = self._metrics()
        before = time.perf_counter()
        body = body_of(request, self.about.model) | self.more
        for values in self.client.stream("/v1/chat/completions", body, cancel):
            try:
                chunk = Chunk.model_validate(values)
            except ValidationError:
                raise UserError("attach.malformed", url=self.client.url, line=shown(values)) from None  # fmt: skip
            extra |= {name: values[name] for name in REPORTS if isinstance(values.get(name), dict)}
            counts = counts if chunk.completion_tokens is None else chunk
            finish = FINISH.get(chunk.finish or "", finish)
            pieces = chunk.pieces
            count += len(pieces)
            if count > MOST_CHUNKS * request.max_new_tokens:
                raise UserError("attach.endless", url=self.client.url)
            if not pieces:
                continue
            now = time.perf_counter()
            took, before = now - before, now
            if found.first:
                rounds.append(Round(pieces, seconds=took))
                yield rounds[-1]
            else:
                found = replace(found, first=pieces, prefill_seconds=took)
                yield found
        if not finish and not cancel.is_set():
            raise UserError("attach.died", url=self.client.url)
        if not found.first:
            yield found
        whole_answer = replace(
            found,
            rounds=tuple(rounds),
            prompt_tokens=counts.prompt_tokens,
            decode_seconds=sum(one.seconds or 0.0 for one in rounds),
            finish=finish or "cancelled",
            reported_tokens=counts.completion_tokens,
        )
        counted = counters(self._metrics(), counted_before) if counted_before else None
        # More tokens than the answer has are those of other requests.
        own = counted and counted.tokens == counts.completion_tokens
        yield with_report(whole_answer, extra, counted if own else None)

    def _metrics(self) -> str:
        """Return the page of counters of a server that drafts, if it publishes them."""
        with suppress(UserError):
            return self.client.get("/metrics").text if self.drafting else ""
        return ""


def lm_studio(client: Client, pages: Pages) -> OpenAIServer | None:
    """Return the LM Studio at this address with the model that it has loaded, or else its first one."""
    data = pages("/api/v0/models").values.get("data")
    listed = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    models = [one for one in listed if isinstance(one.get("state"), str)]
    if not models:
        return None
    model = next((one for one in models if one["state"] == "loaded"), models[0])
    about = Generation("LM Studio", "", Knowledge.TOTALS, model=shown(model.get("id", "")))
    return OpenAIServer(client, about)


def vllm(client: Client, pages: Pages) -> OpenAIServer | None:
    """Return the vLLM server at this address. One that drafts has counters of drafts in its metrics.

    The tokens of one engine step arrive as one chunk. From version 0.29, `--per-request-spec-decode-metrics detailed`
    makes the last chunk list the steps; it is off by default.
    """
    version = pages("/version").values.get("version")
    metrics = pages("/metrics").text if isinstance(version, str) else ""
    model = _first_model(client, pages) if "vllm:" in metrics else None
    if model is None:
        return None
    about = Generation("vLLM", shown(version), Knowledge.ARRIVAL, model=model)
    drafting = "vllm:spec_decode_" in metrics
    return OpenAIServer(client, about, drafting, {"return_token_ids": True})


def sglang(client: Client, pages: Pages) -> OpenAIServer | None:
    """Return the SGLang server at this address; its arguments are in `/server_info`, earlier `/get_server_info`."""
    found = (pages(path).values for path in ("/server_info", "/get_server_info"))
    values = next((one for one in found if "internal_states" in one), None)
    model = _first_model(client, pages) if values else None
    if values is None or model is None:
        return None
    version, method = (shown(values.get(name) or "") for name in ("version", "speculative_algorithm"))  # fmt: skip
    about = Generation("SGLang", version, Knowledge.TOTALS, model=model, method=method)
    drafting = bool(method) if "speculative_algorithm" in values else None
    return OpenAIServer(client, about, drafting, {"return_spec_tokens_details": True})


def any_other(client: Client, pages: Pages) -> OpenAIServer | None:
    """Return the server at this address if it lists models as OpenAI's API does."""
    model = _first_model(client, pages)
    if model is None:
        return None
    name = shown(pages("/v1/models").headers.get("server", ""))
    kind = "Ollama" if pages("/").text.startswith("Ollama is") else "OpenAI-compatible"
    return OpenAIServer(client, Generation(kind, name, Knowledge.NONE, model=model))
