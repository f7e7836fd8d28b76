"""The job of one pass: records that Python writes and compiled code reads, their memory, and the drafts in them after the pass.

Each record is a NumPy structured dtype, and the one definition of its fields: numba reads records of these dtypes
(`parts`), and Python writes them through C structures that are made of them, because NumPy needs a microsecond
to set a field. Every field has 8 bytes: an address, a count or a float64. Address 0 means none.
"""

from __future__ import annotations

import ctypes
import sys
import time
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from specdemo.kernels.plan import Chain

if TYPE_CHECKING:
    from torch import Tensor

ADDRESS = COUNT = NUMBER = np.dtype(np.int64)
REAL = np.dtype(np.float64)

# A matrix of 32 outputs a block, see `packing.Packed`.
MATRIX = np.dtype(
    [
        ("codes", ADDRESS),
        ("scales", ADDRESS),
        ("zeros", ADDRESS),  # 0 where codes mean values of their own
        ("bits", COUNT),  # bits of a code: 4; a head also has 8 or 16
        ("parts", COUNT),  # number of PART at `codes`, of a matrix in blocks of 32 inputs; else 0
    ]
)

# Some outputs of a matrix in blocks, see `blocks.Part`.
PART = np.dtype(
    [
        ("kind", COUNT),  # number of `blocks.KINDS`
        ("blocks", COUNT),  # of 32 outputs
        ("codes", ADDRESS),
        ("units", ADDRESS),
        ("zeros", ADDRESS),
        ("steps", ADDRESS),
    ]
)

# The weights of a layer; norms and the bias are float32. See `runtime.LayerWeights`.
LAYER = np.dtype(
    [
        ("input_norm", ADDRESS),
        ("post_norm", ADDRESS),
        ("attended_norm", ADDRESS),
        ("gated_norm", ADDRESS),
        ("qkv", MATRIX),
        ("output", MATRIX),
        ("gate_up", MATRIX),
        ("down", MATRIX),
        ("qkv_bias", ADDRESS),
        ("query_norm", ADDRESS),
        ("key_norm", ADDRESS),
        ("rotary", NUMBER),  # number of its rotary embedding; -1 for none
        ("window", COUNT),  # keys that a row looks back at; 0 for all
    ]
)

# The rows of one conversation in a pass.
SEQUENCE = np.dtype(
    [
        ("first_row", COUNT),  # among all rows of the pass
        ("num_rows", COUNT),
        ("start", NUMBER),  # slot of its first row in the cache
        ("num_keys", COUNT),  # slots that are used after the pass
        ("prefix", COUNT),  # slots that every row sees
        # (num_rows, num_keys) bool for the slots behind the prefix; 0: each row sees those up to its own
        ("seen", ADDRESS),
        ("capacity", COUNT),  # slots of the cache
        ("caches", ADDRESS),  # (layers, 2) addresses of keys and values
        ("first_asked", COUNT),  # among all rows with logits
        ("num_asked", COUNT),
        ("injected", ADDRESS),  # (num_injected, hidden) float32, added to the rows before a layer
        ("unprojected", ADDRESS),  # (num_injected, project_inputs) bfloat16, projected first
        ("first_injected", COUNT),  # among the rows of the conversation
        ("num_injected", COUNT),
        ("added", ADDRESS),  # (num_added,) int64, tokens whose columns follow those of the head
        ("num_added", COUNT),
        ("draft", ADDRESS),  # DRAFT, of a conversation that drafts after the pass
    ]
)

# A draft after a pass, and its progress.
DRAFT = np.dtype(
    [
        ("most", COUNT),  # tokens at most
        ("taken", COUNT),  # tokens so far
        ("num_columns", COUNT),  # width of its row of logits, in whole blocks
        ("word_ids", ADDRESS),  # (words,) int64, the token of each column
        ("rule", ADDRESS),  # `StopRule.numbers`
        ("survival", REAL),  # chance that all tokens so far are accepted, by the rule
        ("uniforms", ADDRESS),  # (most,) float64 for drawing tokens; 0 chooses the most likely
        ("coupled", COUNT),  # 1 to draw tokens by shared noise
        ("noise", NUMBER),  # the 64 bits of that, see `engine.sampling`
        ("inverse_temperature", REAL),
        ("top_k", COUNT),  # most likely tokens to draw from; 0 for all
        ("top_p", REAL),  # probability of the most likely tokens to draw from; 1 for all
        ("penalty", REAL),  # of tokens that are in the text; 1 for none
        # (num_penalised + most,) int64, their columns, and room for drafted ones
        ("penalised", ADDRESS),
        ("num_penalised", COUNT),
        ("position", NUMBER),  # position of the next token in the text
        ("tokens", ADDRESS),  # (most,) TOKEN
    ]
)

# Seconds per unit of `TOKEN.seconds`, which contains the counter's ticks on Windows.
SECOND = time.get_clock_info("perf_counter").resolution if sys.platform == "win32" else 1.0

# A drafted token.
TOKEN = np.dtype(
    [
        ("column", NUMBER),
        ("row", NUMBER),  # its row of logits, among all that were written
        ("confidence", REAL),
        ("seconds", COUNT),  # time of its choice, in units of `SECOND`
        ("nanoseconds", COUNT),
    ]
)

JOB = np.dtype(
    [
        # Rows and layers of this pass.
        ("num_rows", COUNT),
        ("first_layer", NUMBER),
        ("last_layer", NUMBER),  # not run
        # Sizes of all layers.
        ("heads", COUNT),
        ("kv_heads", COUNT),
        ("head_dim", COUNT),
        ("hidden", COUNT),
        ("inner", COUNT),  # between gate and down
        ("group", COUNT),  # inputs that share a scale
        ("epsilon", REAL),  # epsilon of the norms
        ("scale", REAL),  # factor of attention scores
        ("residual", REAL),  # factor of additions to the residual stream
        ("gelu", COUNT),  # 1 where gates are GELU in place of SiLU
        ("joint_norms", COUNT),  # 1 where norms of queries and of keys are of all heads together
        # Weights.
        ("table", ADDRESS),  # values of the 16 codes, see `runtime.meanings`
        ("layers", ADDRESS),  # (layers,) LAYER
        ("norm", ADDRESS),  # (hidden,) float32, of the last states
        ("head_norm", ADDRESS),  # the same times the factor of the logits
        ("head", MATRIX),  # in 16 bits as `products.laid_out` gives it
        ("head_columns", COUNT),
        ("head_rows", ADDRESS),  # (V, hidden) bfloat16, by which the logits of added tokens are computed
        ("embedding", ADDRESS),  # (V, hidden) bfloat16 that drafted tokens are read by
        ("project", MATRIX),  # projects the target's states of a token
        ("project_inputs", COUNT),  # numbers in these states
        ("project_gain", ADDRESS),  # (project_inputs,) float32, weights of each state's norm
        ("project_epsilon", REAL),  # epsilon of those norms
        ("feedback", ADDRESS),  # (hidden,) float32, of a row's normed state, for the token that is drafted after it
        ("cos", ADDRESS),  # (rotary embeddings, positions, rotated) float32
        ("sin", ADDRESS),  # the same, with signs
        ("rotated", COUNT),  # first channels of a head that are rotated
        ("positions_known", COUNT),  # positions of each rotary embedding
        # Rows.
        ("input", ADDRESS),  # (num_rows, hidden) float32
        ("positions", ADDRESS),  # (num_rows,) int64
        ("sequences", ADDRESS),  # (num_sequences,) SEQUENCE
        ("num_sequences", COUNT),
        ("inject_layer", NUMBER),  # before which states are added to rows
        ("asked", ADDRESS),  # (num_asked,) int64, rows that need logits
        ("num_asked", COUNT),
        ("drafts", COUNT),  # conversations that draft after the pass
        # Results.
        ("logits", ADDRESS),  # (num_asked, num_columns) float32, then those of drafted tokens
        ("num_columns", COUNT),
        ("states", ADDRESS),  # (layers + 1,) addresses of the first row's states after as many layers, bfloat16
        ("states_bytes", COUNT),  # from one row's to the next
        ("final", ADDRESS),  # (num_rows, hidden) float32 after the last layer
        # Scratch.
        ("tiles", ADDRESS),  # (17, 64) bytes: how tiles are shaped for as many rows
        ("shared", ADDRESS),  # buffers of all threads
        ("scratch", ADDRESS),  # buffers of each thread, one after the other
        ("scratch_bytes", COUNT),
        ("arrived", ADDRESS),  # int64, threads at barriers so far, in a team of our own
    ]
)  # fmt: skip

RECORDS = (JOB, LAYER, SEQUENCE, DRAFT, TOKEN, PART)


def structure(record: np.dtype[Any]) -> Any:
    """The C structure of a record."""
    return np.ctypeslib.as_ctypes_type(record)


JobStructure, LayerStructure, SequenceStructure, DraftStructure, TokenStructure, PartStructure = (
    map(structure, (JOB, LAYER, SEQUENCE, DRAFT, TOKEN, PART))
)


def address(tensor: Tensor | None) -> int:
    """Return the address of a tensor's values; 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


def num_read(most: int) -> int:
    """Return how many of `most` drafted tokens the draft reads after the pass: all but the last."""
    return max(most - 1, 0)


FIELD_BYTES = 8  # bytes of each field of a record

Form = tuple[tuple[int, int, int], ...]
"""For each conversation: rows, number of last rows that need logits, and most tokens drafted after them."""


class JobBuffer:
    """A job and its arrays in the same buffer, in the order that README.md shows, then the count at `JOB.arrived`.

    template: the fields that all jobs have in common, as bytes of a job; layers: of the stack
    parts: addresses of the parts behind the job, and of their end
    states: (layers + 1,), positions: (rows,) int64, to fill; sequences, drafts, tokens: of each conversation
    """

    def __init__(self, template: bytes, layers: int, form: Form) -> None:
        num_rows, asked = sum(rows for rows, _, _ in form), sum(answers for _, answers, _ in form)
        sizes = (
            len(template) // FIELD_BYTES, layers + 1, asked, num_rows,
            len(form) * SEQUENCE.itemsize // FIELD_BYTES, len(form) * DRAFT.itemsize // FIELD_BYTES,
            sum(most for _, _, most in form) * TOKEN.itemsize // FIELD_BYTES, 1,
        )  # fmt: skip
        bounds = list(accumulate(sizes))
        at_states, at_asked, at_positions, at_sequences, _, at_tokens, _, end = bounds
        self._numbers = np.zeros(end, dtype=np.int64)
        base = self._numbers.ctypes.data
        ctypes.memmove(base, template, len(template))
        self.parts = [base + FIELD_BYTES * at for at in bounds]
        self.states = self._numbers[at_states:at_asked]
        self.positions = self._numbers[at_positions:at_sequences]
        self.num_logits = asked + sum(num_read(most) for _, _, most in form)
        self.job: Any = JobStructure.from_address(base)
        self.job.num_rows, self.job.num_sequences, self.job.num_asked = num_rows, len(form), asked
        self.job.states, self.job.asked, self.job.positions, self.job.sequences = self.parts[:4]
        self.job.arrived = self.parts[6]
        self.sequences: Any = (SequenceStructure * len(form)).from_address(self.parts[3])
        self.drafts: list[Any] = [None] * len(form)
        self.tokens: list[Any] = [None] * len(form)
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
                record.draft = self.parts[4] + number * DRAFT.itemsize
                draft = self.drafts[number] = DraftStructure.from_address(record.draft)
                draft.tokens = base + FIELD_BYTES * at_tokens
                draft.most = most
                self.tokens[number] = (TokenStructure * most).from_address(draft.tokens)
                at_tokens += most * TOKEN.itemsize // FIELD_BYTES
                self.job.drafts += 1
        self._numbers[at_asked:at_positions] = wanted
        self.num_drafts: int = self.job.drafts
        self._begun = self._numbers.copy()

    def begin(self) -> Any:
        """Reset the job to its form, since a draft turns the record into the next pass. Returns the job."""
        self._numbers[:] = self._begun
        return self.job

    def chain(self, number: int, logits: Tensor, columns: int) -> Chain | None:
        """Return the draft of a conversation after the pass; None if it does not draft.

        number: of the conversation; logits: all rows that were written; columns: of the draft's vocabulary
        """
        draft, runs, step = self.drafts[number], self.num_drafts, None
        if draft is None:
            return None
        taken = self.tokens[number][: draft.taken]
        if len(taken) > 1:
            first, last = taken[0], taken[-1]
            passed = SECOND * (last.seconds - first.seconds)
            passed += 1e-9 * (last.nanoseconds - first.nanoseconds)
            step = passed / (len(taken) - 1) / runs
        rows = [logits[one.row, :columns] for one in taken]
        confidences = [one.confidence for one in taken]
        return Chain([one.column for one in taken], rows, confidences, draft.survival, step, runs)
