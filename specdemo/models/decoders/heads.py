"""The output head in 8 bits, and how far its distributions differ from those of the head in bfloat16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specdemo.engine.cache import RollbackCache
from specdemo.engine.passes import Decoder, ForwardInput
from specdemo.kernels.packing import BLOCK_OUTPUTS
from specdemo.kernels.runtime import Matrix
from specdemo.models.memory import leave_to_file

AUTO_HEAD = "auto"
MAX_VARIATION = 0.01  # mean total variation up to which `auto` uses an 8-bit head
MAX_KL = 0.001  # nats, mean KL divergence up to which it does
SAMPLE_ROWS = 96  # tokens of the sample on which the heads are compared
SAMPLE = """\
The lighthouse had been dark for eleven years when Mara climbed its stairs with a lamp and a bag of bread. "Who sent you?" asked the
old keeper. She set the lamp down and said that nobody had.

def mean(values: list[float]) -> float:
    \"\"\"The average; 0 for none.\"\"\"
    return sum(values) / len(values) if values else 0.0

Zum Frühstück gibt es Brot, Käse und Tee; danach gehen wir zum Hafen. 17 + 25 = 42, and 42 * 3 = 126.
"""
SLICE_ROWS = 8192  # rows of a head that are converted at a time


def exact_values(weight: Tensor) -> Iterator[Tensor]:
    """Yield a bfloat16 head as (rows, hidden) float32 slices. weight: (V, hidden)"""
    for rows in weight.split(SLICE_ROWS):
        yield rows.float()
        leave_to_file(rows)


def head_values(rows: int, head: Matrix) -> Iterator[Tensor]:
    """Yield the values of the first rows of an 8-bit head, in slices as `exact_values` does."""
    for first in range(0, rows, SLICE_ROWS):
        last = min(first + SLICE_ROWS, rows)
        whole = -(-last // BLOCK_OUTPUTS) * BLOCK_OUTPUTS
        yield head.values(first, whole)[: last - first]


def logits_of(states: Tensor, slices: Iterator[Tensor]) -> Tensor:
    """Return logits (rows, V) float32. states: (rows, hidden), after the last norm; slices: of the head's values"""
    x = states.float()
    return torch.cat([x @ part.t() for part in slices], dim=-1)


def divergence(found: Tensor, wanted: Tensor) -> tuple[float, float]:
    """Return the mean KL divergence in nats and the mean total variation, 0 to 1, between distributions.

    found: (rows, V) float32 logits; wanted: those of the bfloat16 head
    """
    kl = variation = 0.0
    for row, right in zip(found, wanted, strict=True):
        log_probs, log_right = row.log_softmax(-1), right.log_softmax(-1)
        probs = log_right.exp()
        kl += float((probs * (log_right - log_probs)).sum())
        variation += 0.5 * float((probs - log_probs.exp()).abs().sum())
    rows = len(wanted)
    return max(kl / rows, 0.0), variation / rows


def suits(states: Tensor, weight: Tensor, head: Matrix) -> bool:
    """Return True if `auto` uses an 8-bit head in place of the bfloat16 head `weight`.

    Both are compared on the same states, (rows, hidden) after the last norm.
    """
    wanted = logits_of(states, exact_values(weight))
    kl, variation = divergence(logits_of(states, head_values(len(weight), head)), wanted)
    return kl <= MAX_KL and variation <= MAX_VARIATION


def states_of(decoder: Decoder, token_ids: Sequence[int], seen: Tensor | None = None) -> Tensor:
    """Return the input of the head at each token of a text or tree, (rows, hidden). seen: see `ForwardInput`"""
    last = decoder.config.num_hidden_layers
    places = range(len(token_ids)) if seen is None else (seen.sum(-1) - 1).tolist()
    rows = ForwardInput(token_ids, places, seen, RollbackCache(last), reads=(last,))
    states = decoder.run([rows])[0].states
    assert states is not None
    return states
