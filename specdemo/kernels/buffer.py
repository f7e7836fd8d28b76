"""The memory of jobs of one form: most of a job follows from how many rows each conversation has, and is written once."""

from __future__ import annotations

import ctypes
from itertools import accumulate
from typing import Any

import numpy as np

from specdemo.kernels import job as jobs

NUMBER = 8  # bytes of each field of a record

Form = tuple[tuple[int, int, int], ...]
"""Of each conversation: rows, how many of the last need logits, and tokens that are drafted after them at most."""


class JobBuffer:
    """A job and what it points to in the same buffer, in the order that README.md draws.

    template: the fields that all jobs have in common, as bytes of a job; layers: of the stack
    parts: addresses of the parts behind the job, and of their end
    states: (layers + 1,), positions: (rows,) int64, to fill; sequences, drafts, tokens: of each conversation
    """

    def __init__(self, template: bytes, layers: int, form: Form) -> None:
        num_rows, asked = sum(rows for rows, _, _ in form), sum(answers for _, answers, _ in form)
        sizes = (
            len(template) // NUMBER, layers + 1, asked, num_rows,
            len(form) * jobs.SEQUENCE.itemsize // NUMBER, len(form) * jobs.DRAFT.itemsize // NUMBER,
            sum(most for _, _, most in form) * jobs.TOKEN.itemsize // NUMBER,
        )  # fmt: skip
        bounds = list(accumulate(sizes))
        at_states, at_asked, at_positions, at_sequences, _, at_tokens, end = bounds
        self._numbers = np.zeros(end, dtype=np.int64)
        base = self._numbers.ctypes.data
        ctypes.memmove(base, template, len(template))
        self.parts = [base + NUMBER * at for at in bounds]
        self.states = self._numbers[at_states:at_asked]
        self.positions = self._numbers[at_positions:at_sequences]
        self.num_asked = asked
        self.job: Any = jobs.JobStructure.from_address(base)
        self.job.num_rows, self.job.num_sequences, self.job.num_asked = num_rows, len(form), asked
        self.job.states, self.job.asked, self.job.positions, self.job.sequences = self.parts[:4]
        self.sequences: Any = (jobs.SequenceStructure * len(form)).from_address(self.parts[3])
        self.drafts: list[Any] = [None] * len(form)
        self.tokens: list[np.ndarray[Any, Any] | None] = [None] * len(form)
        wanted: list[int] = []
        row = 0
        for number, (record, (rows, answers, most)) in enumerate(
            zip(self.sequences, form, strict=True)
        ):
            record.first_row, record.num_rows = row, rows
            record.first_asked, record.num_asked = len(wanted), answers
            row += rows
            wanted += range(row - answers, row)
            if most:
                record.draft = self.parts[4] + number * jobs.DRAFT.itemsize
                draft = self.drafts[number] = jobs.DraftStructure.from_address(record.draft)
                draft.tokens = base + NUMBER * at_tokens
                draft.most = most
                size = most * jobs.TOKEN.itemsize // NUMBER
                self.tokens[number] = self._numbers[at_tokens : at_tokens + size].view(jobs.TOKEN)
                at_tokens += size
                self.job.drafts += 1
        self._numbers[at_asked:at_positions] = wanted
        self.num_drafts: int = self.job.drafts
        self._begun = self._numbers.copy()

    def begin(self) -> Any:
        """The job as the form makes it, without what the last pass left: a draft makes the next pass of the same record."""
        self._numbers[:] = self._begun
        return self.job
