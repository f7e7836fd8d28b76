"""Small random trained drafters: real networks, each kind, that guess badly but differently for each text."""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from tiny_compact import compact_config
from torch import Tensor

from specdemo.engine.passes import ForwardInput, ForwardOutput
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel, FeatureReader, Features
from specdemo.models.decoders.layer import LlamaLayer
from specdemo.models.networks.chain import CompactDecoder, CompactModel, CompactWeights
from specdemo.models.networks.exit import ExitModel
from specdemo.models.networks.four_bit import pack_linear
from specdemo.models.networks.parts import Injection, MarkovHead, MedusaWeights

HIDDEN, DEPTH, RANK = 32, 4, 8
READS = (1, 2)


@lru_cache
def random_rows(words: int) -> Tensor:
    """(words, HIDDEN): a toy target's state at each token."""
    return torch.randn(words, HIDDEN, generator=torch.Generator().manual_seed(3))


class TextFeatures(Features):
    """A toy target's states: a fixed random row for each token that it has counted."""

    def __init__(self, text: Callable[[], Sequence[int]], words: int) -> None:
        super().__init__(READS)
        self.text = text
        self.rows = random_rows(words)

    @property
    def length(self) -> int:
        """Tokens that are counted."""
        return len(self.text()) if hasattr(self, "text") else 0

    @length.setter
    def length(self, value: int) -> None:
        assert value == 0

    def read(self, begin: int, end: int, layers: Sequence[int]) -> Tensor:
        return self.rows[list(self.text()[begin : min(end, self.length)])].repeat(1, len(layers))


@lru_cache
def random_compact(
    words: int,
    *,
    reads: tuple[int, ...],
    depth: int = 1,
    markov: bool = False,
    causal: bool = True,
    feeds: bool = False,
) -> CompactWeights:
    """One random layer over a random embedding."""
    generator = torch.Generator().manual_seed(11)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(torch.bfloat16)

    def linear(rows: int, columns: int):
        return pack_linear(noise(rows, columns) / columns**0.5, four_bit=False)

    ones, embedding = torch.ones(HIDDEN, dtype=torch.bfloat16), noise(words, HIDDEN)
    layer = LlamaLayer(
        ones, linear(2 * HIDDEN, HIDDEN), linear(HIDDEN, HIDDEN), ones,
        linear(128, HIDDEN), linear(HIDDEN, 64),
    )  # fmt: skip
    word_ids = some(words)
    reduced = ReducedVocabulary(word_ids, words)
    head = MarkovHead(
        noise(len(word_ids) + 1, RANK), linear(len(word_ids), RANK), noise(HIDDEN + RANK).float() / 8, torch.ones(1),
        (1.0,) * depth, reduced,
    )  # fmt: skip
    return CompactWeights(
        config=compact_config(HIDDEN, 8),
        layers=(layer,),
        norm=ones,
        embedding=embedding,
        head=pack_linear(embedding[word_ids] / 3, four_bit=False),
        words=reduced,
        reads=reads,
        inject=Injection(
            torch.ones(len(reads) * HIDDEN).to(torch.bfloat16), linear(HIDDEN, len(reads) * HIDDEN)
        ),
        feedback=noise(HIDDEN) / 2 if feeds else None,
        mask=noise(depth - 1, HIDDEN) if depth > 1 else None,
        depth=depth,
        causal=causal,
        markov=head if markov else None,
    )


class Remembering(CompactDecoder):
    """Runs each pass of its one layer once: a thousand runs on a toy target have only so many texts."""

    def __init__(self, weights: CompactWeights) -> None:
        super().__init__(weights)
        self.known: dict[object, tuple[ForwardOutput, tuple[Tensor, Tensor]]] = {}

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Run a pass, or repeat the results that it once returned and wrote."""
        (one,) = passes
        if one.adjust:  # a head that learns
            return super().run(passes)
        (layer,), start = one.cache.layers, one.cache.start
        before = layer.keys[:, :, :start] if start else None
        first, injected = (one.injected.first, one.injected.rows) if one.injected else (0, None)
        words = tuple(one.text.words.tokens) if one.text else ()
        known = (*one.token_ids,), (*one.positions,), one.guesses, one.answers, words, first
        key = known, *map(_content, (before, one.seen, injected, one.states))
        if key in self.known:
            output, rows = self.known[key]
            layer.update(*rows)
            return [output]
        output = super().run(passes)[0]
        end = start + len(one.positions)
        rows = layer.keys[:, :, start:end].clone(), layer.values[:, :, start:end].clone()
        self.known[key] = output, rows
        return [output]


def _content(tensor: Tensor | None) -> bytes | None:
    return None if tensor is None else tensor.contiguous().view(torch.uint8).numpy().tobytes()


@lru_cache
def _remembering(weights: CompactWeights) -> Remembering:
    return Remembering(weights)


def some(words: int) -> torch.Tensor:
    """A reduced vocabulary out of order: a column is never its own token."""
    return torch.arange(words).roll(1)[: max(2, 3 * words // 4)]


@lru_cache
def random_medusa(words: int) -> MedusaWeights:
    """Random heads on the last state."""
    generator = torch.Generator().manual_seed(12)

    def linear(rows: int):
        return pack_linear(
            torch.randn(rows, HIDDEN, generator=generator).to(torch.bfloat16) / HIDDEN**0.5,
            four_bit=False,
        )

    blocks = tuple(linear(HIDDEN) for _ in range(DEPTH))
    word_ids = some(words)
    return MedusaWeights(
        blocks, linear(len(word_ids)), ReducedVocabulary(word_ids, words), READS[-1:]
    )


def tiny_trained(
    words: int, features: Features, target: CachedModel | None, instead_of_exit: Any = None
) -> dict[str, Callable[[], Any]]:
    """Return openers by kind. target: for early exit, which uses its layers; else a model replaces it"""

    def compact(**options: Any) -> Callable[[], FeatureReader]:
        weights = random_compact(words, **options)
        network = CompactDecoder(weights) if target else _remembering(weights)
        return cache(lambda: FeatureReader(CompactModel(network, features)))

    def early() -> FeatureReader:
        own = CompactDecoder(random_compact(words, reads=READS[:1]))
        return FeatureReader(instead_of_exit or ExitModel(target, own))

    return {
        "feature": compact(reads=READS, feeds=True),
        "exit": cache(early),
        "medusa": lambda: random_medusa(words),
        "block": compact(reads=READS, depth=DEPTH, markov=True, causal=False),
        "jet": compact(reads=READS, depth=DEPTH),
    }
