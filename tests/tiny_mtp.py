"""Tiny targets that come with an MTP layer, and the computation of that layer, written from the format alone.

`Reference` is the layer of GLM-4.5 (2508.06471) as DeepSeek-V3 (2412.19437) describes it, and uses nothing of the
package or of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tiny_eagle3 import EPSILON, rms, turned
from tiny_files import make_tiny_tokenizer
from torch import Tensor

HEADS, KV_HEADS, HEAD, EXPERTS, CHOSEN, LAYERS = 4, 2, 8, 4, 2, 2
SCALING, THETA = 1.5, 10_000.0
MOE = {"moe_intermediate_size": 24, "num_experts_per_tok": CHOSEN}
ROUTED = {
    **MOE, "n_routed_experts": EXPERTS, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "routed_scaling_factor": SCALING, "norm_topk_prob": True,
    "num_nextn_predict_layers": 1,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "glm4_moe": {
        **ROUTED, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "use_qk_norm": True, "attention_bias": True,
    },
    "deepseek_v3": {
        **ROUTED, "num_key_value_heads": HEADS, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8, "v_head_dim": 8,
    },
    "mellum": {
        **MOE, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "num_experts": EXPERTS, "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_nextn_predict_layers": 1,
    },
}  # fmt: skip


def write_target(folder: Path, kind: str, **more: Any) -> Path:
    """A random target, an MTP layer behind its last, and a tokenizer. more: of config.json"""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    tokenizer = make_tiny_tokenizer()
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, max_position_embeddings=128, initializer_range=0.3, rope_theta=THETA,
        rms_norm_eps=EPSILON,
        bos_token_id=1, eos_token_id=None, tie_word_embeddings=False, **KINDS[kind] | more,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | mtp_tensors(kind, tensors), path, metadata={"format": "pt"})
    return folder


def mtp_tensors(kind: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Random tensors of a layer with the shapes of the target's last.

    If it has its own embedding and head, their values differ from the target's, so a reader that uses them is found.
    """
    generator = torch.Generator().manual_seed(3)

    def noise(*shape: int) -> Tensor:
        scale = 0.4 if len(shape) == 1 else 1.5 / shape[-1] ** 0.5
        return torch.randn(*shape, generator=generator) * scale

    last = f"model.layers.{LAYERS - 1}."
    like = {name.removeprefix(last): one for name, one in tensors.items() if name.startswith(last)}
    layer = {
        name: noise(*one.shape) + (1 if "norm" in name else 0) for name, one in sorted(like.items())
    }
    hidden = tensors["model.norm.weight"].shape[0]
    if kind == "mellum":
        names = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
        found = {f"mtp.{name}.weight": 1 + noise(hidden) for name in names}
        found["mtp.fc.weight"] = noise(hidden, 2 * hidden)
        return found | {f"mtp.layers.0.{name}": one for name, one in layer.items()}
    begin = f"model.layers.{LAYERS}."
    names = ("enorm", "hnorm", "shared_head.norm")
    found = {f"{begin}{name}.weight": 1 + noise(hidden) for name in names}
    found[f"{begin}eh_proj.weight"] = noise(hidden, 2 * hidden)
    found[f"{begin}embed_tokens.weight"] = noise(*tensors["model.embed_tokens.weight"].shape)
    found[f"{begin}shared_head.head.weight"] = noise(*tensors["lm_head.weight"].shape)
    return found | {f"{begin}{name}": one for name, one in layer.items()}


@dataclass(frozen=True)
class Ways:
    """Errors that a reader can make."""

    embedding_first: bool = True
    embedding_normed: bool = True
    state_normed: bool = True
    feeds_normed: bool = True  # its own state is fed back behind the last norm
    skips_first: bool = True  # the text starts with its second token
    own_head: bool = False  # the repeated embedding and head are read
    half_turned: bool = True  # half of a head by its position


class Reference:
    """The computation of the layer after a text, token by token and without any cache. states: (known, H), the target's"""

    def __init__(self, folder: Path, states: Tensor, **wrong: Any) -> None:
        self.ways = replace(Ways(), **wrong)
        tensors = load_file(folder / "model.safetensors")
        begin = f"model.layers.{LAYERS}."
        self.tensors = {
            name.removeprefix(begin): one for name, one in tensors.items() if name.startswith(begin)
        }
        own = self.ways.own_head
        self.embedding = (
            self.tensors["embed_tokens.weight"] if own else tensors["model.embed_tokens.weight"]
        )
        self.head = self.tensors["shared_head.head.weight"] if own else tensors["lm_head.weight"]
        self.states = list(states)

    def normed(self, name: str, x: Tensor, *, wanted: bool = True) -> Tensor:
        return rms(x, self.tensors[f"{name}.weight"]) if wanted else x

    def logits(self, text: list[int]) -> Tensor:
        """(tokens - 1, V): logits after each token but the first."""
        outputs: list[Tensor] = []
        seen: list[tuple[Tensor, Tensor]] = []
        for place in range(1 if self.ways.skips_first else 0, len(text)):
            before = place - 1
            if before < 0:
                state = torch.zeros_like(self.states[0])
            elif before < len(self.states):
                state = self.states[before]
            else:
                state = self.normed("shared_head.norm", outputs[-1], wanted=self.ways.feeds_normed)
            parts = [
                self.normed(
                    "enorm", self.embedding[text[place]], wanted=self.ways.embedding_normed
                ),
                self.normed("hnorm", state, wanted=self.ways.state_normed),
            ]
            both = torch.cat(parts if self.ways.embedding_first else parts[::-1])
            outputs.append(self.layer(self.tensors["eh_proj.weight"] @ both, place, seen))
        return torch.stack([self.head @ self.normed("shared_head.norm", one) for one in outputs])

    def layer(self, x: Tensor, place: int, seen: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Attention over all tokens so far, and experts."""
        normed = self.normed("input_layernorm", x)
        heads = {
            part: (
                self.tensors[f"self_attn.{part}_proj.weight"] @ normed
                + self.tensors[f"self_attn.{part}_proj.bias"]
            ).view(-1, HEAD)
            for part in "qkv"
        }
        query, key = (
            self.turned(self.normed(f"self_attn.{part}_norm", heads[part]), place) for part in "qk"
        )
        seen.append((key, heads["v"]))
        keys, values = (torch.stack(part, dim=1) for part in zip(*seen, strict=True))
        found = []
        for head in range(HEADS):
            shared = head // (HEADS // KV_HEADS)
            weights = (keys[shared] @ query[head] / HEAD**0.5).softmax(0)
            found.append(weights @ values[shared])
        x = x + self.tensors["self_attn.o_proj.weight"] @ torch.cat(found)
        inner = self.normed("post_attention_layernorm", x)
        return x + self.experts(inner) + self.gates("mlp.shared_experts.", inner)

    def turned(self, heads: Tensor, place: int) -> Tensor:
        """Half of each head by its position."""
        turns = HEAD // 2 if self.ways.half_turned else HEAD
        return torch.cat([turned(heads[:, :turns], place, THETA), heads[:, turns:]], dim=1)

    def experts(self, x: Tensor) -> Tensor:
        """The experts with the highest biased scores, by their scores without the bias."""
        scores = torch.sigmoid(self.tensors["mlp.gate.weight"] @ x)
        biased = scores + self.tensors["mlp.gate.e_score_correction_bias"]
        chosen = sorted(range(EXPERTS), key=lambda one: -float(biased[one]))[:CHOSEN]
        whole = sum(float(scores[one]) for one in chosen)
        return sum(
            self.gates(f"mlp.experts.{one}.", x) * float(scores[one]) / whole * SCALING
            for one in chosen
        )

    def gates(self, begin: str, x: Tensor) -> Tensor:
        gate, up = (self.tensors[f"{begin}{part}_proj.weight"] @ x for part in ("gate", "up"))
        return self.tensors[f"{begin}down_proj.weight"] @ (gate * torch.sigmoid(gate) * up)
