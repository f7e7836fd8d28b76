"""Forward passes: code calls `request_pass`, and runs that a runner drives share their passes. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from greenlet import getcurrent, greenlet

from specdemo.engine.clock import ALONE, Cancelled, Sharing, Stopwatch, running

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.cache import RollbackCache
    from specdemo.kernels.plan import Chain, DraftPlan

CATCH_UP_ROWS = 32  # rows without logits in a draft's step: tokens committed since the step before
CHUNK_WORK = 8e9  # weights times rows of a chunk: about 0.15 s on two slow cores
CHUNK_ROWS = (16, 128)  # fewest and most on a CPU, in steps of the first: more exceed the caches
CHUNK_ROWS_GPU = 512
LONG_CONTEXT = 1024  # keys for which attention costs a CPU as much as the matrix products


def chunk_rows(device: str, layers: int, hidden: int, inner: int) -> int:
    """Return the rows of a long text that one pass reads: between two chunks other runs take their steps.

    device: its type; layers: their number; hidden, inner: their sizes
    """
    fewest, most = CHUNK_ROWS
    if device != "cpu":
        return CHUNK_ROWS_GPU
    weights = layers * hidden * (4 * hidden + 3 * inner)
    return max(fewest, min(most, int(CHUNK_WORK / max(1, weights)) // fewest * fewest))


def chunks(start: int, rows: int, most: int) -> list[slice]:
    """Split rows that follow `start` tokens into chunks; no rows give no chunk.

    most: rows of a chunk after a short context; on a CPU, chunks after a long one are smaller
    """
    parts, begin = list[slice](), 0
    fewest = min(CHUNK_ROWS[0], most)
    while begin < rows:
        size, before = most, start + begin
        if before > LONG_CONTEXT and most < CHUNK_ROWS_GPU:
            size = max(fewest, most * LONG_CONTEXT // before // fewest * fewest)
        parts.append(slice(begin, min(begin + size, rows)))
        begin += size
    return parts


@dataclass(frozen=True, slots=True)
class ForwardInput:
    """Rows of one conversation; the pass writes them after the cached text, without counting them.

    positions: of each row in the text
    seen: (rows, keys) bool — row r attends to key k; None if each row sees all before it
    cache: the conversation's own
    answers: number of last rows whose logits are needed
    reads: layers whose hidden states are needed, numbered as in transformers (0 = embedding, the last = after the norm)
    depth: number of first layers to run, without norm and head; None for the whole model
    plan: draft a chain after the rows without returning in between; only for decoders that can
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
    """Results of a pass.

    logits: (answers, V), empty if only some layers ran
    states: (rows, layers x H), of the requested layers side by side, or (rows, H) where only some layers ran; None for none
    chain: the draft, if a plan was given
    sharing: the runs that shared the pass
    """

    logits: Tensor
    states: Tensor | None = None
    chain: Chain | None = None
    sharing: Sharing = ALONE


def all_reads(passes: Sequence[ForwardInput]) -> tuple[int, ...]:
    """Return the layers whose hidden states the passes need, without duplicates."""
    return tuple(dict.fromkeys(layer for one in passes for layer in one.reads))


def of_layers(states: Tensor, layers: Sequence[int], wanted: Sequence[int]) -> Tensor:
    """Return the columns of the layers `wanted`, (rows, wanted x H). states: (rows, layers x H)"""
    if tuple(wanted) == tuple(layers):
        return states
    places = [layers.index(layer) for layer in wanted]
    parts: Tensor = states.unflatten(-1, (len(layers), -1))
    return parts[:, places].flatten(1)


def split_outputs(
    passes: Sequence[ForwardInput],
    logits: Sequence[Tensor],
    layers: Sequence[int],
    states: Tensor | None,
) -> list[ForwardOutput]:
    """Return the outputs of joined passes. logits: of each pass; states: (all rows, layers x H), of `all_reads`"""
    outputs: list[ForwardOutput] = []
    begin = 0
    for one, own in zip(passes, logits, strict=True):
        end = begin + len(one.token_ids)
        rows = None if states is None else of_layers(states[begin:end], layers, one.reads)
        outputs.append(ForwardOutput(own, rows))
        begin = end
    return outputs


class Decoder(Protocol):
    """Weights that any number of conversations share; it stores nothing of any of them.

    config: the model's own, of its text part; chunk: rows of a long text that one pass reads, see `chunk_rows`
    """

    config: Any
    chunk: int

    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Run each pass; a decoder that can joins them."""


@dataclass(slots=True, eq=False)
class ForwardRequest:
    """A pass that a run needs before it can continue.

    drafting: requested by a drafter. Such passes run before any pass of a target, so that runs that draft
        different numbers of tokens still share the target's pass.
    alone: shares no pass with other runs, because their rows could change its bits; see `engine.cost`
    """

    decoder: Decoder
    input: ForwardInput
    drafting: bool = False
    alone: bool = False
    output: ForwardOutput | None = None
    error: BaseException | None = None

    @property
    def done(self) -> bool:
        return self.output is not None or self.error is not None

    @property
    def is_chunk(self) -> bool:
        """Whether the pass reads a chunk of a text, and is no step: a target's step needs logits of every row."""
        unanswered = len(self.input.token_ids) - self.input.answers
        return unanswered > (min(CATCH_UP_ROWS, self.decoder.chunk - 2) if self.drafting else 0)

    def result(self) -> ForwardOutput:
        """Return the output. Raises the error of the pass."""
        if self.error is not None:
            raise self.error
        assert self.output is not None, "the pass has not run"
        return self.output


class RunStack(greenlet):  # type: ignore[misc]  # greenlet has no types
    """The call stack of a run, which leaves it at each pass and continues when the pass has run.

    work: the run
    request: the pass that it waits for

    Closing it raises `Cancelled` where it waits and at each later pass, as a cancelled stage does.
    A stack belongs to the thread that made it. While it waits, other stacks run in that thread, so a pass must not be
    requested inside `torch.inference_mode` or `torch.no_grad`: they belong to the thread, and would apply to the others.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(self._run)
        self._steps = work
        self.request: ForwardRequest | None = None
        self.closed = False

    def _run(self) -> None:
        with suppress(Cancelled):
            if not self.closed:
                self._steps()

    def resume(self) -> bool:
        """Run until the next pass is requested. Returns whether the run continues after it."""
        self.request = None
        self.switch()
        return not self.dead

    def close(self) -> None:
        """End the run where it waits."""
        self.closed = True
        if not self.dead:
            self.resume()

    def wait_for(self, request: ForwardRequest, watch: Stopwatch | None) -> None:
        """Leave the stack until the pass has run; the wait for other runs counts as such."""
        import torch

        assert not torch.is_inference_mode_enabled(), "a pass was requested in inference mode"
        assert self.parent is not None
        requested = time.perf_counter()
        if not self.closed:
            self.request = request
            self.parent.switch()
        if self.closed:
            raise Cancelled
        if watch is not None and request.output is not None:
            watch.count(request.output.sharing, time.perf_counter() - requested)


def request_pass(decoder: Decoder, input: ForwardInput) -> ForwardOutput:
    """Run a pass, which a runner may join with those of other runs. Raises `Cancelled`, and any error of the pass."""
    watch = running()
    request = ForwardRequest(decoder, input)
    if watch is not None:
        if watch.cancelled():
            raise Cancelled
        request.drafting, request.alone = watch.drafting, watch.alone
    stack = getcurrent()
    if isinstance(stack, RunStack):
        stack.wait_for(request, watch)
    else:
        run_together([request])
    return request.result()


def run_together(requests: Sequence[ForwardRequest]) -> None:
    """Run requests of one kind as one pass, and store its outputs or its error in them.

    If a shared pass of drafts fails, each request runs alone, so that only those that fail get an error. A target's pass is not
    repeated, because it may have written a part of its caches.
    """
    started = time.perf_counter()
    try:
        outputs = requests[0].decoder.run([request.input for request in requests])
        rows = sum(len(request.input.token_ids) for request in requests)
        sharing = Sharing(len(requests), rows, time.perf_counter() - started)
        for request, output in zip(requests, outputs, strict=True):
            request.output = ForwardOutput(output.logits, output.states, output.chain, sharing)
    except Exception as error:  # noqa: BLE001 - raised in the run
        for request in requests:
            if len(requests) > 1 and request.drafting:
                run_together([request])
            else:
                request.error = error
