"""llama-server of llama.cpp: the numbers of each token's chunk give the rounds exactly.

All tokens of a round carry the same `predicted_ms`, `draft_n` and `draft_n_accepted`, which are sums since the start. The
first token comes from the pass that read the prompt. A token whose text is held back, as part of a character or of a stop
word, has no chunk: `predicted_n` counts it, so it is a piece without an id.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import AliasPath, Field, TypeAdapter, ValidationError

from specdemo.attach.client import Client, Foreign, Milliseconds, shown
from specdemo.attach.records import MOST_DRAFTED
from specdemo.attach.servers import Generation, Pages, Part, Piece, Request, Round, Server
from specdemo.config.errors import UserError
from specdemo.config.strings import Json
from specdemo.trace.events import Count, Knowledge

FINISH = {"limit": "length", "eos": "stop", "word": "stop"}


class Timings(Foreign):
    """Sums since the start of an answer, which llama-server reports with each chunk."""

    predicted_n: Count
    predicted_ms: Milliseconds
    draft_n: Count = 0
    draft_n_accepted: Count = 0
    prompt_n: Count = 0
    cache_n: Count = 0
    prompt_ms: Milliseconds | None = None


class Slot(Foreign):
    """A slot of llama-server, which answers one request at a time. n_ctx: tokens of its context, 0 if unknown"""

    speculative: bool
    n_ctx: int = 0
    is_processing: bool = False


SLOTS = TypeAdapter(tuple[Slot, ...])


class Chunk(Foreign):
    """One chunk of a stream. Those without timings report the progress of the prompt."""

    content: str = ""
    tokens: tuple[Count, ...] = ()
    stop: bool = False
    stop_type: str = ""
    timings: Timings | None = None
    method: object = Field("", validation_alias=AliasPath("generation_settings", "speculative.types"))  # fmt: skip


def detect(client: Client, pages: Pages) -> LlamaServer | None:
    """Return the llama-server at this address, also one behind a proxy; None if it is another program's."""
    props = pages("/props")
    settings = props.values.get("default_generation_settings")
    named = props.headers.get("server") == "llama.cpp"
    if not named and not isinstance(settings, dict):
        return None
    if props.status in (401, 403):
        raise UserError("attach.key", url=client.url)
    if pages("/health").status == 503:
        raise UserError("attach.loading", url=client.url)
    path = shown(props.values.get("model_path", ""))
    model = path.replace("\\", "/").rsplit("/", 1)[-1]
    version = shown(props.values.get("build_info", ""))
    about = Generation("llama-server", version, Knowledge.EXACT, model=model)
    # The slots report whether they draft; `/props` is wrong about it.
    drafts = [one.speculative for one in LlamaServer(client, about).slots()]
    return LlamaServer(client, about, any(drafts) if drafts else None)


@dataclass(frozen=True, slots=True)
class LlamaServer(Server):
    """A llama-server of llama.cpp."""

    def slots(self) -> tuple[Slot, ...]:
        """Return the slots; none if the server does not report them."""
        try:
            return SLOTS.validate_python(self.client.get("/slots").value)
        except ValidationError:
            return ()

    def prompt(self, request: Request) -> str:
        """Return the messages in the server's own chat template."""
        values = self.client.post("/apply-template", {"messages": list(request.messages)})
        prompt = values.get("prompt")
        if not isinstance(prompt, str):
            raise UserError("attach.not_json", url=self.client.url, path="/apply-template")
        return prompt

    def stream(self, request: Request, cancel: threading.Event) -> Iterator[Part]:
        prompt = self.prompt(request)
        drawn = request.sampling
        body = {
            "prompt": prompt,
            "n_predict": request.max_new_tokens,
            "stream": True,
            "timings_per_token": True,
            "return_tokens": True,
            "temperature": drawn.temperature,
            "top_k": drawn.top_k,
            "top_p": drawn.top_p,
            "min_p": 0.0,
            "repeat_penalty": drawn.repetition_penalty,
            "seed": drawn.seed,
        }
        reader = RoundReader(replace(self.about, prompt=prompt), self.client.url, request.max_new_tokens + MOST_DRAFTED)  # fmt: skip
        for chunk in self.client.stream("/completion", body, cancel):
            yield from reader.read(chunk)
            if reader.ended:
                return
        if not cancel.is_set():
            raise UserError("attach.died", url=self.client.url)
        yield from reader.cancelled()


class RoundReader:
    """Builds the rounds of one stream from its chunks, in order.

    Numbers that change announce a round: its drafted and accepted tokens and its time. The tokens that follow fill it.
    """

    def __init__(self, about: Generation, url: str, most: int = MOST_DRAFTED**2) -> None:
        """Start before the first chunk. most: largest number of tokens; a server that sends more of them contradicts itself"""
        self.ended = False
        self._most = most
        self._url = url
        self._whole = about
        self._begun = False
        self._rounds: list[Round] = []
        self._announced: list[Round] = []  # without their tokens
        self._pieces: list[Piece] = []  # tokens of the first of them
        self._numbers = (0.0, 0, 0)  # seconds, drafted and accepted tokens at the newest chunk
        self._seen = 0
        self._unsure = False  # whether texts of whole rounds were held back

    def read(self, values: Json) -> Iterator[Part]:
        """Yield what a chunk completes. Raises UserError for a chunk that contradicts the ones before."""
        try:
            chunk = Chunk.model_validate(values)
        except ValidationError:
            raise UserError("attach.malformed", url=self._url, line=shown(values)) from None
        self.ended = chunk.stop
        if chunk.timings:
            yield from self._tokens(chunk, chunk.timings)
        if chunk.stop:
            yield from self._end(chunk)

    def cancelled(self) -> Iterator[Part]:
        """Yield the rounds of a stream that was cancelled."""
        yield from self._cut()
        yield replace(self._whole, rounds=tuple(self._rounds), finish="cancelled")

    def _tokens(self, chunk: Chunk, timings: Timings) -> Iterator[Part]:
        hidden = timings.predicted_n - self._seen - len(chunk.tokens)
        if not 0 <= hidden <= 2 * MOST_DRAFTED or timings.predicted_n > self._most:
            raise UserError("attach.contradiction", url=self._url)
        self._seen = timings.predicted_n
        pieces = [*[Piece("")] * hidden, *(Piece("", one) for one in chunk.tokens)]
        if pieces:
            pieces[-1] = Piece(chunk.content, pieces[-1].token_id)
        numbers = timings.predicted_ms, timings.draft_n, timings.draft_n_accepted
        if not self._begun:
            yield self._begin(timings, pieces[:1])
            pieces = pieces[1:]
            self._numbers = self._numbers if pieces else numbers
        if pieces:
            yield from self._add(pieces, numbers)

    def _begin(self, timings: Timings, pieces: list[Piece]) -> Generation:
        self._begun = True
        self._whole = replace(
            self._whole,
            first=tuple(pieces),
            prompt_tokens=timings.prompt_n + timings.cache_n,
            cached_tokens=timings.cache_n,
            prefill_seconds=timings.prompt_ms,
        )
        return self._whole

    def _add(self, pieces: list[Piece], numbers: tuple[float, int, int]) -> Iterator[Part]:
        """Yield the rounds that these tokens complete."""
        missing = sum((one.accepted or 0) + 1 for one in self._announced) - len(self._pieces)
        hidden = sum(one.token_id is None for one in pieces)
        fills = hidden == len(pieces) <= missing and numbers[1:] == self._numbers[1:]
        if numbers != self._numbers and not fills:
            spent, drafted, accepted = (
                new - old for new, old in zip(numbers, self._numbers, strict=True)
            )
            possible = 0 <= accepted <= drafted <= MOST_DRAFTED and spent >= 0
            if not possible or missing > hidden:
                raise UserError("attach.contradiction", url=self._url)
            self._numbers, self._unsure = numbers, hidden > missing
            count = 1 if drafted else max(1, len(pieces) - missing)
            self._announced += [Round((), int(drafted), int(accepted), spent / count)] * count
        self._pieces += pieces
        while self._announced and len(self._pieces) > (self._announced[0].accepted or 0):
            yield self._commit((self._announced[0].accepted or 0) + 1)
        if self._pieces and not self._announced and not self._unsure:
            raise UserError("attach.contradiction", url=self._url)
        # Texts of whole rounds were held back: their sums are known, which tokens belonged to which round is not.
        while self._pieces and not self._announced:
            self._announced.append(Round((), 0, 0, 0.0))
            yield self._commit(1)

    def _commit(self, count: int) -> Round:
        """Give the first announced round its tokens."""
        done = replace(self._announced.pop(0), committed=tuple(self._pieces[:count]))
        del self._pieces[:count]
        self._rounds.append(done)
        return done

    def _cut(self) -> Iterator[Part]:
        """Yield the last round with the tokens that came."""
        if self._pieces and self._announced:
            yield self._commit(len(self._pieces))

    def _end(self, chunk: Chunk) -> Iterator[Part]:
        yield from self._cut()
        timings = chunk.timings or Timings(predicted_n=0, predicted_ms=0)
        if not self._begun:
            yield self._begin(timings, [])
        found = replace(
            self._whole,
            rounds=tuple(self._rounds),
            decode_seconds=timings.predicted_ms,
            finish=FINISH.get(chunk.stop_type, ""),
            drafted=timings.draft_n,
            accepted=timings.draft_n_accepted,
            method=shown(chunk.method),
        )
        if found.contradictory:
            raise UserError("attach.contradiction", url=self._url)
        yield found
