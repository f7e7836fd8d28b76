"""The common reader of published drafters: their families, the checks against a target, and their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import JsonView
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.networks.layouts.source import DrafterFiles
from specdemo.models.networks.loader import TargetTensors, TensorLoader
from specdemo.models.networks.parts import CompactConfig, Rope
from specdemo.models.networks.registry import DraftNetwork

TIED = (
    "verifier_norm.weight",
    "verifier_lm_head.weight",
)  # the target's own, only used in training


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Sizes in a target's config.json. vocabulary: rows of its output head; layers: number of layers"""

    name: str
    hidden_size: int
    vocabulary: int
    layers: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A drafter that suits the target, before its weights are read.

    kinds: of the methods that draft with it; reads: hidden states of the target that it reads
    alone: it also replaces a draft model
    parameters: number of the drafter's own; None for all in its files
    """

    kinds: tuple[str, ...]
    reads: tuple[int, ...]
    alone: bool
    load: Callable[[TargetTensors], DraftNetwork]
    parameters: int | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """One way to write a drafter.

    title: of the family; takes: whether a config is of it
    read: checks files against a target. Raises UserError before weights are read.
    """

    title: str
    takes: Callable[[JsonView], bool]
    read: Callable[[DrafterFiles, TargetFacts], Reading]


def refuse(files: DrafterFiles, target: TargetFacts, reason: Phrase) -> UserError:
    """The sentence for a drafter of another target."""
    speculators = files.config.get("speculators_config") or {}
    verifier = (speculators.get("verifier") or {}).get("name_or_path")
    made_for = verifier or files.config.get("base_model_name_or_path")
    known = {"drafter": files.name, "target": target.name, "reason": reason}
    if made_for:
        return UserError("drafter.for_another", **known, origin=made_for)
    return UserError("drafter.not_for_target", **known)


def check_sizes(files: DrafterFiles, target: TargetFacts, *, hidden: int, vocabulary: int) -> None:
    """Refuse a drafter of a target with other sizes. hidden, vocabulary: sizes that it expects"""
    if hidden != target.hidden_size:
        raise refuse(
            files, target,
            Phrase("drafter.states", own=hidden, theirs=target.hidden_size),
        )  # fmt: skip
    if vocabulary != target.vocabulary:
        raise refuse(
            files, target,
            Phrase("drafter.vocabulary", own=f"{vocabulary:,}", theirs=f"{target.vocabulary:,}"),
        )  # fmt: skip


def check_layers(files: DrafterFiles, target: TargetFacts, reads: Sequence[int]) -> None:
    """Refuse a drafter that reads states which the target does not have. reads: as transformers counts them"""
    inside = all(type(one) is int and 0 <= one <= target.layers for one in reads)
    if not reads or not inside or len(set(reads)) < len(reads):
        raise refuse(
            files, target,
            Phrase("drafter.layers", states=", ".join(map(str, reads)), last=target.layers),
        )  # fmt: skip


def check_tensors(
    files: DrafterFiles,
    needed: Mapping[str, tuple[int, ...]],
    optional: Mapping[str, tuple[int, ...]],
) -> None:
    """Refuse files with a missing tensor, one of another shape, or an unknown one."""
    for name, shape in files.shapes.items():
        if name.endswith(("rotary_emb.inv_freq", "num_batches_tracked")):
            continue
        expected = needed.get(name, optional.get(name))
        if expected is None:
            raise files.wrong(f"nothing is known of its tensor {name}")
        if shape != expected:
            raise files.wrong(f"its tensor {name} has the shape {shape} in place of {expected}")
    if missing := [name for name in needed if name not in files.shapes]:
        raise files.wrong(f"it has no tensor {missing[0]}")


def layer_shapes(
    prefix: str, config: CompactConfig, inner: int, width: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of a Llama layer's tensors. inner: of its gates; width: numbers that go into attention"""
    hidden, size = config.hidden_size, config.head_dim
    queries, keys = config.num_heads * size, config.num_key_value_heads * size
    return {
        f"{prefix}input_layernorm.weight": (hidden,),
        f"{prefix}self_attn.q_proj.weight": (queries, width),
        f"{prefix}self_attn.k_proj.weight": (keys, width),
        f"{prefix}self_attn.v_proj.weight": (keys, width),
        f"{prefix}self_attn.o_proj.weight": (hidden, queries),
        f"{prefix}post_attention_layernorm.weight": (hidden,),
        f"{prefix}mlp.gate_proj.weight": (inner, hidden),
        f"{prefix}mlp.up_proj.weight": (inner, hidden),
        f"{prefix}mlp.down_proj.weight": (hidden, inner),
    }


def layer_extras(
    prefix: str, config: CompactConfig, *, norms: bool, biases: bool
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of optional tensors of a layer: norms of queries and keys, biases of attention."""
    size = config.head_dim
    queries, keys = config.num_heads * size, config.num_key_value_heads * size
    found: dict[str, tuple[int, ...]] = {}
    if norms:
        found |= {f"{prefix}self_attn.{part}_norm.weight": (size,) for part in "qk"}
    if biases:
        widths = {"q": queries, "k": keys, "v": keys}
        found |= {f"{prefix}self_attn.{part}_proj.bias": (w,) for part, w in widths.items()}
    return found


def loader_of(files: DrafterFiles, target: TargetTensors) -> TensorLoader:
    """Return the reader of a drafter's tensors."""
    return TensorLoader(files.tensor, files.shapes, target)


def offset_words(files: DrafterFiles, words: int, vocabulary: int) -> ReducedVocabulary:
    """Return the token of each row of a head: `d2t` is its distance from the row's number. Raises UserError."""
    ids = torch.arange(words)
    if "d2t" in files.shapes:
        ids = ids + files.tensor("d2t").long()
    inside = bool(((ids >= 0) & (ids < vocabulary)).all())
    if not inside or len(ids.unique()) < len(ids):
        raise files.wrong("its d2t does not name different tokens of the target")
    if "t2d" in files.shapes:
        known = files.tensor("t2d").bool().nonzero().flatten()
        if not ids.sort().values.equal(known):
            raise files.wrong("its d2t and its t2d name different tokens")
    return ReducedVocabulary(ids, vocabulary)


def layer_config(files: DrafterFiles, config: JsonView, *, windows: bool = False) -> CompactConfig:
    """Return the sizes of a drafter's layers. Raises UserError for unsupported layers.

    windows: layers with a sliding window are supported
    """
    heads = files.number(config, "num_attention_heads")
    hidden = files.number(config, "hidden_size")
    kinds = set(config.get("layer_types") or ())
    sliding = config.get("sliding_window") and config.get("use_sliding_window", True)
    if config.get("hidden_act", "silu") != "silu":
        raise files.wrong(f"its layers compute with {config['hidden_act']}, and not with silu")
    if not windows and ("sliding_attention" in kinds or (sliding and not kinds)):
        raise files.wrong("its layers forget what is far back, which is not computed here")
    theta, rope = _rope(files, config, config.get("head_dim") or hidden // heads)
    return CompactConfig(
        hidden_size=hidden,
        num_heads=heads,
        num_key_value_heads=files.number(config, "num_key_value_heads", heads),
        head_dim=files.number(config, "head_dim", hidden // heads),
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope=rope,
    )


def _rope(files: DrafterFiles, config: JsonView, head_dim: int) -> tuple[float, Rope | None]:
    """The base of a rotary embedding, and its frequencies where they are stretched."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    facts = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(facts.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    part = facts.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1
    if part != 1:
        raise files.wrong(
            f"it turns {part:.0%} of a head by its position, which is not computed here"
        )
    kind = facts.get("rope_type") or facts.get("type") or "default"
    if kind == "default":
        return theta, None
    if kind not in ("linear", "llama3", "yarn"):
        raise files.wrong(f"it stretches its positions by {kind}, which is not computed here")
    try:
        embedding: Any = LlamaRotaryEmbedding(
            LlamaConfig(
                head_dim=head_dim,
                max_position_embeddings=int(config.get("max_position_embeddings", 2048)),
                rope_parameters={**facts, "rope_type": kind, "rope_theta": theta},
            )
        )
    except (KeyError, TypeError, ValueError) as error:
        raise files.wrong("its rope_scaling lacks a number") from error
    return theta, Rope(tuple(embedding.inv_freq.tolist()), float(embedding.attention_scaling))
