"""A compact draft's passes: rows of any number of conversations go through its layers together, compiled or in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import SimpleNamespace

import torch
from torch import Tensor

from specdemo.engine.passes import ForwardInput, ForwardOutput, chunk_rows
from specdemo.engine.prefix import FeatureReader
from specdemo.engine.target import CachedModel
from specdemo.kernels import packing, runtime
from specdemo.kernels.runtime import (
    CompiledLayers,
    Drafting,
    Injected,
    LayerWeights,
    Rows,
    SequenceRows,
    Shape,
)
from specdemo.models.decoders import layer as layers
from specdemo.models.decoders.layer import CacheRows
from specdemo.models.decoders.operators import look, rms_norm
from specdemo.models.decoders.rotary import (
    ComputeTables,
    RotaryTables,
    frequency_tables,
    rotary_frequencies,
)
from specdemo.models.networks.compact_weights import CompactConfig, CompactWeights
from specdemo.models.networks.four_bit import GROUP, FourBitLinear
from specdemo.models.networks.text_words import TextWords

Adjust = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class DraftInput(ForwardInput):
    """Rows of one conversation of a compact draft, and guessed positions after them, which join above the draft model.

    positions, seen, answers: of the rows and of the guessed positions
    text: what its text adds to the vocabulary
    states: (rows, H), what goes into the first layer; None for the tokens' embeddings
    injected: what the target's states add above the draft model: from which row on, and (n, H)
    guesses: how many positions are guessed
    adjust: what a visitor's own corrections make of the states that the head sees, (answers, H) to the same
    """

    text: TextWords | None = None
    states: Tensor | None = None
    injected: tuple[int, Tensor] | None = None
    guesses: int = 0
    adjust: Adjust | None = None


class CompactDecoder:
    """Implements `Decoder`. An answer's `states` are one tensor, (answers, H), of what the head saw before its norm.

    With the compiled pass a row's answer is the same, bit for bit, in whatever company it is read.

    compiled: the layers and the head as one compiled pass; None where that does not run
    """

    def __init__(self, weights: CompactWeights, *, compiled: bool = True) -> None:
        self.weights = weights
        self.config = SimpleNamespace(
            num_hidden_layers=len(weights.layers), vocab_size=weights.embedding.shape[0]
        )
        hidden = weights.config.hidden_size
        device = weights.embedding.device.type
        self.chunk = chunk_rows(device, len(weights.layers), hidden, 4 * hidden)
        self.compiled = compiled_layers(weights) if compiled else None
        self._rotary = RotaryTables(tables(weights.config, weights.embedding))

    def open(self, target: CachedModel) -> FeatureReader:
        """Start one conversation next to the target that it drafts for."""
        from specdemo.models.networks.compact import CompactModel

        return FeatureReader(CompactModel(self, target.features))

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Answer passes of different conversations together."""
        inputs = [_draft_input(one) for one in passes]
        x = _joined([self._embedded(one) for one in inputs])
        if self.compiled is not None:
            return self._run_compiled(self.compiled, inputs, x)
        return self._run_torch(inputs, x)

    def normed(self, final: Tensor) -> Tensor:
        """What goes into the head. final: (rows, H), as answers give it"""
        weights = self.weights
        return rms_norm(final.to(weights.norm.dtype), weights.norm, weights.config.rms_norm_eps)

    def _embedded(self, one: DraftInput) -> Tensor:
        if one.states is not None:
            return one.states
        if self.weights.mixed:
            return self.weights.mixed.rows(one.token_ids)
        if len(one.token_ids) == 1:  # a view: looking rows up takes ten times as long
            return self.weights.embedding[one.token_ids[0] : one.token_ids[0] + 1]
        return self.weights.embedding[list(one.token_ids)]

    def _logits(self, one: DraftInput, final: Tensor) -> Tensor:
        """(answers, W) float32 logits by torch. final: (answers, H)"""
        states = self.normed(final)
        states = one.adjust(states) if one.adjust else states
        logits = self.weights.head(states)
        if one.text is not None:
            logits = torch.cat([logits, one.text.logits(states)], dim=-1)
        return logits.float()

    def _run_torch(self, inputs: Sequence[DraftInput], x: Tensor) -> list[ForwardOutput]:
        weights = self.weights
        sizes = weights.config.sizes
        beside = weights.beside
        joins = beside is None and any(one.injected or one.guesses for one in inputs)
        rows, angles = self._cache_rows(inputs, guesses=False), self._angles(inputs, guesses=False)
        for index, layer in enumerate(weights.layers):
            if index == weights.extends and joins:
                x = self._join(inputs, x)
                rows, angles = (
                    self._cache_rows(inputs, guesses=True),
                    self._angles(inputs, guesses=True),
                )
            normed = rms_norm(x, layer.input_norm, sizes.eps)
            if beside and index == 0:
                x = self._states(inputs, x)
                own = rms_norm(x, beside.norm, sizes.eps)
                normed = torch.cat([normed, own], dim=-1)
                x = own if beside.normed else x
            x = layers.after(layer, index, sizes, x, normed, angles, rows)
        finals = [part[-one.answers :] for one, part in zip(inputs, _split(x, inputs), strict=True)]
        return [
            ForwardOutput(self._logits(one, final), (final,))
            for one, final in zip(inputs, finals, strict=True)
        ]

    def _states(self, inputs: Sequence[DraftInput], like: Tensor) -> Tensor:
        """(rows, H): the states that stand beside the rows' embeddings, zero where there are none."""
        states, begin = torch.zeros_like(like), 0
        for one in inputs:
            if one.injected is not None:
                first, more = one.injected
                states[begin + first : begin + first + len(more)] = more
            begin += len(one.token_ids)
        return states

    def _cache_rows(self, inputs: Sequence[DraftInput], *, guesses: bool) -> list[CacheRows]:
        """Where the rows lie, with or without the guessed positions."""
        counts = [len(one.positions) - (0 if guesses else one.guesses) for one in inputs]
        sizes, found = self.weights.config.sizes, []
        for one, count, end in zip(inputs, counts, accumulate(counts), strict=True):
            seen = one.seen
            if seen is not None:
                seen = seen[:count, : one.cache.start + count]
            at = look(seen, count, sizes.heads // sizes.kv_heads, self.weights.embedding)
            found.append(CacheRows(end - count, end, one.cache, at))
        return found

    def _angles(self, inputs: Sequence[DraftInput], *, guesses: bool) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the rows, with or without the guessed positions."""
        counts = [len(one.positions) - (0 if guesses else one.guesses) for one in inputs]
        positions = [
            p for one, count in zip(inputs, counts, strict=True) for p in one.positions[:count]
        ]
        return self._rotary.at(positions)

    def _join(self, inputs: Sequence[DraftInput], x: Tensor) -> Tensor:
        """What joins above the draft model: the target's states, and rows for guessed positions."""
        counts, parts = [len(one.positions) - one.guesses for one in inputs], []
        for one, part in zip(inputs, x.split(counts), strict=True):
            if one.injected is not None:
                first, more = one.injected
                part = part.clone()
                part[first : first + len(more)] += more
            parts.append(part)
            if one.guesses:
                assert self.weights.mask is not None
                parts.append(part[-1:] + self.weights.mask)
        return torch.cat(parts)

    def _run_compiled(
        self, compiled: CompiledLayers, inputs: Sequence[DraftInput], x: Tensor
    ) -> list[ForwardOutput]:
        """In two parts where guessed positions join in between."""
        weights, x = self.weights, x.float()
        cos, sin = self._rotary.full(max(max(one.positions) + _more(one) for one in inputs) + 1)
        begun, joined = 0, any(one.guesses for one in inputs)
        if joined:
            begun = weights.extends
            if begun:
                below = [
                    SequenceRows(one.positions[: -one.guesses or None], one.cache, _seen_below(one))
                    for one in inputs
                ]
                x = _final(compiled.run(Rows(x, cos, sin, below), 0, begun, final=True))
            x = self._join(inputs, x)
        sequences = [
            SequenceRows(
                one.positions, one.cache, one.seen,
                answers=0 if one.adjust else one.answers,
                injected=None if joined else _injected(one),
                extra=one.text.extra if one.text else None,
                drafting=Drafting(one.plan, one.text.words.ids) if one.plan and one.text else None,
            )
            for one in inputs
        ]  # fmt: skip
        rows = Rows(x, cos, sin, sequences, weights.extends, self._drafted_from(inputs))
        found = compiled.run(rows, begun, final=True)
        outputs: list[ForwardOutput] = []
        parts = _split(_final(found), inputs)
        for one, part, logits, chain in zip(inputs, parts, found.logits, found.chains, strict=True):
            final = part if part.shape[0] == one.answers else part[-one.answers :]
            logits = self._logits(one, final) if one.adjust else logits
            outputs.append(ForwardOutput(logits, (final,), chain))
        return outputs

    def _drafted_from(self, inputs: Sequence[DraftInput]) -> Tensor:
        """(V, H): the rows of all tokens that may be drafted in a pass."""
        if not self.weights.mixed:
            return self.weights.embedding
        for one in inputs:
            if one.plan and one.text:
                self.weights.mixed.read(one.text.words.ids)
        return self.weights.mixed.table


def compiled_layers(weights: CompactWeights) -> CompiledLayers | None:
    """A draft's compiled pass, where everything that it needs is there."""
    config = weights.config
    linear = [one for layer in weights.layers for one in layer.matrices()] + [weights.head]
    packed = [one.packed for one in linear if isinstance(one, FourBitLinear) and one.packed]
    if not weights.compiles or len(packed) < len(linear):
        return None
    inner = len(packed[2].codes) * packing.BLOCK // 2
    shape = Shape(
        config.num_heads, config.num_key_value_heads, config.head_dim, config.hidden_size, inner, GROUP,
        config.rms_norm_eps, config.head_dim**-0.5,
    )  # fmt: skip
    if not runtime.fits(shape, len(weights.words.ids)):
        return None
    described = [
        LayerWeights(layer.input_norm.float(), layer.post_norm.float(), *packed[4 * n : 4 * n + 4])  # type: ignore[arg-type]
        for n, layer in enumerate(weights.layers)
    ]
    table, _ = runtime.meanings(packing.AFFINE)
    feedback = None if weights.feedback is None else weights.feedback.float()
    return CompiledLayers(described, shape, table, packed[-1], weights.norm.float(), feedback)


def _draft_input(one: ForwardInput) -> DraftInput:
    """A compact draft is also given plain passes, by those who measure it."""
    if isinstance(one, DraftInput):
        return one
    return DraftInput(one.token_ids, one.positions, one.seen, one.cache, one.answers)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all conversations."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _split(x: Tensor, inputs: Sequence[DraftInput]) -> Sequence[Tensor]:
    """The rows of each conversation, guessed positions included."""
    if len(inputs) == 1:
        return [x]
    parts: Sequence[Tensor] = x.split([len(one.positions) for one in inputs])
    return parts


def _final(found: runtime.Results) -> Tensor:
    assert found.final is not None
    return found.final


def _more(one: DraftInput) -> int:
    """Positions that a draft reads after the rows."""
    return one.plan.most - 1 if one.plan else 0


def _seen_below(one: DraftInput) -> Tensor | None:
    """What the rows see without the guessed positions."""
    rows = len(one.positions) - one.guesses
    return one.seen[:rows, : one.cache.start + rows] if one.seen is not None else None


def _injected(one: DraftInput) -> Injected | None:
    if one.injected is None:
        return None
    first, rows = one.injected
    return Injected(first, rows.float().contiguous())


def tables(config: CompactConfig, like: Tensor) -> ComputeTables:
    """A draft's rotary embedding, see `RotaryTables`."""
    if config.rope:
        return frequency_tables(torch.tensor(config.rope.frequencies), like, config.rope.scale)
    return frequency_tables(rotary_frequencies(config.head_dim, config.rope_theta), like)
