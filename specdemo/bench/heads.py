"""What a smaller output head is worth and costs: its size, the time of a pass with it, and how far its words move."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from specdemo.bench.report import aligned
from specdemo.bench.suite import Item
from specdemo.config.errors import UserError
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.session.machine import machine_name
from specdemo.session.text import encode_conversation

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.forward import Decoder
    from specdemo.models.decoders.heads import Divergence
    from specdemo.models.loading import LoadedModel
    from specdemo.models.pair import LoadedPair

BITS = (16, 8, 4)
ROWS = (1, 5)  # of timed passes
CONTEXT = 200  # tokens before them
COLUMNS = (
    "head", "MB", *(f"a pass over {rows}" for rows in ROWS),
    "KL divergence (nats)", "total variation", "same likeliest token",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Head:
    """One head. seconds: medians of a pass over each of ROWS; divergence: from the bfloat16 head"""

    bits: int
    num_bytes: int
    seconds: tuple[float, ...]
    divergence: Divergence

    def row(self) -> list[str]:
        """Its line of the table."""
        one = self.divergence
        return [
            f"{self.bits} bits", f"{self.num_bytes / 1e6:.0f}",
            *(f"{1e3 * seconds:.1f} ms" for seconds in self.seconds),
            f"{one.kl:.2g}", f"{100 * one.variation:.2f} %", f"{100 * one.same:.1f} %",
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeadResult:
    """What was measured, on which model and machine."""

    model: str
    machine: str
    heads: tuple[Head, ...]

    @property
    def rows_compared(self) -> int:
        """Tokens at which distributions were compared."""
        return self.heads[0].divergence.rows

    def table(self) -> str:
        """Markdown."""
        return aligned(COLUMNS, [head.row() for head in self.heads])

    def to_dict(self) -> dict[str, Any]:
        """A file of measurements as the documents read it."""
        return {
            "title": f"The output head of {self.model} in 16, 8 and 4 bits",
            "machine": self.machine,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "about": f"Distributions at {self.rows_compared} tokens of greedy answers, against the head in bfloat16; "
            f"medians of passes after {CONTEXT} tokens, the heads in turn.",
            "tables": [{"columns": list(COLUMNS), "rows": [head.row() for head in self.heads]}],
        }


def measure_heads(
    pair: LoadedPair,
    items: Sequence[Item],
    tokens: int,
    repeat: int,
    report: ProgressCallback = silent,
    model: LoadedModel | None = None,
) -> HeadResult:
    """Compare the heads on the first turns of prompts and greedy answers. Raises UserError where the head is the module's own.

    model: whose head, and whose answers; the pair's target by default
    """
    import torch

    from specdemo.models.decoders.compiled import CompiledDecoder
    from specdemo.models.decoders.graphs import GraphDecoder
    from specdemo.models.decoders.heads import (
        divergence,
        exact,
        head_matrix,
        logits_of,
        mean,
        measured,
    )
    from specdemo.models.decoders.lean import LeanDecoder
    from specdemo.models.decoders.operators import pack
    from specdemo.models.decoders.packed import coding_of
    from specdemo.models.decoders.small_heads import SmallHead

    model = model or pair.target
    decoder = model.decoder
    weight: Any = model.model.get_output_embeddings().weight if model.model else None
    found: dict[int, list[Divergence]] = {bits: [] for bits in BITS}
    sizes: dict[int, int] = {}
    decoders: dict[int, Decoder] = {}
    apart: dict[int, Callable[[Tensor], Divergence]] = {}
    for bits in BITS:
        report(Progress("pack", None, f"head of {bits} bits"))
        if isinstance(decoder, CompiledDecoder):
            coding = coding_of(model.model)
            compiled = decoder.with_head(head_matrix(weight, bits, coding))
            parts = [
                part for part in (compiled.head.codes, compiled.head.scales) if part is not None
            ]
            sizes[bits] = sum(part.nbytes for part in parts)
            decoders[bits] = compiled
            apart[bits] = partial(measured, weight=weight, made=compiled.head, coding=coding)
        elif isinstance(decoder, (LeanDecoder, GraphDecoder)):
            small = pack(weight) if bits == 16 else SmallHead(weight, bits)
            sizes[bits] = small.nbytes if isinstance(small, SmallHead) else weight.nbytes
            decoders[bits] = decoder.with_head(small)
            apart[bits] = lambda states, small=small: divergence(  # type: ignore[misc]
                small(states).float(), logits_of(states, exact(weight))
            )
        else:
            raise UserError("bench.heads_unsupported", name=model.info.name)
    with torch.inference_mode():
        for number, item in enumerate(items):
            report(Progress("compare", number / len(items), item.name))
            messages = [{"role": "user", "content": item.turns[0]}]
            prompt = encode_conversation(pair.tokenizer, messages, pair.context)
            states = _answer_states(decoder, prompt, tokens, pair.stop_ids())
            for bits in BITS:
                found[bits].append(apart[bits](states))
        seconds = _times(decoders, repeat, report)
    heads = [Head(bits, sizes[bits], seconds[bits], mean(found[bits])) for bits in BITS]
    return HeadResult(model.info.name, machine_name(), tuple(heads))


def _answer_states(
    decoder: Decoder, prompt: Sequence[int], tokens: int, stop_ids: frozenset[int]
) -> Tensor:
    """What the head reads before each token of a greedy answer, (tokens, hidden)."""
    from specdemo.models.decoders.heads import states_of

    target, text = CachedModel(decoder), list(prompt)
    target.read(text[:-1])
    while len(text) < len(prompt) + tokens:
        logits = target.forward(text[-1], Proposal.chain([])).logits[0]
        target.keep([])
        text.append(int(logits.argmax()))
        if text[-1] in stop_ids:
            break
    return states_of(decoder, text[:-1])[len(prompt) - 1 :]


def _times(
    decoders: Mapping[int, Decoder], repeat: int, report: ProgressCallback
) -> dict[int, tuple[float, ...]]:
    """Median seconds of a pass over each of ROWS, the heads in turn."""
    targets = {bits: CachedModel(decoder) for bits, decoder in decoders.items()}
    vocabulary = next(iter(decoders.values())).config.vocab_size
    text = [7919 * place % vocabulary for place in range(CONTEXT + max(ROWS))]
    for target in targets.values():
        target.read(text[:CONTEXT])
    spent: dict[tuple[int, int], list[float]] = {}
    for turn in range(repeat + 1):
        report(Progress("time", turn / (repeat + 1), f"pass {turn}"))
        for rows in ROWS:
            for bits, target in targets.items():
                chain = Proposal.chain(text[CONTEXT + 1 : CONTEXT + rows])
                begun = time.perf_counter()
                float(target.forward(text[CONTEXT], chain).logits[0, 0])  # sync: a GPU is done
                spent.setdefault((bits, rows), []).append(time.perf_counter() - begun)
    return {
        bits: tuple(statistics.median(spent[bits, rows][1:]) for rows in ROWS) for bits in decoders
    }
