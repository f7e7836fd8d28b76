"""Tiny DFlash and DSpark checkpoints in published layouts, and their computation, written from the format alone.

The package is not used here: a drafter that agrees with this file runs as its format defines.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tiny_eagle3 import HEAD, KV_HEADS, Layers, Weights, attention, sizes, write_folder
from torch import Tensor

SECOND = {"taps": 2, "chosen": 6, "window": 4}  # facts of a DFlash 2 drafter


@dataclass(frozen=True)
class DFlash:
    """A checkpoint by its meaning, independent of its layout.

    reads: the target's states, 0 = embeddings; words: size of the head's vocabulary, of `vocabulary`
    """

    hidden: int = 32
    vocabulary: int = 64
    words: int = 64
    layers: int = 2
    reads: tuple[int, ...] = (2, 5)
    block: int = 4
    mask: int = 63
    causal: bool = False
    anchored: bool = False  # the anchor's row guesses too, and each mask the position after its own
    embedding_scale: float = 1.0
    multiplier: float = 1.0
    cap: float = 0.0
    theta: float = 10_000.0
    rank: int = 0  # rank of DSpark's Markov head
    confident: bool = False  # whether there is a confidence head, which reads the Markov head too
    taps: int = 0  # taps of DFlash 2's convolutions; channels that share a kernel
    group: int = 8
    chosen: int = 0  # rank of DFlash 2's selector, and of how many words it chooses one
    most: int = 5
    window: int = 0  # window of all layers but the last
    window_causal: bool = False
    tensors: dict[str, Tensor] = field(default_factory=dict, compare=False)


def make(**facts: Any) -> DFlash:
    """Random weights, under the names that all layouts share."""
    model = DFlash(**facts)
    hidden, found = model.hidden, model.tensors
    weights = Weights(hidden, found)
    matrix = weights.matrix
    found["fc.weight"] = matrix(hidden, len(model.reads) * hidden)
    found |= {name: weights.norm(hidden) for name in ("hidden_norm.weight", "norm.weight")}
    for number in range(model.layers):
        weights.layer(f"layers.{number}.", hidden, norms=True)
    if model.words < model.vocabulary:
        weights.choose(model.words, model.vocabulary)
        found["lm_head.weight"] = matrix(model.words, hidden)
    if model.rank:
        found["markov_head.markov_w1.weight"] = matrix(model.vocabulary, model.rank)
        found["markov_head.markov_w2.weight"] = matrix(model.words, model.rank)
    found |= added(model, matrix) if model.taps else {}
    if model.confident:
        found["confidence_head.proj.weight"] = matrix(1, hidden + model.rank)
        found["confidence_head.proj.bias"] = matrix(1, 4)[0, :1]
    return model


def added(model: DFlash, matrix: Callable[[int, int], Tensor]) -> dict[str, Tensor]:
    """The convolutions and the selector of DFlash 2."""
    found: dict[str, Tensor] = {}
    for number in range(model.layers):
        for part in ("attention_conv", "mlp_conv"):
            begin = f"layers.{number}.{part}."
            kernel = matrix(2 * model.taps, model.hidden) * 0.5 * model.hidden**0.5
            found[f"{begin}base_kernel"] = kernel.view(2, model.taps, model.hidden)
            rows = 2 * model.taps * model.hidden // model.group
            found[f"{begin}kernel_projection.weight"] = matrix(rows, model.hidden)
    for part in ("predecessor", "successor"):
        found[f"candidate_selector.{part}_codebook"] = matrix(model.vocabulary, model.chosen)
    found["candidate_selector.hidden_projection.weight"] = matrix(model.chosen, model.hidden)
    return found


def block_sizes(model: DFlash) -> dict[str, Any]:
    """Return the sizes of the layers and their windows for all layouts."""
    kinds = ("full_attention", "sliding_attention")
    return {
        **sizes(model, "qwen3"),
        "layer_types": [kinds[is_near(model, number)] for number in range(model.layers)],
        "sliding_window": model.window or None,
        "use_sliding_window": bool(model.window),
    }


def is_near(model: DFlash, number: int) -> bool:
    return bool(model.window) and (number < model.layers - 1 or model.layers == 1)


def second(model: DFlash) -> dict[str, Any]:
    return {
        "conv_kernel_size": model.taps,
        "conv_group_size": model.group,
        "selector_rank": model.chosen,
        "selector_top_k": model.most,
    }


def write_flat(folder: Path, model: DFlash, own: dict[str, Any] | None = None, **more: Any) -> Path:
    """Write it as z-lab and SpecForge do. own, more: replace entries of `dflash_config` and config.json"""
    theirs = {
        "mask_token_id": model.mask,
        "target_layer_ids": [one - 1 for one in model.reads],
        "causal_head": model.causal or None,
        "input_embedding_scale": None if model.embedding_scale == 1 else model.embedding_scale,
        "output_multiplier": None if model.multiplier == 1 else model.multiplier,
        "final_logit_softcapping": model.cap or None,
    }
    config = {
        **block_sizes(model),
        "architectures": ["DFlashDraftModel"],
        "block_size": model.block,
        "num_target_layers": 8,
        "dflash_config": theirs | (second(model) if model.taps else {}) | (own or {}),
    }
    if model.taps:
        config |= {"architectures": ["DFlash2DraftModel"], "is_causal": model.window_causal}
    return write_folder(folder, config | more, model.tensors)


def write_speculators(folder: Path, model: DFlash, **more: Any) -> Path:
    """Write it as speculators does. more: replaces entries of config.json"""
    config = {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": "dflash",
        "speculators_config": {
            "algorithm": "dflash",
            "verifier": {"name_or_path": "owner/made-for-this"},
        },
        "transformer_layer_config": block_sizes(model),
        "draft_vocab_size": model.words,
        "block_size": model.block,
        "aux_hidden_state_layer_ids": list(model.reads),
        "mask_token_id": model.mask,
        "sample_from_anchor": model.anchored,
        "sliding_window_non_causal": not model.window_causal,
    }
    if model.taps:
        config |= {"speculators_model_type": "dflash2", "architectures": ["DFlash2DraftModel"]}
        config |= second(model)
    return write_folder(folder, config | more, model.tensors)


def write_dspark(folder: Path, model: DFlash, **more: Any) -> Path:
    """Write it as DeepSpec does: all at the top, with an embedding and a head of its own. more: replaces entries"""
    config = {
        **block_sizes(model),
        "architectures": ["Qwen3DSparkModel"],
        "block_size": model.block,
        "mask_token_id": model.mask,
        "target_layer_ids": [one - 1 for one in model.reads],
        "num_target_layers": 8,
        "num_anchors": 512,
        "markov_rank": model.rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": model.confident,
        "confidence_head_with_markov": True,
    }
    return write_folder(folder, config | more, model.tensors)


class Reference(Layers):
    """The guesses of a checkpoint after a text, without any cache.

    embedding, head: (V, H), the target's; states: (known, reads x H), the target's, of the first tokens
    """

    def __init__(self, model: DFlash, embedding: Tensor, head: Tensor, states: Tensor) -> None:
        self.model, self.tensors = model, model.tensors
        self.embedding, self.states = embedding, states
        self.head = self.tensors.get("lm_head.weight", head)

    def guess(self, text: list[int]) -> Tensor:
        """(positions, W): logits of the positions after a text, whose last token is pending."""
        model, pending = self.model, len(text) - 1
        known = self.normed("hidden_norm", self.linear("fc", self.states[:pending]))
        ids = torch.tensor([text[pending], *[model.mask] * (model.block - 1)])
        x = self.embedding[ids] * model.embedding_scale
        for number in range(model.layers):
            begin = f"layers.{number}."
            inner = self.normed(f"{begin}input_layernorm", x)
            inner, kernels = self.into(f"{begin}attention_conv.", inner)
            looked = self.looked(begin, known, inner, near=is_near(model, number))
            x = x + self.out_of(looked, kernels)
            inner = self.normed(f"{begin}post_attention_layernorm", x)
            inner, kernels = self.into(f"{begin}mlp_conv.", inner)
            x = x + self.out_of(self.gates(begin, inner), kernels)
        self.states_out = self.normed("norm", x)
        logits = self.states_out @ self.head.T * model.multiplier
        if model.cap:
            logits = torch.tanh(logits / model.cap) * model.cap
        return logits if model.anchored else logits[1:]

    def corrected(self, logits: Tensor, token: int) -> Tensor:
        """(W,): logits of a position, once the token before it is known."""
        row = self.tensors["markov_head.markov_w1.weight"][token]
        return logits + self.linear("markov_head.markov_w2", row)

    def confidence(self, place: int, token: int) -> float:
        """Probability that the guess of a position is accepted, after this token."""
        row = self.tensors["markov_head.markov_w1.weight"][token]
        both = torch.cat([self.states_out[place], row])
        sure = self.linear("confidence_head.proj", both) + self.tensors["confidence_head.proj.bias"]
        return float(torch.sigmoid(sure))

    def looked(self, begin: str, text: Tensor, block: Tensor, *, near: bool) -> Tensor:
        """(rows, H): attention of the rows of the block over the text and the block."""
        model, part, known = self.model, f"{begin}self_attn.", len(text)
        rows, both = torch.arange(len(block)), torch.cat([text, block])
        key = torch.arange(len(both))
        query = self.turned(f"{part}q", block, key[known:], model.theta, norms=True)
        keys = self.turned(f"{part}k", both, key, model.theta, norms=True)
        values = self.linear(f"{part}v_proj", both).view(len(both), KV_HEADS, HEAD)
        seen = torch.ones(len(block), len(both), dtype=torch.bool)
        if model.window_causal if near else model.causal:
            seen &= key <= known + rows[:, None]
        if near:
            seen &= (key >= known) | (key > known + rows[:, None] - model.window)
        return self.linear(f"{part}o_proj", attention(query, keys, values, seen))

    def into(self, begin: str, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the input of a part, convolved with the rows before it, and kernels (rows, taps, H) of the output."""
        model = self.model
        if not model.taps:
            return x, None
        base, groups = self.tensors[f"{begin}base_kernel"], model.hidden // model.group
        added = self.linear(f"{begin}kernel_projection", x)
        added = added.view(len(x), 2, model.taps, groups)
        kernels = base + added.repeat_interleave(model.group, dim=-1)
        return along(x, kernels[:, 0]), kernels[:, 1]

    def out_of(self, x: Tensor, kernels: Tensor | None) -> Tensor:
        return x if kernels is None else along(x, kernels)

    def selected(self, place: int, logits: Tensor, token: int) -> dict[int, float]:
        """Scores of the candidates of a position, after this token."""
        state = self.states_out[place + 1]
        names = ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")
        before, after, project = (self.tensors[f"candidate_selector.{name}"] for name in names)
        gate = project @ state
        ranked = logits.topk(self.model.most).indices.tolist()
        return {
            one: float(logits[one] + (before[token] * gate * after[one]).sum()) for one in ranked
        }


def along(x: Tensor, kernels: Tensor) -> Tensor:
    """Each row times its first tap, the one before it times the second, and so on; nothing is before a block."""
    shifted = [
        torch.cat([x.new_zeros(tap, x.shape[1]), x])[: len(x)] for tap in range(kernels.shape[1])
    ]
    return sum(kernels[:, tap] * one for tap, one in enumerate(shifted))
