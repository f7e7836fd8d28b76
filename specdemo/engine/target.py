"""A model with a cache that can be rolled back: the target, and any draft model from a hub or folder.

Readers of whole texts read only the new part with such a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.cache import RollbackCache, slots_for
from specdemo.engine.passes import (
    Decoder,
    ForwardInput,
    ForwardOutput,
    chunks,
    of_layers,
    request_pass,
)
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.types import Proposal, depths
from specdemo.kernels.plan import Chain, DraftPlan
from specdemo.trace.metrics import same_prefix


class Features:
    """One row for each token of a target's cache: row p contains the states after reading token p.

    layers: indices of hidden states, numbered as in transformers (0 = embedding, the last = after the final norm)
    """

    def __init__(self, layers: Sequence[int] = ()) -> None:
        self.layers = tuple(layers)
        self.length = 0
        self._rows = torch.empty(0, len(self.layers))

    @property
    def memory_bytes(self) -> int:
        return self._rows.nbytes

    def write(self, start: int, states: Tensor) -> None:
        """Put a pass's rows into the positions from `start` on, without counting them. states: (rows, layers x H)"""
        end = start + states.shape[0]
        if end > self._rows.shape[0]:
            grown = states.new_zeros(slots_for(end, self._rows.shape[0]), states.shape[1])
            if self.length:
                grown[: self.length] = self._rows[: self.length]
            self._rows = grown
        self._rows[start:end] = states

    def gather(self, rows: Sequence[int]) -> None:
        """Count `rows` of the last pass (ascending) and drop its others, as the cache does."""
        start, end = self.length, self.length + len(rows)
        if list(rows) != list(range(len(rows))):
            with torch.inference_mode():
                self._rows[start:end] = self._rows[start + torch.tensor(rows)]
        self.length = end

    def rollback(self, length: int) -> None:
        """Forget every row from `length` on."""
        self.length = min(self.length, length)

    def read(self, begin: int, end: int, layers: Sequence[int]) -> Tensor:
        """Counted rows of some layers. returns: (rows, len(layers) x H), fewer rows where not all are there"""
        return of_layers(self._rows[begin : min(end, self.length)], self.layers, layers)


class CachedModel:
    """One conversation of a causal language model. The weights are shared; the cache is this object's own.

    model: a decoder, or a transformers model
    reads: layers whose hidden states can be stored for drafters, see `record`
    """

    words: ReducedVocabulary | None = None  # vocabulary of its logits, W tokens; None for all V

    def __init__(self, model: Any, reads: Sequence[int] = ()) -> None:
        self.decoder: Decoder = model if hasattr(model, "run") else ModuleDecoder(model)
        self.features = Features(reads)
        self._recording = False
        self._cache = RollbackCache(self.decoder.config.num_hidden_layers)
        self._grown: list[int] = []  # parents of the nodes that `grow` has read

    @property
    def context(self) -> int | None:
        """Longest text that the model can read; None if its config names no limit."""
        return getattr(self.decoder.config, "max_position_embeddings", None)

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._cache.length

    @property
    def memory_bytes(self) -> int:
        """Size of the cache and other data of this conversation."""
        return self._cache.memory_bytes + self.features.memory_bytes

    def record(self, *, wanted: bool) -> None:
        """Store hidden states from now on, or none, at no cost; tokens that were cached without them are dropped."""
        self._recording = wanted and bool(self.features.layers)
        if self._recording:
            self.rollback(min(self.length, self.features.length))

    @property
    def vocabulary_size(self) -> int:
        """V: columns of the logits."""
        return int(self.decoder.config.vocab_size)

    def read(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens, in chunks. returns: (W,) logits that follow the last of them."""
        logits = torch.empty(0)
        self._forget_grown()
        for part in chunks(self.length, len(token_ids), self.decoder.chunk):
            chunk = token_ids[part]
            logits = self._run(chunk, range(-1, len(chunk) - 1), rows=1).logits[0]
            self._count(range(len(chunk)))
        return logits

    def rollback(self, length: int) -> None:
        """Forget every cached token from position `length` on, and all grown nodes."""
        self._grown.clear()
        self._cache.rollback(length)
        self.features.rollback(length)

    @torch.inference_mode()
    def copy(self, other: CachedModel, length: int) -> None:
        """Append the rows that another conversation with this model has cached up to `length`, without its hidden states."""
        self._cache.copy(other._cache, length)

    def grow(self, token_ids: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Read nodes of a tree that follows the cached text; `read` and `rollback` forget them.

        parents: index among all nodes grown so far, -1 = follows the text
        returns: (N, W) logits, row i follows node i
        """
        earlier = list(self._grown)
        self._grown += parents
        return self._run(token_ids, parents, len(token_ids), earlier).logits

    def draft(self, token_ids: Sequence[int], plan: DraftPlan) -> Chain | None:
        """Append tokens and draft a chain after them in one call.

        All drafted tokens but the last are in the cache then. Returns None, and reads nothing, if it cannot.
        """
        return None

    def lower(
        self, layers: int, token_ids: Sequence[int], parents: Sequence[int], earlier: Sequence[int]
    ) -> Tensor:
        """Run nodes on the cached text through the first layers; the next pass overwrites their rows.

        layers: how many; earlier: parents of nodes that went through them before
        returns: (N, H) their states
        """
        tree = [*earlier, *parents]
        output = self._request(token_ids, tree, len(earlier), answers=0, depth=layers)
        self._cache.skip(0)
        assert output.states is not None
        return output.states

    def forward(self, pending_id: int, proposal: Proposal) -> ForwardOutput:
        """Run the pending token and every drafted node in one pass; the cache does not count them yet.

        returns: logits (1 + N, V), row 0 follows the pending token, row 1 + i node i
        """
        self._forget_grown()
        parents = [-1, *(parent + 1 for parent in proposal.parents)]
        return self._run([pending_id, *proposal.token_ids], parents, len(parents))

    def keep(self, path: Sequence[int]) -> None:
        """Commit the pending token and the nodes of `path` of the last `forward`; forget its other nodes."""
        self._count([0, *(node + 1 for node in path)])

    def _count(self, rows: Sequence[int]) -> None:
        self._cache.gather(rows)
        if self._recording:
            self.features.gather(rows)

    def _forget_grown(self) -> None:
        self._grown.clear()
        self._cache.skip(0)

    def _run(
        self,
        token_ids: Sequence[int],
        parents: Sequence[int],
        rows: int,
        earlier: Sequence[int] = (),
    ) -> ForwardOutput:
        """Run one pass over nodes that follow the cached text, and return the logits of the last `rows` of them.

        earlier: parents of nodes that were read before and are still in the cache; `parents` index all of them
        """
        output = self._request(token_ids, [*earlier, *parents], len(earlier), rows)
        if self._recording:
            assert output.states is not None
            self.features.write(self.length + len(earlier), output.states)
        return output

    def _request(
        self,
        token_ids: Sequence[int],
        tree: Sequence[int],
        first: int,
        answers: int,
        depth: int | None = None,
    ) -> ForwardOutput:
        self._cache.skip(first)
        positions = [self.length + below - 1 for below in depths(tree)[first:]]
        reads = self.features.layers if self._recording and depth is None else ()
        seen = self._seen(tree, first)
        rows = ForwardInput(token_ids, positions, seen, self._cache, answers, reads, depth)
        return request_pass(self.decoder, rows)

    def _seen(self, tree: Sequence[int], first: int) -> Tensor | None:
        """Return the keys that the nodes from `first` on attend to, see `ForwardInput`."""
        if list(tree) == list(range(-1, len(tree) - 1)):
            return None
        seen = torch.ones((len(tree) - first, self.length + len(tree)), dtype=torch.bool)
        seen[:, self.length :] = ancestor_mask(tree)[first:]
        return seen


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


class PrefixReader:
    """Reads a text with a model, whose cache always contains a prefix of the latest text.

    So the last drafted token, which is never read, needs no special case when everything was accepted,
    and a follow-up prompt reads only its new part.
    """

    def __init__(self, model: CachedModel) -> None:
        self.model = model
        self.cached_ids: list[int] = []
        self._known = 0  # of these, the ones that the text of the last step starts with

    def room(self, length: int, most: int) -> int:
        """Return how many tokens it can draft after a text of `length` tokens within its context, at most `most`."""
        context = self.model.context
        return most if context is None else max(0, min(most, context - length + 1))

    def logits_after(
        self, token_ids: Sequence[int], read: Callable[[Sequence[int]], Tensor] | None = None
    ) -> Tensor:
        """Return the logits that follow a text of at least one token, (W,); reads at least its last one.

        read: method of the model that appends tokens and returns the logits; by default its `read`
        """
        token_ids = list(token_ids)
        new_ids = self._roll_back(token_ids, keep_last=False)
        return self._read(token_ids, new_ids, read or self.model.read)

    def chain_after(self, committed: Sequence[int], plan: DraftPlan) -> Chain | None:
        """A chain after the text of the last `follow`, at least one token; None where the model does not draft on its own."""
        new_ids = committed[len(self.cached_ids) :]
        chain = self.model.draft(new_ids, plan)
        if chain is not None:
            words = self.model.words
            drafted = chain.columns[:-1]
            self.cached_ids += new_ids
            self.cached_ids += [words.tokens[one] for one in drafted] if words else drafted
        return chain

    def probs_after(self, token_ids: Sequence[int], width: int) -> Tensor:
        """Return the model's distribution after a text, at temperature 1: (width,) float32 on the CPU, of the first tokens."""
        logits = self.logits_after(token_ids)
        probs, words = logits.float().softmax(dim=-1).cpu(), self.model.words
        probs = words.widen(probs[None])[0] if words else probs
        return pad(probs[:width], (0, max(0, width - len(probs))))

    def follow(self, committed: Sequence[int]) -> None:
        """Start a step on this text, which continues the one of the last step; `prepare` comes before any other text.

        Accepted tokens that were drafted stay cached; `FeatureReader` reads them again.
        """
        kept = self.cached_ids
        most = min(len(kept), len(committed) - 1)
        place = min(self._known, most)
        while place < most and kept[place] == committed[place]:
            place += 1
        del kept[place:]
        self._known = place
        if self.model.length != place:
            self.model.rollback(place)

    def prepare(self, token_ids: Sequence[int]) -> None:
        """Read a text ahead of time, so that the first question is cheap."""
        token_ids = list(token_ids)
        if new_ids := self._roll_back(token_ids, keep_last=True):
            self._read(token_ids, new_ids, self.model.read)

    def _read(
        self, token_ids: list[int], new_ids: list[int], read: Callable[[Sequence[int]], Tensor]
    ) -> Tensor:
        """Read the rest of a text; if that breaks off, the chunks that were read stay."""
        try:
            return read(new_ids)
        finally:
            self.cached_ids = token_ids[: self.model.length]

    def _roll_back(self, token_ids: list[int], *, keep_last: bool) -> list[int]:
        """Drop the cached tokens after the common prefix with a text. returns: the rest of the text, to be read

        keep_last: whether the text's last token may stay in the cache
        """
        wanted = token_ids if keep_last else token_ids[:-1]
        shared = len(self.cached_ids)
        if self.cached_ids != wanted[:shared]:
            shared = same_prefix(self.cached_ids, wanted)
        self.model.rollback(shared)
        # The cache is a prefix of this text until it is read, also when reading breaks off.
        self.cached_ids, self._known = token_ids[:shared], min(self._known, shared)
        return token_ids[shared:]


class FeatureReader(PrefixReader):
    """The same for a model that also reads the target's hidden states.

    Drafted tokens are read without these states; accepted ones are read again with them.
    """

    def __init__(self, model: CachedModel) -> None:
        super().__init__(model)
        self._read_with_states = 0

    def follow(self, committed: Sequence[int]) -> None:
        """Drop the tokens that were read while drafting."""
        del self.cached_ids[self._read_with_states :]
        self._read_with_states = len(committed)
        super().follow(committed)
