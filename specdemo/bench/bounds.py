"""Two bounds for comparison: the oracle of lookahead policies (modelled), and the floor that memory bandwidth sets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from specdemo.bench.lanes import FLOOR, LaneResult
from specdemo.bench.results import BenchAnswers, Row, Table, as_factor, as_percent
from specdemo.config.strings import JsonView
from specdemo.engine.cost import CostProfile
from specdemo.files.folder import read_config, tensors
from specdemo.models.devices import BYTES_PER_WEIGHT
from specdemo.trace.metrics import Metrics

if TYPE_CHECKING:
    from torch import Tensor

CONSTANT = ":constant:"
BUFFER_BYTES = 1 << 29  # bytes, far more than any cache
READS = 4  # timed reads of the buffer; the fastest counts


def oracle_speedup(measured: BenchAnswers, costs: JsonView) -> float | None:
    """Return the modelled speedup of a policy that drafts exactly the tokens that will be accepted. It is never run.

    The oracle follows the variant of the longest constant lookahead: at each step it drafts only the tokens accepted
    there, so its text is the same and no draft token is rejected. Costs are the measured profile, scaled by the
    time of this prompt's plain steps. If that variant's whole draft was accepted, a longer draft might have been
    accepted too, so the bound is a little low. None without a variant of constant lookahead.
    """
    profile = CostProfile(**costs)
    # A name with more after the number has another verification, and therefore another text.
    constants = [lane for lane in measured.lanes if lane.partition(CONSTANT)[2].isdigit()]
    longest = max(constants, key=lambda lane: int(lane.rpartition(":")[2]), default=None)
    ratios = []
    for pair in (answer.pair for answer in measured.answers if answer.lane == longest):
        metrics, plain = pair.result.metrics, pair.plain.metrics
        if pair.result.repeats or not plain.steps or not plain.tokens_per_second:
            continue
        scale = plain.verify_seconds / plain.steps / profile.verify_seconds(1)
        # The first draft token of a step also pays for reading the committed ones, so the mean of the run is used.
        per_draft = metrics.draft_seconds / max(1, metrics.drafted)
        seconds = sum(
            scale * profile.verify_seconds(1 + count) + count * per_draft
            for count in pair.result.accepted
        )
        ratios.append(metrics.new_tokens / seconds / plain.tokens_per_second)
    return median(ratios) if ratios else None


def policies_table(rows: Sequence[Row], oracle: float | None) -> Table:
    """Compare the speedup of each policy with the best constant lookahead and with the oracle's speedup.

    rows: over all tasks. The table has no rows without a constant lane. The best constant is chosen on these very
    prompts, which is an advantage over the policies.
    """
    rates = {row["lane"]: row["speedup"] for row in rows if row["speedup"] is not None}
    constants = {lane: rate for lane, rate in rates.items() if CONSTANT in lane}
    others = {lane: rate for lane, rate in rates.items() if ":" in lane and lane not in constants}
    columns = ["policy", "speedup", "against the best constant", "of the oracle's"]
    if not constants or not others:
        return Table(columns, [])
    best = max(constants, key=lambda lane: constants[lane])
    shown = {f"{best} (best constant)": constants[best], **others}
    if oracle:
        shown["oracle (modelled)"] = oracle
    body = [
        [
            lane,
            as_factor(rate),
            f"{100 * (rate / constants[best] - 1):+.1f} %",
            as_percent(rate / oracle) if oracle else "-",
        ]
        for lane, rate in shown.items()
    ]
    return Table(columns, body)


def pass_bytes(folder: Path, name: str, precision: str) -> int:
    """Return the bytes of weights that a pass over one row reads; the cache of a short text is small in comparison.

    An embedding is read as a whole only if it is the output head too; otherwise a pass reads one row of it.
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
    """A variant that writes nothing and reports the least time for its tokens: each pass reads every weight once.

    The bandwidth is measured at each prompt, so that the floor follows the load of the machine.
    within: runs a function in the thread that computes, see `engine.runner`
    """

    num_bytes: int
    buffer: Tensor
    tokens: int
    within: Callable[[Callable[[], float]], float]

    def open(self) -> FloorLane:
        """Return the variant itself, which has no state."""
        return self

    def answer(self, _prompt: str) -> LaneResult:
        rate = self.within(lambda: bandwidth(self.buffer))
        seconds = self.tokens * self.num_bytes / rate
        metrics = Metrics(self.tokens, self.tokens, 0, 0, 0, 0, 0.0, seconds, 0.0, seconds, 0.0)
        return LaneResult(FLOOR, metrics, ())

    def close(self) -> None:
        """Do nothing: there is no cache."""


def bandwidth(buffer: Tensor) -> float:
    """Return the bytes per second of reading a large tensor once: the fastest of READS, because noise only slows."""

    def reading_seconds() -> float:
        started = time.perf_counter()
        float(buffer.sum())  # sync: a graphics card has read all of it, too
        return time.perf_counter() - started

    return buffer.nbytes / min(reading_seconds() for _ in range(READS))
