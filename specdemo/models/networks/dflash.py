"""Drafters that guess a block from the target's hidden states alone (DFlash 2602.06036).

The target's states of each token become keys and values, in every layer from the same numbers. A block has queries
too: the pending token and a mask for each guessed position. "on" is pending and two positions are guessed:

    text      the  cat  sat                states of the target: keys and values alone
    block                    on   #   #    sees the text, and all of the block or, if causal, the rows before it
    guesses                       a  mat   a mask guesses its own position
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from torch import Tensor

from specdemo.engine.passes import (
    ForwardInput,
    ForwardOutput,
    chunk_rows,
    chunks,
    request_pass,
)
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel, FeatureReader, Features
from specdemo.models.decoders.layer import CacheRows, LlamaLayer, PassRows
from specdemo.models.decoders.operators import FOLDED_ROWS, Look, look, rms_norm
from specdemo.models.networks.four_bit import Linear
from specdemo.models.networks.parts import CompactConfig, Corrector


@dataclass(frozen=True, slots=True)
class Scales:
    """Factors of some targets. embedding: of the input; logits: of the output; cap: soft limit of the output, 0 for none"""

    embedding: float = 1.0
    logits: float = 1.0
    cap: float = 0.0

    def of(self, logits: Tensor) -> Tensor:
        logits = logits.float() * self.logits
        return (logits / self.cap).tanh() * self.cap if self.cap else logits


@dataclass(frozen=True, slots=True)
class Windows:
    """Layers with a sliding window. near: which layers; rows: length of the window, the row itself included

    causal: rows of a block see only those before them in these layers
    """

    near: tuple[bool, ...] = ()
    rows: int = 0
    causal: bool = False


@dataclass(frozen=True, slots=True)
class Convolution:
    """Two convolutions around a part of a layer: of its input, and of its output with kernels from the same rows.

    A kernel reads a row and the ones before it in the block (DFlash 2). With two taps, k0 and k1, of each position:

        out(mask) = k0(mask) x mask + k1(mask) x on
        out(on)   = k0(on) x on           nothing precedes the pending token

    base: (2, taps, H), of input and output; project: H to 2 x taps x groups, added to the base by each row
    """

    base: Tensor
    project: Linear

    def before(self, x: Tensor, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the convolved input, and the kernels of the output. x: (rows, H), blocks of `counts` rows"""
        _, taps, hidden = self.base.shape
        added = self.project(x).view(len(x), 2, taps, -1)
        kernels = self.base + added.repeat_interleave(hidden // added.shape[-1], dim=-1)
        return _along(x, kernels[:, 0], counts), kernels[:, 1]


def _along(x: Tensor, kernels: Tensor, counts: Sequence[int]) -> Tensor:
    """Sum each row and those before it in its block, times their taps. x: (rows, H); kernels: (rows, taps, H)"""
    out = kernels[:, 0] * x
    place = torch.cat([torch.arange(count) for count in counts]).to(x.device)[:, None]
    for tap in range(1, kernels.shape[1]):
        out += kernels[:, tap] * x.roll(tap, dims=0) * (place >= tap)
    return out


@dataclass(frozen=True, slots=True)
class BlockForm:
    """The states that a drafter reads, and the keys that its blocks attend to.

    config: sizes of the layers; reads: hidden states of the target that are read, by layer
    rows: of a block, the pending token and masks; mask: token id
    anchored: the pending token's row guesses the next position, and each mask the one after its own
    causal: rows of a block see only those before them, in layers without a window
    """

    config: CompactConfig
    reads: tuple[int, ...]
    rows: int
    mask: int
    anchored: bool = False
    causal: bool = False
    scales: Scales = Scales()
    windows: Windows = Windows()

    @property
    def depth(self) -> int:
        """Number of positions that a block guesses."""
        return self.rows if self.anchored else self.rows - 1


@dataclass(frozen=True, slots=True)
class DFlashWeights:
    """Shared, immutable weights.

    norm: (H,) before the head; embedding: (V, H); words: the reduced vocabulary of the head
    mix: the target's states of a token to H; mix_norm: (H,) of the result
    markov: corrects a position by the token before it
    convolutions: around attention and gates of each layer; empty for none
    """

    form: BlockForm
    layers: tuple[LlamaLayer, ...]
    norm: Tensor
    embedding: Tensor
    head: Linear
    words: ReducedVocabulary
    mix: Linear
    mix_norm: Tensor
    markov: Corrector | None = None
    convolutions: tuple[tuple[Convolution, Convolution], ...] = ()

    @property
    def depth(self) -> int:
        """Number of positions that a block guesses."""
        return self.form.depth

    @torch.inference_mode()
    def mixed(self, states: Tensor) -> Tensor:
        """(rows, H): the source of keys and values. states: (rows, states x H)"""
        mixed = self.mix(states.to(self.norm.device, self.norm.dtype))
        return rms_norm(mixed, self.mix_norm, self.form.config.sizes.eps)


@dataclass(frozen=True, slots=True)
class BlockInput(ForwardInput):
    """A block of one conversation after new tokens of its text; a pass without a block only stores new tokens.

    states: (new, H), `DFlashWeights.mixed` of the new tokens; positions: of the new tokens, then of the block
    token_ids: of the block; one for each new token in a pass without a block
    near: (block, keys) bool, the mask of layers with a window
    """

    states: Tensor = field(kw_only=True)
    near: Tensor | None = None


class DFlashDecoder:
    """Implements `Decoder`. A pass's `states` are one tensor, (answers, H): the head's input."""

    def __init__(self, weights: DFlashWeights) -> None:
        self.weights = weights
        self.config = SimpleNamespace(
            num_hidden_layers=len(weights.layers), vocab_size=len(weights.embedding)
        )
        # New tokens go through the first product of a layer alone.
        device = weights.embedding.device.type
        self.chunk = chunk_rows(device, len(weights.layers), weights.form.config.hidden_size, 0)
        self._rotary = weights.form.config.rotary_tables(weights.embedding)

    def open(self, target: CachedModel) -> FeatureReader:
        return FeatureReader(DFlashModel(self, target.features))

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        inputs = [one for one in passes if isinstance(one, BlockInput)]
        assert len(inputs) == len(passes), "only a block can be asked for"
        if silent := [one for one in inputs if not one.answers]:
            self._keep(silent)
        blocks = [one for one in inputs if one.answers]
        guessed = iter(self._guess(blocks) if blocks else ())
        return [next(guessed) if one.answers else ForwardOutput(torch.empty(0)) for one in inputs]

    def _keep(self, inputs: Sequence[BlockInput]) -> None:
        """Write keys and values of new tokens."""
        x = torch.cat([one.states for one in inputs])
        rows = self._rows(inputs, [None] * len(inputs))
        at = PassRows(self.weights.form.config.sizes, self._angles(inputs), rows)
        for index, layer in enumerate(self.weights.layers):
            layer.keep(index, at, x)

    def _guess(self, inputs: Sequence[BlockInput]) -> list[ForwardOutput]:
        """Run blocks through all layers; new tokens of their texts only get keys and values."""
        weights, sizes = self.weights, self.weights.form.config.sizes
        angles, seen = self._angles(inputs), [one.seen for one in inputs]
        far = near = PassRows(sizes, angles, self._rows(inputs, seen))
        if weights.form.windows.rows:
            near = PassRows(sizes, angles, self._rows(inputs, [one.near for one in inputs]))
        x = torch.cat([weights.embedding[list(one.token_ids)] for one in inputs])
        x = x * weights.form.scales.embedding
        counts = [len(one.token_ids) for one in inputs]
        for index in range(len(weights.layers)):
            at = near if weights.form.windows.rows and weights.form.windows.near[index] else far
            x = self._layer(index, x, inputs, at)
        states = [
            part[-one.answers :]
            for one, part in zip(
                inputs, rms_norm(x, weights.norm, sizes.eps).split(counts), strict=True
            )
        ]
        logits = weights.form.scales.of(weights.head(torch.cat(states)))
        answers = logits.split([one.answers for one in inputs])
        return [ForwardOutput(one, at) for one, at in zip(answers, states, strict=True)]

    def _layer(self, index: int, x: Tensor, inputs: Sequence[BlockInput], at: PassRows) -> Tensor:
        """Blocks through one layer, behind the new tokens of their texts. x: (rows, H) of blocks; returns the same shape"""
        weights, eps = self.weights, at.sizes.eps
        layer, counts = weights.layers[index], [len(one.token_ids) for one in inputs]
        around, gates = weights.convolutions[index] if weights.convolutions else (None, None)
        normed, kernels = rms_norm(x, layer.input_norm, eps), torch.empty(0)
        if around:
            normed, kernels = around.before(normed, counts)
        blocks = zip(inputs, normed.split(counts), strict=True)
        both = torch.cat([part for one, block in blocks for part in (one.states, block)])
        if not (around and gates):
            return layer.after(index, at, x, both)
        x = x + _along(layer.attention(index, at, both), kernels, counts)
        normed, kernels = gates.before(rms_norm(x, layer.post_norm, eps), counts)
        return x + _along(layer.gated(normed), kernels, counts)

    def _rows(
        self, inputs: Sequence[BlockInput], masks: Sequence[Tensor | None]
    ) -> list[CacheRows]:
        """Return where rows are stored and which keys blocks see. masks: (block, keys) bool of each; None for all"""
        sizes, found, begin = self.weights.form.config.sizes, [], 0
        for one, seen in zip(inputs, masks, strict=True):
            new, block = len(one.states), len(one.token_ids) if one.answers else 0
            at = Look(None, block <= FOLDED_ROWS)
            if seen is not None:
                at = look(seen, block, sizes.heads // sizes.kv_heads, self.weights.embedding)
            found.append(CacheRows(begin, begin + new + block, one.cache.layers, at, silent=new))
            begin += new + block
        return found

    def _angles(self, inputs: Sequence[BlockInput]) -> tuple[Tensor, Tensor]:
        """Cosines and sines of all rows."""
        positions = [position for one in inputs for position in one.positions]
        return self._rotary.at(positions)


class DFlashModel(CachedModel):
    """One conversation of a DFlash drafter, which predicts several positions in one pass.

    target_states: those of this conversation
    states: (depth, H), the head's input in the last block
    """

    decoder: DFlashDecoder

    def __init__(self, decoder: DFlashDecoder, target_states: Features) -> None:
        super().__init__(decoder)
        self.weights, self.target_states = decoder.weights, target_states
        self.words = decoder.weights.words
        self.states = torch.empty(0)
        # Tokens of the text. Fewer are cached: a token has no states before the target has read it.
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens of the text, the pending one included once a block was guessed."""
        return self._length

    def rollback(self, length: int) -> None:
        self._length = length
        super().rollback(min(length, self._cache.length))

    def read(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens, as far as the target has read them. Returns no logits, (0,): a draft is a block, see `guess`"""
        self._length += len(token_ids)
        for part in self._new(self._length):
            self._keep(part)
        return torch.empty(0)

    def guess(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens. returns: (depth, W) logits of the positions that follow"""
        self._length += len(token_ids)
        weights, pending = self.weights, self._length - 1
        *ahead, last = self._new(pending) or [range(0)]
        for part in ahead:
            self._keep(part)
        before, windows = self._cache.length + len(last), weights.form.windows
        seen = self._block_mask(before, causal=True) if weights.form.causal else None
        near = None
        if windows.rows:
            near = self._block_mask(before, causal=windows.causal)
            rows = torch.arange(pending, pending + weights.form.rows)[:, None]
            near[:, :before] &= rows - torch.arange(before) < windows.rows
        block = BlockInput(
            [token_ids[-1], *[weights.form.mask] * (weights.form.rows - 1)],
            [*last, *range(pending, pending + weights.form.rows)],
            seen, self._cache, weights.depth, states=self._mixed(last), near=near,
        )  # fmt: skip
        output = request_pass(self.decoder, block)
        self._cache.gather(range(len(last)))
        assert output.states is not None
        self.states = output.states
        return output.logits

    def _block_mask(self, before: int, *, causal: bool) -> Tensor:
        """(block, keys) bool: the keys that rows of a block see, `before` of them in front of the block."""
        rows = self.weights.form.rows
        seen = torch.ones(rows, before + rows, dtype=torch.bool)
        return seen.tril_(before) if causal else seen

    def _new(self, end: int) -> list[range]:
        """Return positions before `end` that the target has read and this has not, in chunks."""
        begin = self._cache.length
        parts = chunks(begin, min(end, self.target_states.length) - begin, self.decoder.chunk)
        return [range(begin + part.start, begin + part.stop) for part in parts]

    def _keep(self, part: range) -> None:
        """Cache keys and values of some positions."""
        states = self._mixed(part)
        one = BlockInput(
            [self.weights.form.mask] * len(part), part, None, self._cache, 0, states=states
        )
        request_pass(self.decoder, one)
        self._cache.gather(range(len(part)))

    def _mixed(self, part: range) -> Tensor:
        """(positions, H)"""
        weights = self.weights
        if not part:
            return weights.norm.new_empty(0, len(weights.norm))
        return weights.mixed(self.target_states.read(part.start, part.stop, weights.form.reads))
