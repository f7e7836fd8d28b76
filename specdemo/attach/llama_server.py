"""llama-server of llama.cpp: the numbers of each token's chunk give the rounds exactly.

All tokens of a round carry the same `predicted_ms`, `draft_n` and `draft_n_accepted`, which are sums since the start. The
first token comes from the pass that read the prompt. A token whose text is held back, as part of a character or of a stop
word, has no chunk: `predicted_n` counts it, so it is a piece without an id.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

from specdemo.attach.client import Client, seconds_of, whole
from specdemo.attach.records import MOST_DRAFTED
from specdemo.attach.rounds import Generation, Knowledge, Piece, Round
from specdemo.attach.servers import Pages, Part, Request
from specdemo.config.errors import UserError
from specdemo.config.strings import Json

FINISH = {"limit": "length", "eos": "stop", "word": "stop"}


def detect(client: Client, pages: Pages) -> LlamaServer | None:
    """Return the llama-server at this address, also one behind a proxy; None if it is another program's."""
    props = pages["/props"]
    settings = props.values.get("default_generation_settings")
    named = props.headers.get("server") == "llama.cpp"
    if not named and not isinstance(settings, dict):
        return None
    if props.status in (401, 403):
        raise UserError("attach.key", url=client.url)
    if pages["/health"].status == 503:
        raise UserError("attach.loading", url=client.url)
    model = str(props.values.get("model_path", "")).replace("\\", "/").rsplit("/", 1)[-1]
    version = str(props.values.get("build_info", ""))
    about = Generation("llama-server", version[:60], Knowledge.EXACT, model=model[:200])
    # The slots report whether they draft; `/props` is wrong about it.
    slots = pages["/slots"].text.replace(" ", "")
    drafting = '"speculative":true' in slots if '"speculative":' in slots else None
    return LlamaServer(client, about, drafting)


@dataclass(frozen=True, slots=True)
class LlamaServer:
    """A llama-server, see `Server`."""

    client: Client
    about: Generation
    drafting: bool | None

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
        reader = RoundReader(replace(self.about, prompt=prompt), self.client.url)
        for chunk in self.client.stream("/completion", body, cancel):
            yield from reader.read(chunk)
            if reader.ended:
                return
        if not cancel.is_set():
            raise UserError("attach.died", url=self.client.url)
        yield from reader.cancelled()


class RoundReader:
    """Builds the rounds of one stream from its chunks, in order."""

    def __init__(self, about: Generation, url: str) -> None:
        self.ended = False
        self._url = url
        self._whole = about
        self._begun = False
        self._rounds: list[Round] = []
        self._open: list[Piece] | None = None  # tokens of the round that has not ended
        self._drafted = self._accepted = 0  # in the open round
        self._sums = (0, 0)
        self._key: tuple[object, ...] = ()
        self._milliseconds = self._since = (
            0.0  # at the newest chunk, and when the open round started
        )
        self._seen = 0
        self._unsure = (
            False  # whether the open round may be several, since texts at its start were held back
        )

    def read(self, chunk: Json) -> Iterator[Part]:
        """Yield what a chunk completes. Raises UserError for a chunk that contradicts the ones before."""
        timings = chunk.get("timings")
        if chunk.get("stop") is True:
            yield from self._end(chunk, timings if isinstance(timings, dict) else {})
        elif isinstance(timings, dict):  # others report the progress of the prompt
            yield from self._tokens(chunk, timings)

    def cancelled(self) -> Iterator[Part]:
        """Yield the rounds of a stream that was cancelled."""
        yield from self._close()
        yield replace(self._whole, rounds=tuple(self._rounds), finish="cancelled")

    def _tokens(self, chunk: Json, timings: Json) -> Iterator[Part]:
        count = whole(timings.get("predicted_n"))
        seconds = seconds_of(timings.get("predicted_ms"))
        sums = (whole(timings.get("draft_n"), 0), whole(timings.get("draft_n_accepted"), 0))
        tokens = chunk.get("tokens", [])
        usable = isinstance(tokens, list) and all(whole(one) is not None for one in tokens)
        if count is None or seconds is None or not usable or None in sums:
            raise UserError("attach.malformed", url=self._url, line=str(chunk)[:120])
        hidden = count - self._seen - len(tokens)
        if not 0 <= hidden <= 2 * MOST_DRAFTED or count > MOST_DRAFTED**2:
            raise UserError("attach.contradiction", url=self._url)
        self._seen = count
        pieces = [*[Piece("")] * hidden, *(Piece("", one) for one in tokens)]
        if pieces:
            pieces[-1] = Piece(str(chunk.get("content", "")), pieces[-1].token_id)
        if not self._begun:
            yield from self._begin(timings, pieces[:1])
            if not pieces[1:]:
                self._milliseconds, self._key = seconds, (seconds, *sums)
                return
            pieces = pieces[1:]
        yield from self._add(pieces, seconds, (sums[0] or 0, sums[1] or 0))

    def _add(self, pieces: list[Piece], seconds: float, sums: tuple[int, int]) -> Iterator[Part]:
        """Add tokens to the open round, or to a new one if their numbers are others."""
        if (seconds, *sums) != self._key:
            while (
                self._open is not None and self._room > 0 and pieces and pieces[0].token_id is None
            ):
                self._open.append(pieces.pop(0))
            if not pieces and sums == self._sums:
                return
            yield from self._close()
            self._start(seconds, sums)
            self._unsure = bool(pieces) and pieces[0].token_id is None
        if self._open is None:
            raise UserError("attach.contradiction", url=self._url)
        self._key = (seconds, *sums)
        self._open += pieces
        if self._room < 0 and not self._unsure:
            raise UserError("attach.contradiction", url=self._url)
        if self._room == 0 and not self._unsure:
            yield from self._close()

    @property
    def _room(self) -> int:
        return self._accepted + 1 - len(self._open or ())

    def _begin(self, timings: Json, pieces: list[Piece]) -> Iterator[Part]:
        self._begun = True
        cached = whole(timings.get("cache_n"), 0) or 0
        self._whole = replace(
            self._whole,
            first=tuple(pieces),
            prompt_tokens=(whole(timings.get("prompt_n"), 0) or 0) + cached,
            cached_tokens=cached,
            prefill_seconds=seconds_of(timings.get("prompt_ms")),
        )
        yield self._whole

    def _start(self, seconds: float, sums: tuple[int, int]) -> None:
        self._drafted, self._accepted = sums[0] - self._sums[0], sums[1] - self._sums[1]
        if not 0 <= self._accepted <= self._drafted <= MOST_DRAFTED or seconds < self._milliseconds:
            raise UserError("attach.contradiction", url=self._url)
        self._sums, self._open = sums, []
        self._since, self._milliseconds = self._milliseconds, seconds

    def _close(self) -> Iterator[Part]:
        """Yield the open round, if there is one."""
        if self._open is None:
            return
        took, pieces, accepted = self._milliseconds - self._since, self._open, self._accepted
        self._open = None
        more = max(0, len(pieces) - accepted - 1)
        parts = [pieces[: accepted + 1], *([one] for one in pieces[accepted + 1 :])]
        # Texts of whole rounds were held back: their sums are known, which tokens belonged to which round is not.
        times = [took / len(parts)] * len(parts) if not self._drafted else [took, *[0.0] * more]
        for part, seconds in zip(parts, times, strict=True):
            done = Round(tuple(part), self._drafted, self._accepted, seconds)
            self._drafted = self._accepted = 0
            self._rounds.append(done)
            yield done

    def _end(self, chunk: Json, timings: Json) -> Iterator[Part]:
        self.ended = True
        if not self._begun:
            yield from self._begin(timings, [])
            self._milliseconds = seconds_of(timings.get("predicted_ms")) or 0.0
        rest = (whole(timings.get("predicted_n"), self._seen) or 0) - self._seen
        sums = (
            whole(timings.get("draft_n"), 0) or 0,
            whole(timings.get("draft_n_accepted"), 0) or 0,
        )
        if 0 < rest <= MOST_DRAFTED:  # a stop word held their texts back
            seconds = seconds_of(timings.get("predicted_ms")) or self._milliseconds
            yield from self._add([Piece("")] * rest, seconds, sums)
        yield from self._close()
        method = chunk.get("generation_settings", {})
        named = method.get("speculative.types", "") if isinstance(method, dict) else ""
        found = replace(
            self._whole,
            rounds=tuple(self._rounds),
            decode_seconds=seconds_of(timings.get("predicted_ms")),
            finish=FINISH.get(str(chunk.get("stop_type")), ""),
            drafted=sums[0],
            accepted=sums[1],
            method=str(named)[:60],
        )
        if found.mismatches():
            raise UserError("attach.contradiction", url=self._url)
        yield found
