"""Limits of a run: the only code for end-of-sequence and length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdemo.trace.events import FinishReason


@dataclass(frozen=True, slots=True)
class Limits:
    """max_new_tokens: tokens still allowed; stop_ids: tokens that end an answer, themselves included."""

    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()

    def budget(self, num_new: int) -> int:
        """Return the depth of the longest draft that can be accepted with the target's own token after it."""
        return max(0, self.max_new_tokens - num_new - 1)

    def cut(
        self, num_new: int, token_ids: Sequence[int]
    ) -> tuple[tuple[int, ...], FinishReason | None]:
        """Cut a step's tokens, after `num_new` earlier ones, and return why the run ends, if it does.

        cut(0, [5, <end>, 7])  ->  (5, <end>), STOP
        """
        for count, token_id in enumerate(token_ids, start=1):
            if token_id in self.stop_ids:
                return tuple(token_ids[:count]), FinishReason.STOP
            if num_new + count >= self.max_new_tokens:
                return tuple(token_ids[:count]), FinishReason.LENGTH
        return tuple(token_ids), None
