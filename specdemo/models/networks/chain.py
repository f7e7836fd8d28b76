"""Drafters that guess one token after another, or a block after the last: weights, passes, and one conversation.

They have a few Llama layers, the target's embedding and a reduced vocabulary. A draft step must cost a small part of
a target step, and a head over the whole vocabulary would dominate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import SimpleNamespace

import torch
from torch import Tensor

from specdemo.engine.attention import causal
from specdemo.engine.passes import ForwardInput, ForwardOutput, chunk_rows, chunks, request_pass
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel, FeatureReader, Features, PrefixReader
from specdemo.engine.types import depths
from specdemo.kernels import packing, runtime
from specdemo.kernels.plan import Chain, DraftPlan
from specdemo.kernels.runtime import (
    CompiledLayers,
    Drafting,
    Injected,
    LayerWeights,
    Matrix,
    Projection,
    Rows,
    SequenceRows,
    Shape,
)
from specdemo.models.decoders.layer import CacheRows, LlamaLayer, PassRows
from specdemo.models.decoders.operators import look, rms_norm
from specdemo.models.networks.four_bit import GROUP_WEIGHTS, FourBitLinear, Linear
from specdemo.models.networks.parts import (
    MOST_ADDED,
    Adjust,
    CompactConfig,
    Corrector,
    Injection,
    MixedEmbedding,
    TextWords,
)


@dataclass(frozen=True, slots=True)
class CompactWeights:
    """Shared, immutable weights.

    embedding: (V, H), the target's; words: the reduced vocabulary of the head
    mixed: replaces the embedding as the first layer's input; it has the rows of `words`, and a pass adds those that it reads,
        so all tokens that can be drafted have one
    output: (V, H), the target's own head if that is another matrix; None for the embedding
    extends: number of layers that are a draft model's, below those that were trained on top of it
    reads: hidden states of the target that are read, by layer; inject: how, between the draft model and the rest
    feedback: (H,) gain per channel on the drafter's own previous state, which replaces the target's states if the
        target has not read that far; None for no replacement
    feeds_normed: that state has passed the last norm
    state_norm: (H,) of states that the first layer's attention reads next to embeddings, which doubles its inputs (EAGLE-3);
        None if states are added to embeddings. With it the text starts with its second token, the first one with a
        state before it
    normed_residual: the residual path contains those states after that norm, not before it
    own_head: the head is not a part of the target's, so tokens of a text cannot be added to it
    depth: positions that are guessed in one pass
    mask: (depth - 1, H), added to the last known state for each guessed position but the first
    causal: guessed positions see only those before them
    """

    config: CompactConfig
    layers: tuple[LlamaLayer, ...]
    norm: Tensor
    embedding: Tensor
    head: Linear
    words: ReducedVocabulary
    extends: int = 0
    reads: tuple[int, ...] = ()
    inject: Injection | None = None
    mixed: MixedEmbedding | None = None
    feedback: Tensor | None = None
    feeds_normed: bool = True
    state_norm: Tensor | None = None
    normed_residual: bool = False
    own_head: bool = False
    output: Tensor | None = None
    mask: Tensor | None = None
    depth: int = 1
    causal: bool = True
    markov: Corrector | None = None

    @property
    def head_rows(self) -> Tensor:
        """The target's head, (V, H)."""
        return self.embedding if self.output is None else self.output


@dataclass(frozen=True, slots=True)
class DraftInput(ForwardInput):
    """Rows of one conversation, and guessed positions after them, which join above the draft model.

    positions, seen, answers: of the rows and of the guessed positions
    text: the text's additional vocabulary
    states: (rows, H), the first layer's input; None for the tokens' embeddings
    injected: states of the target that join above the draft model
    guesses: number of guessed positions
    """

    text: TextWords = field(kw_only=True)
    states: Tensor | None = None
    injected: Injected | None = None
    guesses: int = 0
    adjust: Adjust | None = None

    def seen_by(self, count: int) -> Tensor | None:
        """Which keys the first `count` positions see: (count, keys) bool; None as in `seen`."""
        return None if self.seen is None else self.seen[:count, : self.cache.start + count]


class CompactDecoder:
    """Implements `Decoder`. A pass's `states` are one tensor, (answers, H): the head's input before its norm.

    With the compiled pass a row's logits are the same, bit for bit, whichever rows share its pass.

    compiled: the layers and the head as one compiled pass; None if that is not supported here
    """

    def __init__(self, weights: CompactWeights) -> None:
        self.weights = weights
        self.config = SimpleNamespace(
            num_hidden_layers=len(weights.layers), vocab_size=weights.embedding.shape[0]
        )
        hidden = weights.config.hidden_size
        device = weights.embedding.device.type
        self.chunk = chunk_rows(device, len(weights.layers), hidden, 4 * hidden)
        self.compiled = compiled_layers(weights)
        self._table = weights.mixed.table if weights.mixed else weights.embedding
        self._rotary = weights.config.rotary_tables(weights.embedding)

    def open(self, target: CachedModel) -> PrefixReader:
        if not self.weights.reads:
            return PrefixReader(CompactModel(self))
        return FeatureReader(CompactModel(self, target.features))

    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        inputs = [one for one in passes if isinstance(one, DraftInput)]
        assert len(inputs) == len(passes), "a draft's pass reads more than tokens"
        parts = [self._embedded(one) for one in inputs]
        x = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.compiled is not None:
            return self._run_compiled(self.compiled, inputs, x)
        return self._run_torch(inputs, x)

    def normed(self, final: Tensor) -> Tensor:
        """Return the head's input. final: (rows, H), the states of a pass"""
        weights = self.weights
        return rms_norm(final.to(weights.norm.dtype), weights.norm, weights.config.sizes.eps)

    def _embedded(self, one: DraftInput) -> Tensor:
        if one.states is not None:
            return one.states
        if self.weights.mixed:
            self.weights.mixed.read(one.token_ids)
        if self.compiled:
            return runtime.rows_of(self._table, one.token_ids)
        return self._table[list(one.token_ids)]

    @torch.inference_mode()
    def _logits(self, one: DraftInput, final: Tensor) -> Tensor:
        """(answers, W) float32 logits in torch. final: (answers, H)"""
        states = self.normed(final)
        states = one.adjust(states) if one.adjust else states
        return torch.cat([self.weights.head(states), one.text.logits(states)], dim=-1).float()

    @torch.inference_mode()
    def _run_torch(self, inputs: Sequence[DraftInput], x: Tensor) -> list[ForwardOutput]:
        weights, sizes = self.weights, self.weights.config.sizes
        state_norm = weights.state_norm
        joins = state_norm is None and any(one.injected or one.guesses for one in inputs)
        at = self._layout(inputs, [len(one.token_ids) for one in inputs])
        for index, layer in enumerate(weights.layers):
            if index == weights.extends and joins:
                x = self._guessed(inputs, (x + self._states(inputs, x)).to(x.dtype))
                at = self._layout(inputs, [len(one.positions) for one in inputs])
            normed = rms_norm(x, layer.input_norm, sizes.eps)
            if state_norm is not None and index == 0:
                x = self._states(inputs, x).to(x.dtype)
                own = rms_norm(x, state_norm, sizes.eps)
                normed = torch.cat([normed, own], dim=-1)
                x = own if weights.normed_residual else x
            x = layer.after(index, at, x, normed)
        parts = x.split([len(one.positions) for one in inputs])
        finals = [part[-one.answers :] for one, part in zip(inputs, parts, strict=True)]
        return [
            ForwardOutput(self._logits(one, final), final)
            for one, final in zip(inputs, finals, strict=True)
        ]

    def _states(self, inputs: Sequence[DraftInput], like: Tensor) -> Tensor:
        """(rows, H) float32: the target's states of rows that have one, else zeros."""
        states, begin = torch.zeros_like(like, dtype=torch.float32), 0
        for one in inputs:
            if one.injected is not None:
                first = begin + one.injected.first
                states[first : first + len(one.injected.rows)] = one.injected.rows
            begin += len(one.token_ids)
        return states

    def _layout(self, inputs: Sequence[DraftInput], counts: Sequence[int]) -> PassRows:
        """Return the rows of the first `counts` positions of each conversation."""
        sizes, found = self.weights.config.sizes, []
        positions: list[int] = []
        for one, count, end in zip(inputs, counts, accumulate(counts), strict=True):
            group = sizes.heads // sizes.kv_heads
            at = look(one.seen_by(count), count, group, self.weights.embedding, one.cache.start)
            found.append(CacheRows(end - count, end, one.cache.layers, at))
            positions += one.positions[:count]
        return PassRows(sizes, self._rotary.at(positions), found)

    @torch.inference_mode()
    def _guessed(self, inputs: Sequence[DraftInput], x: Tensor) -> Tensor:
        """Insert rows for guessed positions."""
        parts = []
        for one, part in zip(inputs, x.split([len(one.token_ids) for one in inputs]), strict=True):
            parts.append(part)
            if one.guesses:
                assert self.weights.mask is not None
                parts.append(part[-1:] + self.weights.mask)
        return torch.cat(parts)

    def _run_compiled(
        self, compiled: CompiledLayers, inputs: Sequence[DraftInput], x: Tensor
    ) -> list[ForwardOutput]:
        """Run the compiled pass, in two parts if guessed positions join in between."""
        weights, x = self.weights, x.float()
        drafted = (one.plan.most - 1 if one.plan else 0 for one in inputs)
        ends = (max(one.positions) + more for one, more in zip(inputs, drafted, strict=True))
        cos, sin = self._rotary.full(max(ends) + 1)
        start, joined = 0, any(one.guesses for one in inputs)
        if joined:
            start = weights.extends
            below = [
                SequenceRows(
                    one.positions[: len(one.token_ids)], one.cache, one.seen_by(len(one.token_ids)),
                    injected=one.injected,
                )
                for one in inputs
            ]  # fmt: skip
            found = compiled.run(Rows(x, cos, sin, below, start), 0, start, final=True)
            assert found.final is not None
            x = self._guessed(inputs, found.final)
        sequences = [
            SequenceRows(
                one.positions, one.cache, one.seen,
                answers=0 if one.adjust else one.answers,
                injected=None if joined else one.injected,
                added=one.text.added,
                drafting=_drafting(one.plan, one.text) if one.plan else None,
            )
            for one in inputs
        ]  # fmt: skip
        rows = Rows(x, cos, sin, sequences, weights.extends, self._table)
        found = compiled.run(rows, start, final=True)
        assert found.final is not None
        outputs: list[ForwardOutput] = []
        end = 0
        for one, logits, chain in zip(inputs, found.logits, found.chains, strict=True):
            end += len(one.positions)
            final = found.final[end - one.answers : end]
            logits = self._logits(one, final) if one.adjust else logits
            outputs.append(ForwardOutput(logits, final, chain))
        return outputs


class CompactModel(CachedModel):
    """One conversation of a drafter, which has more inputs than tokens: the target's states, its own, and the text's words.

    decoder: shared by all conversations whose passes may be joined
    target_states: those of this conversation, for weights that read them
    """

    decoder: CompactDecoder

    def __init__(self, decoder: CompactDecoder, target_states: Features | None = None) -> None:
        super().__init__(decoder)
        self.weights, self.target_states = self.decoder.weights, target_states
        self.adjust: Adjust | None = None
        most = 0 if self.weights.own_head else MOST_ADDED
        self._text_words = TextWords(self.weights.words, self.weights.head_rows, most)
        self._final = torch.empty(0)  # (answers, H): output of the last pass, before the norm
        self._last: tuple[int, Tensor] | None = None  # a position and its output, (1, H)
        # Outputs of the nodes that `grow` has read, (1, H) each.
        self._grown_final: list[Tensor] = []

    @property
    def memory_bytes(self) -> int:
        return super().memory_bytes + self._text_words.memory_bytes

    @property
    def words(self) -> ReducedVocabulary:  # type: ignore[override]  # it changes with the text
        return self._text_words.words

    @property
    def states(self) -> Tensor:
        """The head's input in the last pass, before `adjust`: (answers, H)."""
        return self.decoder.normed(self._final)

    def rollback(self, length: int) -> None:
        super().rollback(length)
        self._grown_final.clear()
        self._text_words.forget(length)

    def guess(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens. returns: (depth, W) logits of the positions that follow"""
        last, guesses = self._read_ahead(token_ids), self.weights.depth - 1
        output = self._append(last, guesses=guesses)
        self._count(range(len(last)))
        return output.logits

    def draft(self, token_ids: Sequence[int], plan: DraftPlan) -> Chain | None:
        """Append tokens and draft a chain in the compiled pass; None, with nothing read, if that is not supported."""
        if self.decoder.compiled is None or self.adjust or self.weights.depth > 1 or plan.most < 1:
            return None
        last = self._read_ahead(token_ids)
        chain = self._append(last, plan=plan).chain
        assert chain is not None
        # All drafted tokens but the last have been read.
        drafted = chain.columns[:-1]
        self._count(range(len(last) + len(drafted)))
        for position, column in enumerate(drafted, self.length - len(drafted)):
            self._text_words.mark(column, position)
        return chain

    def grow(self, token_ids: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Read nodes of a tree; parents before their children, if those read the output of their parent."""
        if self.weights.feedback is None:
            return super().grow(token_ids, parents)
        logits: list[Tensor] = []
        begin = 0
        while begin < len(token_ids):
            first = len(self._grown)
            below = (node for node in range(begin, len(token_ids)) if parents[node] >= first)
            level = slice(begin, next(below, len(token_ids)))
            logits.append(super().grow(token_ids[level], parents[level]))
            begin = level.stop
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _read_ahead(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Append all chunks of some tokens but the last. returns: the last"""
        last = chunks(self.length, len(token_ids), self.decoder.chunk)[-1]
        if last.start:
            self.read(token_ids[: last.start])
        return token_ids[last]

    def _append(
        self, token_ids: Sequence[int], guesses: int = 0, plan: DraftPlan | None = None
    ) -> ForwardOutput:
        """Run a pass over tokens that follow the text, and positions that are guessed after them."""
        self._forget_grown()
        tree = range(-1, len(token_ids) + guesses - 1)
        return self._request(token_ids, tree, 0, 1 + guesses, guesses=guesses, plan=plan)

    def _request(
        self,
        token_ids: Sequence[int],
        tree: Sequence[int],
        first: int,
        answers: int,
        depth: int | None = None,
        guesses: int = 0,
        plan: DraftPlan | None = None,
    ) -> ForwardOutput:
        assert depth is None, "a drafter runs as a whole"
        start, rows, nodes = self.length, len(token_ids), bool(self._grown)
        self._cache.skip(first)
        if not nodes:
            self._text_words.read(start, token_ids)
        one = DraftInput(
            token_ids, [start + below - 1 for below in depths(tree)[first:]], self._seen(tree, first, guesses),
            self._cache, answers, text=self._text_words, states=self._inputs(token_ids, tree, first),
            injected=self._own_states(tree[first:]) if nodes else self._target_states(start, start + rows),
            guesses=guesses, adjust=self.adjust, plan=plan,
        )  # fmt: skip
        output = request_pass(self.decoder, one)
        assert output.states is not None
        self._final = output.states
        if nodes:
            self._grown_final += self._final.split(1)
        else:
            self._last = start + rows - 1, self._final[-1:]
        return output

    def _inputs(self, token_ids: Sequence[int], tree: Sequence[int], first: int) -> Tensor | None:
        """Return the first layer's inputs, (rows, H), see `_request`; None for the tokens' embeddings."""
        return None

    def _seen(self, tree: Sequence[int], first: int, guesses: int = 0) -> Tensor | None:
        """Return the keys that rows attend to, see `CachedModel`: without the text's first token if the text starts with the second.

        guesses: number of last rows, which see each other if the weights are not causal
        """
        seen, start, weights = super()._seen(tree, first), self.length, self.weights
        mutual = guesses if not weights.causal else 0
        shifted = weights.state_norm is not None
        if not (shifted or mutual):
            return seen
        if seen is None:
            seen = causal(len(tree) - first, start + first)
        if shifted:
            seen[0 if start else 1 :, 0] = False
        if mutual:
            seen[-mutual:, -mutual:] = True
        return seen

    def _forget_grown(self) -> None:
        super()._forget_grown()
        self._grown_final.clear()

    def _target_states(self, start: int, end: int) -> Injected | None:
        """Return the states of the target that join the tokens from position `start` on.

        If the target has not read the token before them, the drafter's own state joins the first of them. Further
        tokens are rarely read in the same pass there, and get none.
        """
        inject = self.weights.inject
        if inject is None:
            return None
        before = max(start, 1)  # no state precedes the first token
        states = torch.empty(0)
        if self.target_states is not None:
            states = self.target_states.read(before - 1, end - 1, self.weights.reads)
        if not len(states):
            return self._own_states([-1])
        compiled = self.decoder.compiled
        if compiled and compiled.projection:
            return Injected(before - start, states.bfloat16().contiguous(), projected=False)
        with torch.inference_mode():
            rows = inject.of(states, len(self.weights.reads), self.weights.norm.dtype)
            return Injected(before - start, rows.float().contiguous())

    def _state_of(self, node: int) -> Tensor | None:
        """(1, H): output of a grown node, or of the text's last token for -1; None if that was not read on its own."""
        if node >= 0:
            return self._grown_final[node]
        position, final = self._last or (-1, None)
        return final if position == self.length - 1 else None

    def _own_states(self, nodes: Sequence[int]) -> Injected | None:
        """Return the drafter's own states at some grown nodes, or at the end of the text for -1."""
        feedback = self.weights.feedback
        finals = [] if feedback is None else [self._state_of(node) for node in nodes]
        if feedback is None or all(final is None for final in finals):
            return None
        with torch.inference_mode():
            missing = torch.zeros_like(feedback, dtype=torch.float32)[None]
            rows = torch.cat([missing if final is None else final.float() for final in finals])
            if self.weights.feeds_normed:
                rows = rms_norm(rows, self.weights.norm.float(), self.weights.config.sizes.eps)
            return Injected(0, rows * feedback.float())


def compiled_layers(weights: CompactWeights) -> CompiledLayers | None:
    """Return a draft's compiled pass; None if it is not supported here."""
    config = weights.config
    linear = [one for layer in weights.layers for one in layer.matrices()] + [weights.head]
    packed = [one.packed for one in linear if isinstance(one, FourBitLinear) and one.packed]
    normed = any(layer.query_norm is not None for layer in weights.layers)
    if normed or len(packed) < len(linear):
        return None
    inner = packed[2].outputs // 2
    sizes = config.sizes
    shape = Shape(
        sizes.heads, sizes.kv_heads, sizes.head_dim, config.hidden_size, inner, GROUP_WEIGHTS,
        sizes.eps, sizes.scaling,
    )  # fmt: skip
    if not runtime.fits(shape, len(weights.words.ids)):
        return None
    layers: list[LayerWeights[Matrix]] = []
    for number, layer in enumerate(weights.layers):
        qkv, output, gate_up, down = packed[4 * number : 4 * number + 4]
        norms = [norm.float() for norm in (layer.input_norm, layer.post_norm) if norm is not None]
        layers.append(LayerWeights(norms[0], qkv, output, norms[1], gate_up, down))
    table, _ = runtime.meanings(packing.AFFINE)
    feedback = None if weights.feedback is None else weights.feedback.float()
    return CompiledLayers(
        layers, shape, table, packed[-1], weights.norm.float(), feedback, _projection(weights),
        head_rows=weights.head_rows,
    )  # fmt: skip


def _projection(weights: CompactWeights) -> Projection | None:
    """Return the projection of the target's states for the compiled pass; None if that is not supported here."""
    inject = weights.inject
    if inject is None or inject.gain is None or inject.joint:
        return None
    project = inject.project
    packed = project.packed if isinstance(project, FourBitLinear) else None
    if packed is None or packed.bias is not None:
        return None
    return Projection(packed, inject.gain.float(), inject.epsilon)


def _drafting(plan: DraftPlan, text: TextWords) -> Drafting:
    """A draft after a pass, with the columns that its penalty applies to."""
    return Drafting(plan, text.words.ids, text.marked, text.num_marked)
