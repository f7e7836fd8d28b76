"""What each family of published drafters is to the program: told apart, checked against the target, read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specdemo.config.errors import Phrase, UserError
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.decoders.layer import LlamaLayer
from specdemo.models.networks.compact_weights import CompactConfig, Rope
from specdemo.models.networks.four_bit import Linear, pack_linear
from specdemo.models.networks.layouts.source import DrafterFiles
from specdemo.models.networks.registry import DraftNetwork, TargetTensors

TIED = ("verifier_norm.weight", "verifier_lm_head.weight")  # the target's own, kept for training
HEAD_ROWS = 16_384  # of a head over all words that are packed together


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """A target as its config.json tells. vocabulary: rows of its output head; layers: how many"""

    name: str
    hidden_size: int
    vocabulary: int
    layers: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A drafter that suits the target, its weights unread.

    kinds: of the methods that draft with it; reads: hidden states of the target that go in
    alone: it stands for a draft model too
    load: what runs
    parameters: that are the drafter's; None for all in its files
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
    takes: Callable[[Mapping[str, Any]], bool]
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
    """Refuse a drafter of a target with other sizes. hidden, vocabulary: what it expects of its target"""
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
    """Refuse files that lack a tensor, have one of another shape, or one that the reader does not know."""
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
    """Shapes of what some layers have besides: norms of queries and keys, biases of attention."""
    size = config.head_dim
    queries, keys = config.num_heads * size, config.num_key_value_heads * size
    found: dict[str, tuple[int, ...]] = {}
    if norms:
        found |= {f"{prefix}self_attn.{part}_norm.weight": (size,) for part in "qk"}
    if biases:
        widths = {"q": queries, "k": keys, "v": keys}
        found |= {f"{prefix}self_attn.{part}_proj.bias": (w,) for part, w in widths.items()}
    return found


class Loader:
    """Reads a drafter's tensors as what runs."""

    def __init__(self, files: DrafterFiles, shared: TargetTensors) -> None:
        self.files, self.shared = files, shared

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return name in self.files.shapes

    def vector(self, name: str) -> Tensor:
        """A tensor in the dtype of the computation."""
        return self.files.tensor(name).to(self.shared.device, self.shared.dtype)

    def matrix(self, *names: str, biased: bool = True) -> Linear:
        """Matrices by the names of their modules, side by side. biased: with their biases, where they have any"""
        weight = torch.cat([self.vector(f"{name}.weight") for name in names])
        biases = [self.vector(f"{name}.bias") for name in names if self.has(f"{name}.bias")]
        bias = torch.cat(biases) if biases and biased else None
        return pack_linear(weight, bias, four_bit=self.shared.four_bit)

    def layer(self, prefix: str) -> LlamaLayer:
        """One layer."""
        normed = self.has(f"{prefix}self_attn.q_norm.weight")
        return LlamaLayer.read(prefix, self.matrix, self.vector, normed=normed)

    def embedding(self) -> Tensor:
        """(V, H): the drafter's own embedding where it has one that is not the target's."""
        return self._own("embed_tokens.weight", self.shared.embedding)

    def head(self) -> Linear:
        """H to words: the drafter's own head where it has one that is not the target's."""
        output = self.shared.embedding if self.shared.output is None else self.shared.output
        return self.wide(self._own("lm_head.weight", output))

    def wide(self, weight: Tensor) -> Linear:
        """A matrix with a row for each word, packed part by part: at once it takes several times its own memory."""
        if not self.shared.four_bit:
            return pack_linear(weight, four_bit=False)
        parts = [pack_linear(part, four_bit=True) for part in weight.split(HEAD_ROWS)]
        return lambda x: torch.cat([part(x) for part in parts], dim=-1)

    def _own(self, name: str, target: Tensor) -> Tensor:
        shared = target.to(self.shared.device, self.shared.dtype)
        if not self.has(name):
            return shared
        own = self.vector(name)
        return shared if own.shape == shared.shape and own.equal(shared) else own


def offset_words(files: DrafterFiles, words: int, vocabulary: int) -> ReducedVocabulary:
    """The token of each row of a head: `d2t` holds how far each is from its own number. Raises UserError."""
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


def layer_config(
    files: DrafterFiles, config: Mapping[str, Any], *, windows: bool = False
) -> CompactConfig:
    """The shape of a drafter's layers. Raises UserError for layers that are not computed here.

    windows: layers that forget what is far back are looked after
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


def _rope(
    files: DrafterFiles, config: Mapping[str, Any], head_dim: int
) -> tuple[float, Rope | None]:
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
