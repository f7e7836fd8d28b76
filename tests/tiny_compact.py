"""A random compact draft that the compiled pass takes, and states of a target for it."""

from dataclasses import replace

import torch

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import Features
from specdemo.models.decoders.layer import LlamaLayer
from specdemo.models.networks.chain import CompactWeights
from specdemo.models.networks.four_bit import pack_linear
from specdemo.models.networks.parts import CompactConfig, Injection, MixedEmbedding


def compact_config(hidden: int, head_dim: int, eps: float = 1e-5) -> CompactConfig:
    """The sizes of a network with four heads, two of which share keys."""
    return CompactConfig.of({
        "hidden_size": hidden, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": head_dim,
        "rms_norm_eps": eps, "rope_parameters": {"rope_theta": 10_000.0},
    })  # fmt: skip


def compact() -> CompactWeights:
    """A random compact draft of two layers with half of the vocabulary."""
    torch.manual_seed(5)
    config = compact_config(128, 64)

    def matrix(rows: int, columns: int):
        return pack_linear(
            torch.randn(rows, columns).bfloat16() / columns**0.5, four_bit=True, in_pass=True
        )

    def layer() -> LlamaLayer:
        norms = [1 + 0.1 * torch.randn(128).bfloat16() for _ in range(2)]
        return LlamaLayer(
            norms[0], matrix(512, 128), matrix(128, 256), norms[1], matrix(384, 128),
            matrix(128, 192),
        )  # fmt: skip

    return CompactWeights(
        config, (layer(), layer()), torch.ones(128).bfloat16(), torch.randn(128, 128).bfloat16(),
        matrix(64, 128), ReducedVocabulary(torch.randperm(128)[:64], 128), extends=1,
        mask=torch.randn(3, 128).bfloat16(), depth=4,
    )  # fmt: skip


def injecting(weights: CompactWeights) -> CompactWeights:
    """The same, with states of the target that go in."""
    matrix = pack_linear(torch.randn(128, 256).bfloat16() / 16, four_bit=True, in_pass=True)
    inject = Injection(1 + torch.randn(256).bfloat16() / 10, matrix)
    return replace(weights, reads=(3, 5), inject=inject)


def feeding(weights: CompactWeights) -> CompactWeights:
    """The same as a drafter without a draft model: drafted tokens use its own state before them."""
    return replace(injecting(weights), extends=0, depth=1, feedback=torch.randn(128).bfloat16() / 2)


def mixing(weights: CompactWeights) -> CompactWeights:
    """The same with mixed embeddings."""
    blend = torch.randn(128, 128) / 11
    mixed = MixedEmbedding(weights.embedding, blend, weights.words.tokens)
    return replace(feeding(weights), mixed=mixed, feedback=torch.randn(128).bfloat16() / 8)


def features_of(seed: int) -> Features:
    """A target's states of 60 tokens, or of two."""
    features, generator = Features((3, 5)), torch.Generator().manual_seed(seed)
    features.write(0, torch.randn(60, 256, generator=generator).bfloat16())
    features.length = 60 if seed != 1 else 2
    return features
