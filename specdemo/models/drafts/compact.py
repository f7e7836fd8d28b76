"""The shipped kind of drafter: a few Llama layers that borrow the target's embedding and speak a reduced vocabulary.

A draft step must cost a small part of a target step. The head over the whole vocabulary would dominate it,
so only the rows of words that the target really says are kept; and layers are written out with fused
projections and a preallocated cache, because at this size Python and small operators are the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.engine.draft_plan import Chain, DraftPlan
from specdemo.engine.features import Features
from specdemo.engine.forward import immediate
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.tree import ancestor_mask, depths
from specdemo.kernels import packing
from specdemo.kernels import runtime as native
from specdemo.kernels.packing import Packed
from specdemo.kernels.runtime import Added, Inputs, NativeLayers, Talk
from specdemo.models.decoders.operators import Look, attend, look, rms_norm
from specdemo.models.drafts.text_words import TextWords

GROUP = 32  # weights that share a scale in the 4-bit layout
EPSILON = 1e-5  # of the norm over the target's states
Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class CompactConfig:
    """Shape of a compact draft, as in its config.json."""

    hidden_size: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float


@dataclass(frozen=True, slots=True)
class CompactLayer:
    """One decoder layer: fused query/key/value, output, fused gate/up, down."""

    input_norm: Tensor
    qkv: Linear
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear

    def matrices(self) -> tuple[Linear, ...]:
        """Its four products."""
        return self.qkv, self.output, self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class Injection:
    """What is added to a draft's states from the target's, of the token before (after EAGLE-3, Li 2503.01840).

    gain: (states x H,); project: states x H to H
    """

    gain: Tensor
    project: Linear


@dataclass(frozen=True, slots=True)
class MarkovHead:
    """DSpark's sequential stage. Words are places in the reduced vocabulary, W standing for any other.

    token: (W + 1, R); bias: R to W; confidence: (H + R,) and its constant; temperatures: (depth,)
    """

    token: Tensor
    bias: Linear
    confidence: Tensor
    constant: float
    temperatures: tuple[float, ...]

    def corrected(self, logits: Tensor, previous: int) -> Tensor:
        """A place's logits once the word before it is known, as new values. logits: (1, W). returns: the same shape"""
        logits = logits.clone()
        with torch.inference_mode():
            logits[:, : len(self.token) - 1] += self.bias(self.token[previous : previous + 1])
        return logits

    def survival(self, place: int, state: Tensor, previous: int) -> float:
        """How sure it is that a guess will be kept. state: (H,) of the place"""
        inputs = torch.cat([state.float(), self.token[previous].float()])
        logit = float(inputs @ self.confidence) + self.constant
        return 1 / (1 + math.exp(-logit / self.temperatures[place]))


@dataclass(frozen=True, slots=True)
class CompactWeights:
    """Shared, immutable weights.

    embedding: (V, H), the target's; words: what the head speaks
    extends: how many of the layers are a draft model's, below those that were trained on top of it
    reads: hidden states of the target that go in, by layer; inject: how, between the draft model and the rest
    depth: places that it guesses at once; mask: (depth - 1, H), what is added to the last known state for each
    causal: whether guessed places see only those before them
    native: the layers and the head as one compiled pass, where that runs
    """

    config: CompactConfig
    layers: tuple[CompactLayer, ...]
    norm: Tensor
    embedding: Tensor
    head: Linear
    words: ReducedVocabulary
    extends: int = 0
    reads: tuple[int, ...] = ()
    inject: Injection | None = None
    mask: Tensor | None = None
    depth: int = 1
    causal: bool = True
    markov: MarkovHead | None = None
    native: NativeLayers | None = None

    def text_words(self) -> TextWords:
        """What one conversation's text adds to `words`."""
        four_bit = isinstance(self.head, FourBitLinear)
        pack = _packed if self.native else None
        return TextWords(self.words, self.embedding, rounded if four_bit else _as_is, pack)


class FourBitLinear:
    """A bias-free linear map in 4-bit (asymmetric, groups of 32), which runs one row several times faster than bf16.

    packed: the same for the compiled pass; None where that does not run or does not have it
    """

    def __init__(self, weight: Tensor, *, in_pass: bool) -> None:
        levels, scale, zero = _levels(weight)
        levels = levels.reshape(weight.shape)
        self._levels = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.to(torch.int32), 1)
        both = torch.stack([scale, zero], dim=-1).transpose(0, 1)
        self._scales_and_zeros = both.contiguous().to(weight.dtype)
        fits = in_pass and weight.dtype == torch.bfloat16 and native.runs_here()
        self.packed = packing.pack_codes(levels, scale, zero) if fits else None

    def __call__(self, x: Tensor) -> Tensor:
        """x: (rows, in). returns: (rows, out)"""
        return torch.ops.aten._weight_int4pack_mm_for_cpu(
            x, self._levels, GROUP, self._scales_and_zeros
        )


def pack_linear(weight: Tensor, *, four_bit: bool, in_pass: bool = False) -> Linear:
    """A bias-free linear map, in 4-bit where the CPU kernel takes its shape, else in the weight's dtype.

    weight: (out, in); in_pass: of a layer or the head of a drafter, which the compiled pass reads too
    """
    out_features, in_features = weight.shape
    if not four_bit or weight.device.type != "cpu" or in_features % GROUP or out_features % 32:
        return lambda x: F.linear(x, weight)
    return FourBitLinear(weight, in_pass=in_pass)


def compiled(weights: CompactWeights) -> CompactWeights:
    """The same with a compiled pass where everything that it needs is there."""
    config, layers = weights.config, weights.layers
    linear = [one for layer in layers for one in layer.matrices()] + [weights.head]
    packed = [one.packed for one in linear if isinstance(one, FourBitLinear) and one.packed]
    if not layers or len(packed) < len(linear):
        return weights
    shape = native.Shape(
        config.num_heads, config.num_key_value_heads, config.head_dim, config.hidden_size,
        len(packed[2].scales) * 32 // 2, GROUP, config.rms_norm_eps, config.head_dim**-0.5,
    )  # fmt: skip
    if not native.fits(shape, len(weights.words.ids)):
        return weights
    described = [
        native.NativeLayer(
            layer.input_norm.float(), layer.post_norm.float(), *packed[4 * n : 4 * n + 4]
        )
        for n, layer in enumerate(layers)
    ]
    table, _ = packing.meanings(packing.AFFINE)
    layers_ = native.NativeLayers(described, shape, table, packed[-1], weights.norm.float())
    return replace(weights, native=layers_)


def _levels(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Levels 0 to 15 (out, groups, 32), and each group's scale and zero: (level - 8) * scale + zero is the weight."""
    groups = weight.float().reshape(weight.shape[0], -1, GROUP)
    low, high = groups.amin(-1), groups.amax(-1)
    scale = ((high - low) / 15).clamp(min=1e-8)
    levels = ((groups - low[..., None]) / scale[..., None]).round_().clamp_(0, 15)
    return levels, scale, low + 8 * scale


def _packed(weight: Tensor) -> Packed:
    """A matrix for the compiled pass."""
    levels, scale, zero = _levels(weight)
    return packing.pack_codes(levels.reshape(weight.shape), scale, zero)


def _as_is(weight: Tensor) -> Tensor:
    return weight


def rounded(weight: Tensor) -> Tensor:
    """A matrix with the values that `pack_linear` computes with; unchanged where it stays as it is."""
    if weight.shape[1] % GROUP or weight.shape[0] % 32:
        return weight
    levels, scale, zero = _levels(weight)
    # Scales and zeros are kept in bf16.
    scale, zero = (x.bfloat16().float()[..., None] for x in (scale, zero))
    return ((levels - 8) * scale + zero).reshape(weight.shape).to(weight.dtype)


class CompactModel:
    """One conversation of a compact drafter; implements `LanguageModel`.

    features: the target's states of this conversation, for weights that read them
    adjust: what a visitor's own corrections make of the states that the head sees, (rows, H) to the same
    """

    BLOCK = 512

    def __init__(self, weights: CompactWeights, features: Features | None = None) -> None:
        self.weights = weights
        self.features = features
        self._text_words = weights.text_words()
        self.length = 0
        self._behind = torch.empty(0)  # (rows, H): what the last pass gave, before the norm
        self.adjust: Callable[[Tensor], Tensor] | None = None
        self._grown: list[int] = []  # parents of the nodes that `grow` has read
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._cos = self._sin = torch.empty(0)
        self._cos_32 = self._sin_32 = torch.empty(0)  # the same for the compiled pass
        self._places = np.empty(0)  # addresses of keys and values, for the compiled pass

    def rollback(self, length: int) -> None:
        """Forget every cached token from position `length` on, and what was grown."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length}: {self.length} tokens are cached")
        self._grown.clear()
        self._text_words.forget(length)
        self.length = length

    @property
    def words(self) -> ReducedVocabulary:
        """What it can say after the text that it has read."""
        return self._text_words.words

    def meet(self, token_ids: Sequence[int]) -> None:
        """Tokens are about to be appended: from now on they can be said."""
        self._text_words.read(self.length, token_ids)

    @property
    def states(self) -> Tensor:
        """What went into the head in the last pass, before `adjust`: (rows, H)."""
        return self._norm(self._behind.to(self.weights.norm.dtype), self.weights.norm)

    def read(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens. returns: (W,) float32 logits over the reduced vocabulary."""
        self.meet(token_ids)
        return self.read_inputs(self.weights.embedding[list(token_ids)])[0]

    @torch.inference_mode()
    def read_inputs(self, x: Tensor, guesses: int = 0) -> Tensor:
        """Append tokens by what goes into the first layer. x: (rows, H)

        guesses: places after them that are guessed in the same pass, and not kept
        returns: (1 + guesses, W) float32 logits of the last token and the guessed places
        """
        self._grown.clear()
        start, rows = self.length, len(x)
        end = start + rows
        seen = None if rows + guesses == 1 else self._causal(rows + guesses, end + guesses)
        if guesses and not self.weights.causal:
            assert seen is not None
            seen[rows:, end:] = True
        added = self._known(start, end)
        words = self._run(x, slice(start, end + guesses), seen, start, 1 + guesses, added, guesses)
        self.length = end
        return words

    @torch.inference_mode()
    def draft_on(self, token_ids: Sequence[int], guide: DraftPlan) -> Chain | None:
        """Append tokens and draft a chain after them in the compiled pass, see `LanguageModel.drafting`."""
        weights, start, rows = self.weights, self.length, len(token_ids)
        if weights.native is None or self.adjust or weights.depth > 1 or guide.most < 1:
            return None
        self._grown.clear()
        self.meet(token_ids)
        end = start + rows
        self._make_room(end + guide.most)
        places = slice(start, end + guide.most)
        cos, sin = self._cos_32[places], self._sin_32[places]
        seen = None if rows == 1 else self._causal(rows, end)
        x = weights.embedding[list(token_ids)].float()
        talk, added = self._talk(rows, start, seen), self._added(self._known(start, end))
        inputs = Inputs(x, cos, sin, [talk], added, self._text_words.further)
        chain = weights.native.draft_on(inputs, guide, self.words, weights.embedding)
        self.length = end + len(chain.columns) - 1
        return chain

    def guess(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens and guess what follows them in one pass. returns: (depth, W) float32 logits"""
        self.meet(token_ids)
        return self.read_inputs(
            self.weights.embedding[list(token_ids)], guesses=self.weights.depth - 1
        )

    def grow(self, token_ids: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Read nodes of a tree that hangs on the cached text; nothing of it is counted.

        parents: index among all nodes grown so far, -1 = follows the text
        returns: (N, W) float32 logits, row i follows node i
        """
        return self.grow_inputs(self.weights.embedding[list(token_ids)], parents)

    @torch.inference_mode()
    def grow_inputs(self, x: Tensor, parents: Sequence[int]) -> Tensor:
        """The same by what goes into the first layer. x: (N, H). returns: (N, W) float32 logits"""
        first = len(self._grown)
        self._grown += parents
        tree = self._grown
        positions = torch.tensor([self.length + depth - 1 for depth in depths(tree)[first:]])
        seen = torch.ones(len(x), self.length + len(tree), dtype=torch.bool)
        seen[:, self.length :] = ancestor_mask(tree)[first:]
        mask = seen.to(self.weights.embedding.device)
        return self._run(x, positions, mask, self.length + first, len(x))

    # They ask for nothing yet: the passes are computed at once.
    reading, growing = immediate(read), immediate(grow)
    drafting, guessing = immediate(draft_on), immediate(guess)

    def _known(self, start: int, end: int) -> tuple[int, Tensor] | None:
        """What the target's states add to the tokens from place `start` on: from which row, and (rows, H)."""
        inject = self.weights.inject
        if inject is None or self.features is None:
            return None
        before = max(start, 1)  # nothing was known before the first token
        states = self.features.read(before - 1, end - 1, self.weights.reads)
        if not len(states):
            return None
        hidden = self.weights.config.hidden_size
        norm = F.rms_norm(states.unflatten(-1, (-1, hidden)), (hidden,), eps=EPSILON).flatten(-2)
        return before - start, inject.project(norm.to(inject.gain.dtype) * inject.gain)

    def _run(
        self,
        x: Tensor,
        positions: Tensor | slice,
        seen: Tensor | None,
        start: int,
        last: int,
        added: tuple[int, Tensor] | None = None,
        guesses: int = 0,
    ) -> Tensor:
        """Read rows into the slots from `start` on. returns: (last, W) float32 logits of the last ones

        positions, seen: of the rows and of the guessed places, which join above the draft model
        """
        weights, config, rows = self.weights, self.weights.config, len(x)
        self._make_room(start + rows + guesses)
        if weights.native:
            return self._run_native(x, positions, seen, start, last, added, guesses)
        cos, sin = self._cos[positions], self._sin[positions]
        group = config.num_heads // config.num_key_value_heads
        below = seen[:rows, : start + rows] if seen is not None else None
        at = look(below, rows, group, weights.embedding)
        for index, layer in enumerate(weights.layers):
            if index == weights.extends:
                x = self._joined(x, added, guesses)
                at = look(seen, len(x), group, weights.embedding) if guesses else at
            x = x + layer.output(
                self._attend(index, layer, x, cos[: len(x)], sin[: len(x)], at, start)
            )
            gate, up = layer.gate_up(self._norm(x, layer.post_norm)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        self._behind = x[-last:]
        return self._said()

    def _said(self) -> Tensor:
        """(rows, W) float32 logits of what the last pass gave."""
        states = self.adjust(self.states) if self.adjust else self.states
        words = torch.cat([self.weights.head(states), self._text_words.logits(states)], dim=-1)
        return words.float()

    def _run_native(
        self,
        x: Tensor,
        positions: Tensor | slice,
        seen: Tensor | None,
        start: int,
        last: int,
        added: tuple[int, Tensor] | None,
        guesses: int,
    ) -> Tensor:
        """`_run` by the compiled pass, in two parts where rows join in between."""
        weights, run = self.weights, self.weights.native.run
        all_rows, layers, begun = len(x) + guesses, len(weights.layers), 0
        cos, sin = self._cos_32[positions], self._sin_32[positions]
        x = x.float().contiguous()
        if guesses:  # more rows join above the draft model
            begun = weights.extends
            if begun:
                talk = self._talk(len(x), start, seen)
                _, x = run(Inputs(x, cos, sin, [talk]), 0, begun, final=True)
            x, added = self._joined(x, added, guesses), None
        asked = () if self.adjust else range(all_rows - last, all_rows)
        talk = self._talk(all_rows, start, seen)
        inputs = Inputs(x, cos, sin, [talk], self._added(added), self._text_words.further)
        words, x = run(inputs, begun, layers, asked=asked, final=True)
        self._behind = x[-last:]
        return self._said() if self.adjust else words

    def _added(self, known: tuple[int, Tensor] | None) -> Added | None:
        """What the target's states add, for the compiled pass."""
        if known is None:
            return None
        first, rows = known
        return Added(self.weights.extends, first, rows.float().contiguous())

    def _joined(self, x: Tensor, added: tuple[int, Tensor] | None, guesses: int) -> Tensor:
        """What comes in above the draft model: the target's states, and rows for guessed places."""
        if added is not None:
            place, more = added
            x = x.clone()
            x[place : place + len(more)] += more
        if guesses:
            assert self.weights.mask is not None
            x = torch.cat([x, x[-1:] + self.weights.mask])
        return x

    def _talk(self, rows: int, start: int, seen: Tensor | None) -> Talk:
        if seen is not None:
            seen = seen[:rows, : start + rows].contiguous()
        return Talk(rows, start, self.length, seen, self._capacity, self._places)

    def _attend(
        self,
        index: int,
        layer: CompactLayer,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        at: Look,
        start: int,
    ) -> Tensor:
        """Attention of one layer. x: (rows, H). returns: (rows, heads * head_dim)"""
        config = self.weights.config
        heads, kv_heads, rows = config.num_heads, config.num_key_value_heads, x.shape[0]
        qkv = layer.qkv(self._norm(x, layer.input_norm)).view(
            rows, heads + 2 * kv_heads, config.head_dim
        )
        rotated = _rotate(qkv[:, : heads + kv_heads], cos, sin)
        end = start + rows
        self._keys[index][:, start:end] = rotated[:, heads:].transpose(0, 1)
        self._values[index][:, start:end] = qkv[:, heads + kv_heads :].transpose(0, 1)
        keys, values = (cache[index][None, :, :end] for cache in (self._keys, self._values))
        return attend(rotated[:, :heads], keys, values, at, config.head_dim**-0.5)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.weights.config.rms_norm_eps)

    def _causal(self, rows: int, end: int) -> Tensor:
        """(rows, end) bool: row r sees everything up to itself."""
        device = self.weights.embedding.device
        return torch.ones(rows, end, dtype=torch.bool, device=device).tril_(diagonal=end - rows)

    def _make_room(self, end: int) -> None:
        if end <= self._capacity:
            return
        config, embedding = self.weights.config, self.weights.embedding
        self._capacity = -(-max(end, 2 * self._capacity) // self.BLOCK) * self.BLOCK
        shape = (config.num_key_value_heads, self._capacity, config.head_dim)
        for tensors in (self._keys, self._values):
            old, tensors[:] = (
                list(tensors),
                [embedding.new_zeros(shape) for _ in self.weights.layers],
            )
            for before, after in zip(old, tensors, strict=False):
                after[:, : before.shape[1]] = before
        self._cos, self._sin = _rotary_tables(config, self._capacity, embedding)
        if self.weights.native:
            self._cos_32, self._sin_32 = (
                table[:, 0].float().contiguous() for table in (self._cos, self._sin)
            )
            pairs = zip(self._keys, self._values, strict=True)
            places = [(keys.data_ptr(), values.data_ptr()) for keys, values in pairs]
            self._places = np.array(places, dtype=np.int64)


def _rotary_tables(config: CompactConfig, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of the rotary embedding (RoFormer 2104.09864), (length, 1, head_dim) each."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), config.rope_theta**-half)
    cos, sin = angles.cos().repeat(1, 2), torch.cat([-angles.sin(), angles.sin()], dim=-1)
    return cos[:, None].to(like), sin[:, None].to(like)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads by position. x: (rows, heads, head_dim)"""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin
