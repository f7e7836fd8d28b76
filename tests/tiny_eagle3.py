"""Tiny EAGLE-3 checkpoints in published layouts, and their computation, written from the format alone.

The package is not used here: a drafter that agrees with this file runs as its format defines.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

HEADS, KV_HEADS, HEAD, INNER, EPSILON = 4, 2, 8, 48, 1e-6


@dataclass(frozen=True)
class Eagle3:
    """A checkpoint by its meaning, independent of its layout.

    reads: the target's states, 0 = embeddings; words: size of the head's vocabulary, of `vocabulary`
    """

    hidden: int = 32
    vocabulary: int = 64
    words: int = 48
    layers: int = 1
    reads: tuple[int, ...] = (1, 2)
    normed_residual: bool = False
    norm_output: bool = False
    fc_norm: bool = False
    norm_before_fc: bool = False
    qwen: bool = False
    theta: float = 10_000.0
    own_embedding: bool = False
    tensors: dict[str, Tensor] = field(default_factory=dict, compare=False)


class Weights:
    """Random weights of layers, under the names that all layouts share. found: by name"""

    def __init__(self, hidden: int, found: dict[str, Tensor]) -> None:
        self.hidden, self.found = hidden, found
        self.generator = torch.Generator().manual_seed(0)

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def matrix(self, rows: int, columns: int) -> Tensor:
        return self.noise(rows, columns) * 1.5 / columns**0.5

    def norm(self, size: int) -> Tensor:
        return 1 + 0.4 * self.noise(size)

    def layer(self, begin: str, width: int, *, norms: bool) -> None:
        """Make a layer whose attention reads `width` numbers. norms: of queries and keys"""
        hidden, found = self.hidden, self.found
        found[f"{begin}input_layernorm.weight"] = self.norm(hidden)
        found[f"{begin}post_attention_layernorm.weight"] = self.norm(hidden)
        for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            found[f"{begin}self_attn.{part}_proj.weight"] = self.matrix(heads * HEAD, width)
        if norms:
            found |= {f"{begin}self_attn.{part}_norm.weight": self.norm(HEAD) for part in "qk"}
        found[f"{begin}self_attn.o_proj.weight"] = self.matrix(hidden, HEADS * HEAD)
        found[f"{begin}mlp.gate_proj.weight"] = self.matrix(INNER, hidden)
        found[f"{begin}mlp.up_proj.weight"] = self.matrix(INNER, hidden)
        found[f"{begin}mlp.down_proj.weight"] = self.matrix(hidden, INNER)

    def choose(self, words: int, vocabulary: int) -> None:
        """Choose the words of a head that has fewer than the vocabulary."""
        chosen = torch.randperm(vocabulary, generator=self.generator)[:words].sort().values
        self.found["d2t"] = chosen - torch.arange(words)
        self.found["t2d"] = torch.zeros(vocabulary, dtype=torch.bool).index_fill(0, chosen, 1)


def make(**facts: Any) -> Eagle3:
    """Random weights, under the names of speculators."""
    model = Eagle3(**facts)
    hidden, found = model.hidden, model.tensors
    weights = Weights(hidden, found)
    matrix, norm = weights.matrix, weights.norm
    found["fc.weight"] = matrix(hidden, len(model.reads) * hidden)
    for number in range(model.layers):
        width = hidden if number else 2 * hidden
        weights.layer(f"layers.{number}.", width, norms=model.qwen)
    found["layers.0.hidden_norm.weight"] = norm(hidden)
    found["norm.weight"] = norm(hidden)
    found["lm_head.weight"] = matrix(model.words, hidden) * 2
    each = range(len(model.reads) if model.fc_norm else 0)
    found |= {f"fc_norm.{number}.weight": norm(hidden) for number in each}
    width = len(model.reads) * hidden
    found |= {"input_norm.weight": norm(width)} if model.norm_before_fc else {}
    if model.own_embedding:
        found["embed_tokens.weight"] = weights.noise(model.vocabulary, hidden)
    if model.words < model.vocabulary:
        weights.choose(model.words, model.vocabulary)
    return model


def sizes(model: Any, kind: str) -> dict[str, Any]:
    """Return the sizes of the layers for all layouts."""
    return {
        "model_type": kind,
        "hidden_size": model.hidden,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": model.layers,
        "head_dim": HEAD,
        "rms_norm_eps": EPSILON,
        "rope_theta": model.theta,
        "vocab_size": model.vocabulary,
        "hidden_act": "silu",
    }


def own_sizes(model: Eagle3) -> dict[str, Any]:
    """The sizes of a drafter; several published configs name tied embeddings, and their head is their own."""
    return {**sizes(model, "qwen3" if model.qwen else "llama"), "tie_word_embeddings": True}


def write_speculators(folder: Path, model: Eagle3, **more: Any) -> Path:
    """Write it as speculators does. more: replaces entries of config.json"""
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": "owner/made-for-this"},
        },
        "transformer_layer_config": own_sizes(model),
        "draft_vocab_size": model.words,
        "norm_before_residual": model.normed_residual,
        "norm_before_fc": model.norm_before_fc,
        "fc_norm": model.fc_norm,
        "norm_output": model.norm_output,
        "eagle_aux_hidden_state_layer_ids": list(model.reads),
    }
    return write_folder(folder, config | more, model.tensors)


def write_flat(folder: Path, model: Eagle3, **more: Any) -> Path:
    """As SafeAILab and SpecForge write it: sizes at the top, `midlayer`, states by the layer that gives them."""
    config = {
        **own_sizes(model),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": model.words,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [one - 1 for one in model.reads]},
    }
    config |= {"fc_norm": True} if model.fc_norm else {}
    config |= {"norm_output": True} if model.norm_output else {}
    tensors = {name.replace("layers.0.", "midlayer."): one for name, one in model.tensors.items()}
    return write_folder(folder, config | more, tensors)


def write_folder(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    card = "---\nlicense: apache-2.0\nbase_model: owner/made-for-this\n---\n# A drafter\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder


class Layers:
    """Parts of a layer, by the names of its weights, and the vocabulary of a head."""

    model: Any
    tensors: dict[str, Tensor]

    def tokens(self) -> list[int]:
        """The token of each row of the head."""
        return (torch.arange(self.model.words) + self.tensors.get("d2t", 0)).tolist()

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.tensors[f"{name}.weight"].T

    def normed(self, name: str, x: Tensor) -> Tensor:
        root = (x.pow(2).mean(-1, keepdim=True) + EPSILON).sqrt()
        return x / root * self.tensors[f"{name}.weight"]

    def turned(self, name: str, x: Tensor, places: Tensor, theta: float, *, norms: bool) -> Tensor:
        """(rows, heads, HEAD): queries or keys at their positions."""
        heads = self.linear(f"{name}_proj", x).view(len(x), -1, HEAD)
        return turned(self.normed(f"{name}_norm", heads) if norms else heads, places, theta)

    def gates(self, begin: str, inner: Tensor) -> Tensor:
        gate, up = (self.linear(f"{begin}mlp.{part}_proj", inner) for part in ("gate", "up"))
        return self.linear(f"{begin}mlp.down_proj", gate * torch.sigmoid(gate) * up)


class Reference(Layers):
    """The computation of a checkpoint after a text, token by token and without any cache.

    embedding: (V, H), the target's; states: (known, reads x H), the target's, of the first tokens
    """

    def __init__(self, model: Eagle3, embedding: Tensor, states: Tensor) -> None:
        self.model, self.tensors = model, model.tensors
        self.embedding = self.tensors.get("embed_tokens.weight", embedding)
        parts = states.split(model.hidden, dim=-1)
        if self.model.fc_norm:
            parts = [self.normed(f"fc_norm.{number}", part) for number, part in enumerate(parts)]
        joined = torch.cat(tuple(parts), dim=-1)
        if self.model.norm_before_fc:
            joined = self.normed("input_norm", joined)
        self.known = self.linear("fc", joined)

    def outputs(self, text: list[int]) -> list[Tensor]:
        """(H,) for each token but the first: the output of the layers, before the last norm."""
        outputs: list[Tensor] = []
        seen: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(self.model.layers)]
        for place in range(1, len(text)):
            if place <= len(self.known):
                state = self.known[place - 1]
            else:
                state = self.normed("norm", outputs[-1]) if self.model.norm_output else outputs[-1]
            x = self.first(self.embedding[text[place]], state, place, seen[0])
            for number in range(1, self.model.layers):
                begin = f"layers.{number}."
                x = self.rest(
                    begin, x, self.normed(f"{begin}input_layernorm", x), place, seen[number]
                )
            outputs.append(x)
        return outputs

    def logits(self, text: list[int]) -> Tensor:
        """(tokens - 1, W): logits after each token but the first, by rows of the head."""
        return self.linear("lm_head", self.normed("norm", torch.stack(self.outputs(text))))

    def first(self, embedding: Tensor, state: Tensor, place: int, seen: list) -> Tensor:
        """The first layer: attention reads twice the numbers."""
        normed_state = self.normed("layers.0.hidden_norm", state)
        both = torch.cat([self.normed("layers.0.input_layernorm", embedding), normed_state])
        past = normed_state if self.model.normed_residual else state
        return self.rest("layers.0.", past, both, place, seen)

    def rest(self, begin: str, past: Tensor, normed: Tensor, place: int, seen: list) -> Tensor:
        """Attention over all tokens so far, and the gates."""
        part, at, row = f"{begin}self_attn.", torch.tensor([place]), normed[None]
        facts = {"theta": self.model.theta, "norms": self.model.qwen}
        query, key = (self.turned(f"{part}{one}", row, at, **facts) for one in "qk")
        seen.append((key, self.linear(f"{part}v_proj", row).view(1, -1, HEAD)))
        keys, values = (torch.cat(one) for one in zip(*seen, strict=True))
        looked = attention(query, keys, values, torch.ones(1, len(keys), dtype=torch.bool))
        x = past + self.linear(f"{part}o_proj", looked[0])
        return x + self.gates(begin, self.normed(f"{begin}post_attention_layernorm", x))


def attention(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """(rows, HEADS x HEAD). keys, values: (places, KV_HEADS, HEAD); seen: (rows, places)"""
    keys, values = (one.repeat_interleave(HEADS // KV_HEADS, dim=1) for one in (keys, values))
    scores = torch.einsum("rhd,phd->hrp", query, keys) / HEAD**0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("hrp,phd->rhd", weights, values).flatten(1)


def turned(heads: Tensor, places: Tensor, theta: float) -> Tensor:
    """Rotary embedding of (rows, heads, HEAD): number i and number i + half are a complex number."""
    half = heads.shape[-1] // 2
    angles = places[:, None, None] / theta ** (torch.arange(half) / half)
    pairs = torch.complex(heads[..., :half], heads[..., half:])
    pairs = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pairs.real, pairs.imag], dim=-1)
