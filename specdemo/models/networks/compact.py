"""One conversation of a compact draft: what it has read, and the passes that it asks for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.engine.cache import RollbackCache
from specdemo.engine.features import Features
from specdemo.engine.passes import (
    ForwardOutput,
    chunks,
    request_pass,
)
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.tree import ancestor_mask, depths
from specdemo.kernels.plan import Chain, DraftPlan
from specdemo.models.networks.compact_decoder import (
    Adjust,
    CompactDecoder,
    DraftInput,
)
from specdemo.models.networks.compact_weights import CompactWeights


class CompactModel:
    """One conversation of a compact drafter; implements `LanguageModel`.

    decoder: shared by all conversations whose passes may be joined; of weights, one is made for this conversation
    features: the target's states of this conversation, for weights that read them
    adjust: what a visitor's own corrections make of the states that the head sees, (rows, H) to the same
    """

    def __init__(
        self, decoder: CompactDecoder | CompactWeights, features: Features | None = None
    ) -> None:
        self.decoder = decoder if isinstance(decoder, CompactDecoder) else CompactDecoder(decoder)
        self.weights = self.decoder.weights
        self.features = features
        self.adjust: Adjust | None = None
        self._text_words = self.weights.text_words(packed=self.decoder.compiled is not None)
        self._cache = RollbackCache(self.decoder.config.num_hidden_layers)
        self._final = torch.empty(0)  # (rows, H): what the last pass gave, before the norm
        self._last: tuple[int, Tensor] | None = None  # a position, and (1, H) of what it gave
        # Parents of the nodes that `grow` has read, and (1, H) of what each gave.
        self._grown: list[int] = []
        self._grown_final: list[Tensor] = []

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._cache.length

    @property
    def memory_bytes(self) -> int:
        """Of the cache and the text's own words."""
        return self._cache.memory_bytes + self._text_words.memory_bytes

    @property
    def words(self) -> ReducedVocabulary:
        """What it can say after the text that it has read."""
        return self._text_words.words

    @property
    def states(self) -> Tensor:
        """What went into the head in the last pass, before `adjust`: (rows, H)."""
        return self.decoder.normed(self._final)

    def rollback(self, length: int) -> None:
        """Forget every cached token from position `length` on, and what was grown."""
        self._cache.rollback(length)
        self._forget_grown()
        self._text_words.forget(length)

    def expect(self, token_ids: Sequence[int]) -> None:
        """These tokens are read next: from now on they can be said."""
        self._text_words.read(self.length, token_ids)

    def read(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens. returns: (W,) float32 logits over the reduced vocabulary."""
        return self._appending(token_ids)[0]

    def read_states(self, token_ids: Sequence[int], states: Tensor) -> Tensor:
        """Append tokens by what goes into the first layer in place of their embeddings. states: (rows, H)"""
        return self._appending(token_ids, states=states)[0]

    def guess(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens and guess what follows them in one pass. returns: (depth, W) float32 logits"""
        return self._appending(token_ids, guesses=self.weights.depth - 1)

    def draft(self, token_ids: Sequence[int], plan: DraftPlan) -> Chain | None:
        """Append tokens and draft a chain after them in the compiled pass; None, and nothing read, where it cannot."""
        if self.decoder.compiled is None or self.adjust or self.weights.depth > 1 or plan.most < 1:
            return None
        token_ids = token_ids[self._reading_ahead(token_ids) :]
        one = self._input(token_ids, plan=plan)
        chain = self._asking(one).chain
        assert chain is not None
        # All drafted tokens but the last have been read.
        self._count(len(token_ids), len(chain.columns) - 1)
        return chain

    def grow(
        self, token_ids: Sequence[int], parents: Sequence[int], states: Tensor | None = None
    ) -> Tensor:
        """Read nodes of a tree that hangs on the cached text; nothing of it is counted.

        parents: index among all nodes grown so far, -1 = follows the text
        states: (N, H), what goes into the first layer in place of the tokens' embeddings
        returns: (N, W) float32 logits, row i follows node i
        """
        logits: list[Tensor] = []
        begin = 0
        while begin < len(token_ids):
            end, first = len(token_ids), len(self._grown)
            if self.weights.feedback is not None:  # parents are read before their children
                below = (node for node in range(begin, end) if parents[node] >= first)
                end = next(below, end)
            part = slice(begin, end)
            here = None if states is None else states[part]
            logits.append(self._growing(token_ids[part], parents[part], here))
            begin = end
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _growing(
        self, token_ids: Sequence[int], parents: Sequence[int], states: Tensor | None
    ) -> Tensor:
        """`growing` in one pass."""
        first, length = len(self._grown), self.length
        injected = self._fed(parents)
        self._cache.skip(first)
        self._grown += parents
        positions = [length + depth - 1 for depth in depths(self._grown)[first:]]
        seen = torch.ones(len(token_ids), length + len(self._grown), dtype=torch.bool)
        seen[:, length:] = ancestor_mask(self._grown)[first:]
        self._forget_first(seen, length)
        one = DraftInput(
            token_ids, positions, seen, self._cache, len(token_ids), text=self._text_words,
            states=states, injected=injected, adjust=self.adjust,
        )  # fmt: skip
        logits = self._asking(one).logits
        self._grown_final += self._final.split(1)
        return logits

    def _appending(
        self, token_ids: Sequence[int], states: Tensor | None = None, guesses: int = 0
    ) -> Tensor:
        """Append tokens. returns: (1 + guesses, W) logits that follow the last of them"""
        ahead = self._reading_ahead(token_ids, states)
        rest = None if states is None else states[ahead:]
        output = self._asking(self._input(token_ids[ahead:], rest, guesses))
        self._count(len(token_ids) - ahead)
        return output.logits

    def _reading_ahead(self, token_ids: Sequence[int], states: Tensor | None = None) -> int:
        """Append tokens, chunk by chunk, but for the last chunk. returns: how many were appended"""
        *ahead, last = chunks(self.length, len(token_ids), self.decoder.chunk)
        for part in ahead:
            here = None if states is None else states[part]
            self._asking(self._input(token_ids[part], here))
            self._count(part.stop - part.start)
        return int(last.start)

    def _count(self, rows: int, drafted: int = 0) -> None:
        """Rows of the last pass, and tokens that were drafted and read after them, belong to the text now."""
        self._cache.gather(range(rows + drafted))
        self._last = self.length - 1 - drafted, self._final[-1:]

    def _forget_grown(self) -> None:
        self._grown.clear()
        self._grown_final.clear()

    def _input(
        self,
        token_ids: Sequence[int],
        states: Tensor | None = None,
        guesses: int = 0,
        plan: DraftPlan | None = None,
    ) -> DraftInput:
        """A pass that appends tokens, and guesses positions after them."""
        self._forget_grown()
        self._cache.skip(0)
        self.expect(token_ids)
        start, rows = self.length, len(token_ids)
        end = start + rows
        seen = None
        if rows + guesses > 1 or self.weights.skips_first:
            seen = torch.ones(rows + guesses, end + guesses, dtype=torch.bool).tril_(start)
            self._forget_first(seen, start)
            if guesses and not self.weights.causal:
                seen[rows:, end:] = True
        injected = self._injected(start, end) if self.weights.inject else None
        return DraftInput(
            token_ids, range(start, end + guesses), seen, self._cache, 1 + guesses, text=self._text_words,
            states=states, injected=injected, guesses=guesses, adjust=self.adjust, plan=plan,
        )  # fmt: skip

    def _forget_first(self, seen: Tensor, start: int) -> None:
        """Hide the text's first token from rows that begin at a position, for weights whose text begins with the second."""
        if self.weights.skips_first:
            seen[0 if start else 1 :, 0] = False

    def _asking(self, one: DraftInput) -> ForwardOutput:
        """Ask for a pass."""
        output = request_pass(self.decoder, one)
        (self._final,) = output.states
        return output

    @torch.inference_mode()
    def _injected(self, start: int, end: int) -> tuple[int, Tensor] | None:
        """What joins the tokens from position `start` on: from which row, and (rows, H).

        That is what the target's states add. Where the first token is beyond them, its own state before it stands for
        them; further tokens are rarely read at once there, and have nothing.
        """
        inject = self.weights.inject
        if inject is None:
            return None
        before = max(start, 1)  # nothing was known before the first token
        states = torch.empty(0)
        if self.features is not None:
            states = self.features.read(before - 1, end - 1, self.weights.reads)
        if not len(states):
            return self._fed([-1])
        reads = self.weights.reads
        return before - start, inject.of(states, len(reads), self.weights.norm.dtype)

    def _state_of(self, node: int) -> Tensor | None:
        """(1, H): what a grown node gave, or the text's last token for -1; None where that was not read by itself."""
        if node >= 0:
            return self._grown_final[node]
        position, final = self._last or (-1, None)
        return final if position == self.length - 1 else None

    @torch.inference_mode()
    def _fed(self, nodes: Sequence[int]) -> tuple[int, Tensor] | None:
        """What joins the tokens that follow some grown nodes, or the text for -1: the drafter's own states there."""
        feedback = self.weights.feedback
        finals = [] if feedback is None else [self._state_of(node) for node in nodes]
        if feedback is None or all(final is None for final in finals):
            return None
        nothing = torch.zeros_like(feedback, dtype=torch.float32)[None]
        rows = torch.cat([nothing if final is None else final.float() for final in finals])
        if self.weights.feeds_normed:
            epsilon = self.weights.config.rms_norm_eps
            rows = F.rms_norm(rows, rows.shape[-1:], self.weights.norm.float(), eps=epsilon)
        return 0, rows * feedback.float()
