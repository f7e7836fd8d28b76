"""Draft networks in training that read the target's states on their own: feature drafters and blocks of DFlash.

`folded` returns the tensors that the runtime and published layouts read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.llama.modeling_llama import LlamaMLP

from specdemo.models.decoders.rotary import rotary_angles, rotary_frequencies
from specdemo.training.student import Inject

# Matrices that make up for the scale of embeddings.
SCALED = (
    "inject.project.weight", "layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight"
)  # fmt: skip


class Norm(nn.Module):
    """An RMS norm that learns a factor for each initial weight: the weights of a target's norms differ widely in size."""

    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.register_buffer("base", torch.ones(hidden))
        self.share = nn.Parameter(torch.ones(hidden))
        self.epsilon = epsilon

    @property
    def weight(self) -> Tensor:
        """(H,)"""
        return self.get_buffer("base") * self.share

    def forward(self, x: Tensor) -> Tensor:
        """Return the normed input, (..., H) as it."""
        return F.rms_norm(x, x.shape[-1:], self.weight, self.epsilon)


class Layer(nn.Module):
    """One Llama layer in parts, because prompts need no more of it than keys and values.

    inputs: numbers that go into its attention: 2 x H for an embedding and a state, which has a norm of its own
    head_norms: queries and keys pass a norm of each head, as in Qwen3
    """

    def __init__(self, config: Any, inputs: int, *, head_norms: bool = False) -> None:
        super().__init__()
        hidden, width, bias = config.hidden_size, config.head_dim, config.attention_bias
        queries, keys = config.num_attention_heads * width, config.num_key_value_heads * width
        self.head_dim = width
        self.input_layernorm = Norm(hidden, config.rms_norm_eps)
        self.self_attn = nn.ModuleDict({
            "q_proj": nn.Linear(inputs, queries, bias=bias),
            "k_proj": nn.Linear(inputs, keys, bias=bias),
            "v_proj": nn.Linear(inputs, keys, bias=bias),
            "o_proj": nn.Linear(queries, hidden, bias=False),
        })  # fmt: skip
        for part in "qk" if head_norms else ():
            self.self_attn[f"{part}_norm"] = Norm(width, config.rms_norm_eps)
        if inputs > hidden:
            self.hidden_norm = Norm(hidden, config.rms_norm_eps)
        self.post_attention_layernorm = Norm(hidden, config.rms_norm_eps)
        self.mlp = LlamaMLP(config)

    def heads(self, part: str, x: Tensor) -> Tensor:
        """Return queries, keys or values, (B, heads, L, head_dim). part: "q", "k" or "v"; x: (B, L, inputs)"""
        joined: Tensor = self.self_attn[f"{part}_proj"](x)
        apart: Tensor = joined.unflatten(-1, (-1, self.head_dim))
        return apart.transpose(1, 2)

    def after(self, x: Tensor, found: Tensor) -> Tensor:
        """Return the layer behind its attention. x: (..., H); found: (..., heads x head_dim)"""
        x = x + self.self_attn["o_proj"](found)
        inner: Tensor = self.mlp(self.post_attention_layernorm(x))
        return x + inner


class StatesNetwork(nn.Module):
    """Base of the draft networks whose layers start as a layer of the target.

    config: of the layers; embedding: (V, H), the target's, neither trained nor saved
    scale: factor of embeddings
    """

    layers: nn.ModuleList
    norm: Norm
    scale = 1.0

    def __init__(self, config: Any, embedding: Tensor) -> None:
        super().__init__()
        self.config = config
        self.__dict__["embedding"] = embedding

    def embedded(self, token_ids: Tensor) -> Tensor:
        """Return the scaled embeddings of tokens, (..., H) float32."""
        embedding: Tensor = self.__dict__["embedding"]
        return embedding[token_ids].float() * self.scale

    def angles(self, where: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of positions, (B or 1, 1, L, head_dim) each. where: (B or 1, L)"""
        theta = self.config.rope_parameters["rope_theta"]
        frequencies = rotary_frequencies(self.config.head_dim, theta, where.device)
        return rotary_angles(where[:, None], frequencies)

    @torch.no_grad()
    def begin_as(self, layer: Mapping[str, Tensor], norm: Tensor) -> None:
        """Start as a layer of the target and its last norm. layer: its tensors by transformers' names in the layer

        Of a wider inner part the first outputs are used: `narrowed` puts those that matter first.
        """
        inner, given = self.config.intermediate_size, begun_norms(layer)
        for own in self.layers:
            state = {
                name: given[name][:, :inner] if name.endswith("down_proj.weight")
                else given[name][: len(value)]
                for name, value in own.state_dict().items()
                if name in given
            }  # fmt: skip
            own.load_state_dict(state, strict=False)
        self.norm.get_buffer("base").copy_(norm)

    def folded(self) -> dict[str, Tensor]:
        """Return the tensors that the runtime and the published layout read."""
        found = {name: tensor.detach().cpu() for name, tensor in self.state_dict().items()}
        # The two parts of each norm are one weight again, see `begun_norms`.
        for name in [name.removesuffix("base") for name in found if name.endswith(".base")]:
            found[f"{name}weight"] = found.pop(f"{name}base") * found.pop(f"{name}share")
        return found

    def unfold(self, state: Mapping[str, Tensor]) -> None:
        """Continue from tensors of `folded`."""
        known, state = self.state_dict(), begun_norms(state)
        self.load_state_dict({name: one.float() for name, one in state.items() if name in known})


@dataclass(slots=True)
class Draft:
    """Drafts from some positions of a batch of texts, all equally long.

    rows: (n,) int64, positions in the flattened batch that the drafts follow; x: (n, H), of their last tokens
    keys, values: of the texts, (B, kv_heads, L, head_dim)
    own: keys and values of drafted tokens, (B, kv_heads, L, head_dim), at the positions that their drafts follow
    """

    rows: Tensor
    x: Tensor
    keys: Tensor
    values: Tensor
    own: list[tuple[Tensor, Tensor]]


class FeatureNetwork(StatesNetwork):
    """A feature drafter: one layer, in the parts that training unrolls. The target's states are added to embeddings.

    num_states: hidden states of the target that are read
    scale: factor of embeddings, so that their numbers are about 1; the runtime needs none
    skips_first: a text starts with its second token, because no state precedes the first
    """

    skips_first = False

    def __init__(self, config: Any, num_states: int, embedding: Tensor, scale: float) -> None:
        super().__init__(config, embedding)
        self.scale = scale
        self._make(num_states)

    def _make(self, num_states: int) -> None:
        hidden = self.config.hidden_size
        self.layers = nn.ModuleList([Layer(self.config, hidden)])
        self.norm = Norm(hidden, self.config.rms_norm_eps)
        self.inject = Inject(num_states, hidden)
        self.mix = nn.Linear(hidden, hidden, bias=False)
        self.feedback = nn.Parameter(torch.zeros(hidden))

    @property
    def layer(self) -> Layer:
        layer = self.layers[0]
        assert isinstance(layer, Layer)
        return layer

    def begin(self, token_ids: Tensor, features: Tensor, rows: Tensor) -> tuple[Draft, Tensor]:
        """Read texts.

        token_ids: (B, L); features: (B, L, states x H), of the token before, zero if there is none; rows: see `Draft`
        returns: drafts that follow the rows, and (n, H) states of their first tokens
        """
        x, normed = self._joined(token_ids, self.inject(features))
        queries, keys, values = self._heads(normed, torch.arange(x.shape[1], device=x.device)[None])
        seen = ~self._unseen(x.shape[1], x.device) if self.skips_first else None
        found = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=seen, is_causal=seen is None, enable_gqa=True
        )
        found = found.transpose(1, 2).flatten(2).flatten(0, 1)[rows]
        out = self.layer.after(x.flatten(0, 1)[rows], found)
        return Draft(rows, out, keys, values, []), self.norm(out)

    def go_on(self, draft: Draft, token_ids: Tensor, kept: Tensor) -> tuple[Draft, Tensor]:
        """Draft one more token of some drafts.

        kept: (m,) int64, which drafts; token_ids: (m,), the tokens that follow their last ones
        returns: these drafts, and (m, H) states of their next tokens
        """
        rows, (batch, _, length, _) = draft.rows[kept], draft.keys.shape
        x, normed = self._joined(token_ids, self._fed(draft.x[kept]))
        where = rows % length + len(draft.own) + 1
        heads = self._heads(normed[None], where[None])
        queries, keys, values = (self._placed(one, rows, batch, length) for one in heads)
        own = [*draft.own, (keys, values)]
        found = self._look(queries, draft.keys, draft.values, own)
        found = found.transpose(1, 2).flatten(2).flatten(0, 1)[rows]
        out = self.layer.after(x, found)
        return Draft(rows, out, draft.keys, draft.values, own), self.norm(out)

    def _joined(self, token_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return residual, (..., H), and attention input, (..., inputs). states: (..., H), of the tokens before"""
        # Mixing can remove the direction of the previous token from an embedding.
        x = self.mix(self.embedded(token_ids)).float() + states
        return x, self.layer.input_layernorm(x)

    def _fed(self, x: Tensor) -> Tensor:
        """Return the drafter's own states, (..., H), normed to numbers of about 1, for those of the target."""
        normed: Tensor = self.norm(x)
        return self.feedback * (normed / self._norm_size())

    def _norm_size(self) -> Tensor:
        return self.norm.weight.detach().pow(2).mean().sqrt()

    def _heads(self, normed: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries and keys, and values, (B, heads, L, head_dim). normed: (B, L, inputs); where: (B or 1, L)"""
        cos, sin = self.angles(where)
        queries, keys, values = (self.layer.heads(part, normed) for part in "qkv")
        return rotated(queries, cos, sin), rotated(keys, cos, sin), values

    def _placed(self, part: Tensor, rows: Tensor, batch: int, length: int) -> Tensor:
        """Scatter (1, heads, m, head_dim) to the positions that drafts follow: (batch, heads, length, head_dim), else zeros."""
        table = part.new_zeros(batch * length, *part.shape[1::2])
        table = table.index_copy(0, rows, part[0].transpose(0, 1))
        placed: Tensor = table.unflatten(0, (batch, length)).transpose(1, 2)
        return placed

    def _look(
        self, queries: Tensor, keys: Tensor, values: Tensor, own: Sequence[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Attend from drafted tokens to their texts up to the start of their drafts, and to their drafts."""
        groups, length = queries.shape[1] // keys.shape[1], queries.shape[2]
        queries = queries.unflatten(1, (-1, groups)) * self.config.head_dim**-0.5
        scores = queries @ keys[:, :, None].transpose(-1, -2)
        scores = scores.masked_fill(self._unseen(length, keys.device), -torch.inf)
        mine = [(queries * key[:, :, None]).sum(-1, keepdim=True) for key, _ in own]
        weights = torch.cat([scores, *mine], dim=-1).softmax(-1)
        found = weights[..., :length] @ values[:, :, None]
        for number, (_, value) in enumerate(own, start=length):
            found = found + weights[..., number : number + 1] * value[:, :, None]
        return found.flatten(1, 2)

    def _unseen(self, length: int, device: torch.device) -> Tensor:
        """Return which keys the tokens of a text do not see, (L, L) bool."""
        unseen = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
        if self.skips_first:
            unseen[1:, 0] = True
        return unseen

    def linear_inputs(self, states: Tensor, token_ids: Tensor) -> Tensor:
        """Return the inputs of a linear guess, (n, inputs). states: (n, states x H), normed; token_ids: (n,)"""
        return torch.cat([states, self.embedded(token_ids)], dim=-1)

    @torch.no_grad()
    def begin_linear(self, found: Tensor) -> None:
        """Start as a linear guess, to which the layer adds nothing yet. found: (H, inputs), see `linear_inputs`"""
        states = self.inject.project.in_features
        self.inject.project.weight.copy_(found[:, :states])
        if found.shape[1] > states:
            self.mix.weight.copy_(found[:, states:])
        for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            nn.init.zeros_(self.layer.get_parameter(name))

    def folded(self) -> dict[str, Tensor]:
        """Return the tensors that the runtime reads: without the scale of embeddings, which norms make up for."""
        state = super().folded()
        for name in SCALED:
            state[name] = state[name] / self.scale
        state["feedback"] = state["feedback"] / (self._norm_size().cpu() * self.scale)
        return state

    def unfold(self, state: Mapping[str, Tensor]) -> None:
        scaled = {name: state[name].float() * self.scale for name in SCALED}
        size = state["norm.weight"].float().pow(2).mean().sqrt()
        scaled["feedback"] = state["feedback"].float() * size * self.scale
        super().unfold({**state, **scaled})


class Eagle3Network(FeatureNetwork):
    """The drafter in the form of EAGLE-3, for other engines: attention reads embedding and state side by side, each normed.

    The residual is the state before its norm. The drafter's own state has passed the last norm, as in EAGLE 3.1
    (`norm_output`), and each of the target's states has a norm of its own (`fc_norm`). No scale is needed: an embedding
    passes a norm first.
    """

    skips_first = True

    def _make(self, num_states: int) -> None:
        hidden, epsilon = self.config.hidden_size, self.config.rms_norm_eps
        self.scale = 1.0
        self.layers = nn.ModuleList([Layer(self.config, 2 * hidden)])
        self.norm = Norm(hidden, epsilon)
        self.inject = Inject(num_states, hidden, epsilon)

    def _joined(self, token_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.layer
        parts = [layer.input_layernorm(self.embedded(token_ids)), layer.hidden_norm(states)]
        return states, torch.cat(parts, dim=-1)

    def _fed(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x)
        return normed

    def linear_inputs(self, states: Tensor, token_ids: Tensor) -> Tensor:
        """Return the states alone: an embedding is read by attention only."""
        return states

    @torch.no_grad()
    def begin_as(self, layer: Mapping[str, Tensor], norm: Tensor) -> None:
        """Start as a layer of the target that reads embedding and state as its one input, half each."""
        wide = {
            name: torch.cat([one, one], dim=1) / 2
            if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
            else one
            for name, one in layer.items()
        }
        super().begin_as({**wide, "hidden_norm.weight": layer["input_layernorm.weight"]}, norm)

    # No scale and no gain are folded.
    folded = StatesNetwork.folded
    unfold = StatesNetwork.unfold


class DFlashNetwork(StatesNetwork):
    """A block drafter. num_states: hidden states of the target that are read; mask: token id"""

    def __init__(self, config: Any, num_states: int, embedding: Tensor, mask: int) -> None:
        super().__init__(config, embedding)
        hidden, epsilon = config.hidden_size, config.rms_norm_eps
        self.mask = mask
        self.fc = nn.Linear(num_states * hidden, hidden, bias=False)
        self.hidden_norm = Norm(hidden, epsilon)
        self.layers = nn.ModuleList(
            Layer(config, hidden, head_norms=True) for _ in range(config.num_hidden_layers)
        )
        self.norm = Norm(hidden, epsilon)

    def read(self, states: Tensor, token_ids: Tensor, where: Tensor, seen: Tensor) -> Tensor:
        """Return the head's input, (B, Q, H). states: (B, L, states x H), of each token; the rest: see `BlockPlan`"""
        text = self.hidden_norm(self.fc(states.float()))
        x = self.embedded(token_ids)
        before = torch.arange(states.shape[1], device=where.device).expand(len(where), -1)
        cos, sin = self.angles(torch.cat([before, where], dim=1))
        rows = where.shape[1]
        for layer in self.layers:
            assert isinstance(layer, Layer)
            own, attention = layer.input_layernorm(x), layer.self_attn
            both = torch.cat([text, own], dim=1)
            queries = attention["q_norm"](layer.heads("q", own))
            queries = rotated(queries, cos[:, :, -rows:], sin[:, :, -rows:])
            keys = rotated(attention["k_norm"](layer.heads("k", both)), cos, sin)
            values = layer.heads("v", both).to(queries.dtype)
            found = F.scaled_dot_product_attention(
                queries, keys.to(queries.dtype), values, attn_mask=seen, enable_gqa=True
            )
            x = layer.after(x, found.transpose(1, 2).flatten(2))
        normed: Tensor = self.norm(x)
        return normed

    @torch.no_grad()
    def begin_as(self, layer: Mapping[str, Tensor], norm: Tensor) -> None:
        """Start each layer as a layer of the target, whose inner part adds nothing yet."""
        super().begin_as(layer, norm)
        for own in self.layers:
            nn.init.zeros_(own.get_parameter("mlp.down_proj.weight"))


class MedusaHeads(nn.Module):
    """One residual block a head; the output matrix is the target's, shared by all."""

    def __init__(self, depth: int, hidden_size: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(hidden_size, hidden_size) for _ in range(depth))
        for parameter in self.heads.parameters():
            nn.init.zeros_(parameter)

    def guess(self, number: int, states: Tensor) -> Tensor:
        """Return the states that a head predicts, (n, H). number: of the head, from 0; states: (n, H)"""
        return states + F.silu(self.heads[number](states))


def begun_norms(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with norm weights split as in `Norm` before training."""
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        stem = name.removesuffix("weight")
        if stem.endswith(("norm.", "layernorm.")):
            found |= {f"{stem}base": tensor, f"{stem}share": torch.ones_like(tensor)}
        else:
            found[name] = tensor
    return found


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding (RoFormer 2104.09864) in transformers' order: halves, not pairs."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


def narrowed(layer: Mapping[str, Tensor], norm: Tensor) -> dict[str, Tensor]:
    """Sort the inner outputs of a layer, those that matter most first: by the sizes of the rows and columns that make them.

    layer: tensors by transformers' names in the layer; norm: (H,) weight of the norm before its inner part
    """
    gate, up, down = (layer[f"mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
    matter = (gate * norm).norm(dim=1) * (up * norm).norm(dim=1) * down.norm(dim=0)
    order = matter.argsort(descending=True)
    parts = {
        "mlp.gate_proj.weight": gate[order],
        "mlp.up_proj.weight": up[order],
        "mlp.down_proj.weight": down[:, order],
    }
    return {**layer, **parts}
