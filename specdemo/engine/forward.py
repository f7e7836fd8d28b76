"""Forward passes as requests: code that needs a pass yields one, and whoever drives the code answers it. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.cache import RollbackCache
    from specdemo.engine.draft_plan import Chain, DraftPlan

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who shared a pass.

    runs, rows: how many, of all together; rows is 0 where nobody counted
    seconds: of the pass
    """

    runs: int = 1
    rows: int = 0
    seconds: float = 0.0


ALONE = Sharing()
CATCHES_UP = 32  # rows without an answer of a draft that goes on: what was committed since
PIECE_WORK = 8e9  # weights times rows of a piece: about 0.15 s for two slow cores
PIECE_ROWS = (16, 128)  # at least and at most, in steps of the first: more leave the caches
PIECE_ON_GPU = 512
REACH = 1024  # keys whose attention takes a CPU as long as a row's products


def piece_rows(device: str, layers: int, hidden: int, inner: int) -> int:
    """Rows of a long text that one pass reads: other runs take their steps between two pieces, and a run can end.

    device: its type; layers: how many; hidden, inner: their sizes
    """
    fewest, most = PIECE_ROWS
    if device != "cpu":
        return PIECE_ON_GPU
    weights = layers * hidden * (4 * hidden + 3 * inner)
    return max(fewest, min(most, int(PIECE_WORK / max(1, weights)) // fewest * fewest))


def pieces(start: int, rows: int, most: int) -> list[slice]:
    """Parts of rows that follow `start` tokens; no part for no rows.

    most: rows of a part at the text's begin; on a CPU there are fewer the more text they look back at
    """
    parts, begin = list[slice](), 0
    fewest = min(PIECE_ROWS[0], most)
    while begin < rows:
        size, before = most, start + begin
        if before > REACH and most < PIECE_ON_GPU:
            size = max(fewest, most * REACH // before // fewest * fewest)
        parts.append(slice(begin, min(begin + size, rows)))
        begin += size
    return parts


@dataclass(frozen=True, slots=True)
class ForwardInput:
    """Rows of one conversation to read at once; they are written after the cached text and not counted.

    positions: of each row in the text
    seen: (rows, keys) bool — row r looks at key k; None where each row sees all before it and nothing was cached
    cache: the conversation's own
    answers: how many of the last rows need logits
    reads: layers whose hidden states are wanted, as transformers counts them (0 = embedding, the last = after the norm)
    depth: how many of the first layers to run, without norm and head; None for the whole model
    plan: draft a chain after the rows without asking in between; only for decoders that can
    """

    token_ids: Sequence[int]
    positions: Sequence[int]
    seen: Tensor | None
    cache: RollbackCache
    answers: int = 1
    reads: Sequence[int] = ()
    depth: int | None = None
    plan: DraftPlan | None = None


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """What a pass gave.

    logits: (answers, V), empty when only some layers ran; states: (rows, H) for each wanted layer
    chain: what was drafted, when a plan was given
    sharing: with whom the pass was shared
    """

    logits: Tensor
    states: tuple[Tensor, ...] = ()
    chain: Chain | None = None
    sharing: Sharing = ALONE


class Decoder(Protocol):
    """Weights that any number of conversations share; keeps nothing of any of them.

    config: the model's own, of its text part; piece: rows of a long text that one pass reads, see `piece_rows`
    """

    config: Any
    piece: int

    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Answer each pass; a decoder that can joins them."""


class ForwardRequest:
    """A pass that a run needs before it can go on; whoever drives the run answers it.

    drafting: asked for by a drafter. Such passes are answered before any of a target's, so that runs that draft
        different numbers of tokens still come together for the target's pass; the loop sets it.
    alone: shares no pass with other runs, since its bits could depend on theirs; see `engine.exactness`
    """

    __slots__ = ("alone", "decoder", "drafting", "error", "input", "output")

    def __init__(self, decoder: Decoder, input: ForwardInput) -> None:
        self.decoder = decoder
        self.input = input
        self.output: ForwardOutput | None = None
        self.error: BaseException | None = None
        self.drafting = False
        self.alone = False

    @property
    def done(self) -> bool:
        """Whether it has been answered."""
        return self.output is not None or self.error is not None

    @property
    def is_piece(self) -> bool:
        """Whether it reads a piece of a text, and is no step: a target's step wants an answer to every row."""
        unanswered = len(self.input.token_ids) - self.input.answers
        return unanswered > (min(CATCHES_UP, self.decoder.piece - 2) if self.drafting else 0)

    @property
    def sharing(self) -> Sharing:
        """Who shared the pass, once it has been answered."""
        return self.output.sharing if self.output else ALONE

    def result(self) -> ForwardOutput:
        """The answer. Raises what broke the pass."""
        if self.error is not None:
            raise self.error
        assert self.output is not None, "nobody has answered"
        return self.output


Requesting = Generator[ForwardRequest, None, Result]
"""Work that yields the passes it needs and returns its result: `result = yield from work`."""


def asked(request: ForwardRequest) -> Requesting[ForwardOutput]:
    """Ask for one pass."""
    yield request
    return request.result()


def immediate(
    work: Callable[Arguments, Result],
) -> Callable[Arguments, Requesting[Result]]:
    """Make a plain function one that may ask for passes, and asks for none.

    @immediate
    def propose(self, committed: Sequence[int], budget: int) -> Proposal: ...
    """

    @wraps(work)
    def asking(*arguments: Arguments.args, **options: Arguments.kwargs) -> Requesting[Result]:
        return work(*arguments, **options)
        yield  # makes this a generator

    return asking


def answered(work: Requesting[Result]) -> Result:
    """Do work that may ask for passes, answering each alone and at once."""
    while True:
        try:
            request = next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer_together([request])


def answer_together(requests: Sequence[ForwardRequest]) -> None:
    """Answer requests of one kind in one pass; what breaks it is kept with each of them."""
    begun = time.perf_counter()
    try:
        outputs = requests[0].decoder.run([request.input for request in requests])
        rows = sum(len(request.input.token_ids) for request in requests)
        sharing = Sharing(len(requests), rows, time.perf_counter() - begun)
        for request, output in zip(requests, outputs, strict=True):
            request.output = ForwardOutput(output.logits, output.states, output.chain, sharing)
    except Exception as error:  # noqa: BLE001 - raised in each of the runs
        for request in requests:
            request.error = error
