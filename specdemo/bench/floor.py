"""The physical floor of plain decoding: a pass must read every weight once, and memory is only so fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.bench.lanes import FLOOR, LaneResult
from specdemo.files.folder import read_config, tensors
from specdemo.models.memory import BYTES_PER_WEIGHT
from specdemo.trace.metrics import Metrics

if TYPE_CHECKING:
    from torch import Tensor

BYTES = 1 << 29  # far more than any cache holds
TIMES = 4


def pass_bytes(folder: Path, name: str, precision: str) -> int:
    """Bytes of weights that a pass over one row reads; the cache of a short text is small beside them.

    An embedding is read whole only where it is the output head too; of the other kind a pass reads one row.
    """
    tied = bool(read_config(folder, name).get("tie_word_embeddings"))
    plain, rate = (4.0 if precision == "fp32" else 2.0), BYTES_PER_WEIGHT[precision]
    return int(
        sum(
            count * (rate if quantised else plain)
            for key, count, quantised in tensors(folder, name)
            if tied or "embed" not in key
        )
    )


@dataclass(frozen=True, slots=True)
class FloorLane:
    """Writes nothing, and reports how long it must have taken: as many tokens as were asked for, one a pass.

    Memory is measured anew at each prompt, so that the floor sinks and rises with the machine.

    within: does something in the thread that computes, see `engine.runner`
    """

    num_bytes: int
    buffer: Tensor
    tokens: int
    within: Callable[[Callable[[], Any]], Any]

    @classmethod
    def on(
        cls,
        device: str,
        num_bytes: int,
        tokens: int,
        within: Callable[[Callable[[], Any]], Any] = lambda work: work(),
    ) -> FloorLane:
        """A floor for the memory of a device."""
        import torch

        buffer = within(lambda: torch.ones(BYTES // 4, device=device))
        return cls(num_bytes, buffer, tokens, within)

    def open(self) -> FloorLane:
        """Itself: it remembers nothing."""
        return self

    def answer(self, _prompt: str) -> LaneResult:
        """The fewest seconds for the tokens."""
        rate = self.within(lambda: bandwidth(self.buffer))
        seconds = self.tokens * self.num_bytes / rate
        metrics = Metrics(self.tokens, self.tokens, 0, 0, 0, 0, 0.0, seconds, 0.0, seconds, 0.0)
        return LaneResult(FLOOR, metrics, ())

    def close(self) -> None:
        """Nothing to free."""


def bandwidth(buffer: Tensor) -> float:
    """Bytes a second of reading a large tensor once, the best of several times: noise only slows."""
    return buffer.nbytes / min(_reading_seconds(buffer) for _ in range(TIMES))


def _reading_seconds(buffer: Tensor) -> float:
    begun = time.perf_counter()
    float(buffer.sum())  # sync: also a graphics card has read all of it by now
    return time.perf_counter() - begun
