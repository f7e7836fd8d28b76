"""The output head in 16, 8 or 4 bits: how it is made, and how far its words are from those of the head in bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdemo.engine.cache import RollbackCache
from specdemo.engine.passes import Decoder, ForwardInput
from specdemo.kernels import packing
from specdemo.kernels.packing import Packed
from specdemo.models.decoders.packed import Coding, PackedStack
from specdemo.models.memory import leave_to_file

AUTO = "auto"
MOST_VARIATION = (
    0.01  # total variation to the bfloat16 head, the mean of all rows, that `auto` takes
)
MOST_KL = 0.001  # nats, the same
SAMPLE_ROWS = 96
SAMPLE = """\
The lighthouse had been dark for eleven years when Mara climbed its stairs with a lamp and a bag of bread. "Who sent you?" asked the
old keeper. She set the lamp down and said that nobody had.

def mean(values: list[float]) -> float:
    \"\"\"The average; 0 for none.\"\"\"
    return sum(values) / len(values) if values else 0.0

Zum Frühstück gibt es Brot, Käse und Tee; danach gehen wir zum Hafen. 17 + 25 = 42, and 42 * 3 = 126.
"""
SLICE = 8192  # rows of a head whose values are there at a time


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far a head's distributions are from the bfloat16 head's on a text, means of all rows.

    kl: nats, of the head's from the bfloat16 head's; variation: total variation, 0 to 1
    same: share of rows with the same likeliest token
    """

    rows: int
    kl: float
    variation: float
    same: float

    @property
    def small(self) -> bool:
        """Whether `auto` takes such a head."""
        return self.variation <= MOST_VARIATION and self.kl <= MOST_KL


def head_matrix(weight: Tensor, bits: int, coding: Coding) -> Tensor | Packed:
    """A head as `CompiledLayers` takes it. weight: (V, hidden) bfloat16; coding: of the layers"""
    if bits == 16:
        return weight
    return packing.whole_numbers(weight) if bits == 8 else _in_nf4(weight, coding)


def _in_nf4(weight: Tensor, coding: Coding) -> Packed:
    from bitsandbytes.functional import quantize_4bit

    codes = torch.empty(
        len(weight) // packing.BLOCK, weight.shape[1] // 2, packing.BLOCK, dtype=torch.uint8
    )
    scales = torch.empty(len(codes), weight.shape[1] // coding.block, packing.BLOCK)
    at = 0
    for rows in weight.detach().split(SLICE):
        pairs, state = quantize_4bit(rows.contiguous(), blocksize=coding.block, quant_type="nf4")
        end = at + len(rows) // packing.BLOCK
        codes[at:end] = packing.lay_pairs(pairs.view(len(rows), -1))
        steps = state.absmax.view(len(rows), -1) * coding.unit
        scales[at:end] = packing.in_blocks(steps.t())
        at = end
    return Packed(codes, scales)


def exact(weight: Tensor) -> Iterator[Tensor]:
    """The head that others are compared with, (rows, hidden) float32 at a time. weight: (V, hidden) bfloat16"""
    for rows in weight.split(SLICE):
        yield rows.float()
        leave_to_file(rows)


def values(weight: Tensor, made: Packed, coding: Coding) -> Iterator[Tensor]:
    """What a head means that was made from a weight, as `exact`."""
    for first in range(0, len(weight), SLICE):
        last = min(first + SLICE, len(weight))
        if made.bits == 4:
            yield PackedStack(made, coding).rows(first, last, torch.float32)
        elif made.scales is None:  # the same numbers in another order
            yield weight[first:last].float()
        else:
            yield packing.from_whole_numbers(made, first, last)


def logits_of(states: Tensor, parts: Iterator[Tensor]) -> Tensor:
    """(rows, V) float32. states: (rows, hidden), after the last norm; parts: from `values`"""
    x = states.float()
    return torch.cat([x @ part.t() for part in parts], dim=-1)


def divergence(found: Tensor, wanted: Tensor) -> Divergence:
    """How far logits are from those of the bfloat16 head. found, wanted: (rows, V) float32"""
    kl = variation = 0.0
    for row, right in zip(found, wanted, strict=True):
        log_probs, log_right = row.log_softmax(-1), right.log_softmax(-1)
        probs = log_right.exp()
        kl += float((probs * (log_right - log_probs)).sum())
        variation += 0.5 * float((probs - log_probs.exp()).abs().sum())
    rows = len(wanted)
    same = float((found.argmax(-1) == wanted.argmax(-1)).double().mean())
    return Divergence(rows, max(kl / rows, 0.0), variation / rows, same)


def measured(states: Tensor, weight: Tensor, made: Packed, coding: Coding) -> Divergence:
    """How far the words of a head are from those of the bfloat16 head, with the same states before both.

    states: (rows, hidden), after the last norm; weight: (V, hidden) bfloat16, that the head was made from
    """
    wanted = logits_of(states, exact(weight))
    return divergence(logits_of(states, values(weight, made, coding)), wanted)


def mean(parts: Sequence[Divergence]) -> Divergence:
    """The divergence on several texts together."""
    rows = sum(one.rows for one in parts)
    kl, variation, same = (
        sum(getattr(one, name) * one.rows for one in parts) / rows
        for name in ("kl", "variation", "same")
    )
    return Divergence(rows, kl, variation, same)


def states_of(decoder: Decoder, token_ids: Sequence[int]) -> Tensor:
    """What the head reads of each token of a text, (rows, hidden)."""
    last = decoder.config.num_hidden_layers
    seen, cache = None, RollbackCache(last)
    rows = ForwardInput(token_ids, range(len(token_ids)), seen, cache, reads=(last,))
    return decoder.run([rows])[0].states[0]


@dataclass(frozen=True, slots=True)
class HeadChoice:
    """Which head is wanted.

    bits: auto, 16, 8 or 4
    sample: gives token ids of a text on which `auto` measures; without one it takes 16 bits
    """

    bits: str = AUTO
    sample: Callable[[], Sequence[int]] | None = None
