"""The geometry of a drafted tree: its attention mask and the depth of each node."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def ancestor_mask(parents: Sequence[int]) -> Tensor:
    """Mark, for each drafted node, itself and the nodes it descends from.

    parents: N indices — each node's parent, -1 under the pending token; parents precede children
    returns: (N, N) bool — [i, j] is True when node i may attend to node j

    "the" is pending and two continuations were drafted, "cat sat" and "dog":

        node      0 cat   1 sat   2 dog
        parents     -1       0      -1
        mask       1..      11.    ..1
    """
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


def depths(parents: Sequence[int]) -> list[int]:
    """Return the number of drafted tokens down to each node, itself included: 1 after the pending token."""
    result: list[int] = []
    for parent in parents:
        result.append(1 if parent < 0 else result[parent] + 1)
    return result


def is_chain(parents: Sequence[int]) -> bool:
    """Whether each node follows the one before it."""
    return all(parent == node - 1 for node, parent in enumerate(parents))
