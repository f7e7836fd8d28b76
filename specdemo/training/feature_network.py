"""The network of a feature drafter on its own: one layer, in the parts that training unrolls.

The target's states are added to the token's embedding. The runtime reads the tensors that `folded` gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdemo.models.decoders.rotary import rotary_angles, rotary_frequencies
from specdemo.training.feature_layer import (
    BesideLayer,
    Layer,
    Norm,
    begun_norms,
    folded_norms,
    rotated,
)
from specdemo.training.student import Inject


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


class FeatureNetwork(nn.Module):
    """The drafter in training. `folded` returns the tensors of the runtime.

    config: of the layer; num_states: hidden states of the target that are read
    scale: factor of embeddings, so that their numbers are about 1; the runtime needs none
    skips_first: a text starts with its second token, because no state precedes the first
    """

    skips_first = False

    def __init__(self, config: Any, num_states: int, embedding: Tensor, scale: float) -> None:
        super().__init__()
        self.config, self.scale = config, scale
        self._make(num_states)
        self.__dict__["embedding"] = embedding  # the target's: neither trained nor saved

    def _make(self, num_states: int) -> None:
        hidden = self.config.hidden_size
        self.layers = nn.ModuleList([Layer(self.config, hidden)])
        self.norm = Norm(hidden, self.config.rms_norm_eps)
        self.inject = Inject(num_states, hidden)
        self.mix = nn.Linear(hidden, hidden, bias=False)
        self.feedback = nn.Parameter(torch.zeros(hidden))

    @property
    def layer(self) -> Layer:
        """Its only layer."""
        layer = self.layers[0]
        assert isinstance(layer, Layer)
        return layer

    def embed(self, token_ids: Tensor) -> Tensor:
        """(..., H) float32: embeddings mixed, so that their own direction, that of the previous token, can be removed."""
        mixed: Tensor = self.mix(self.looked_up(token_ids))
        return mixed

    def looked_up(self, token_ids: Tensor) -> Tensor:
        """(..., H) float32, of numbers of about 1."""
        embedding: Tensor = self.embedding  # type: ignore[assignment]
        return embedding[token_ids].float() * self.scale

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
        out = self._rest(x.flatten(0, 1)[rows], found)
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
        out = self._rest(x, found)
        return Draft(rows, out, draft.keys, draft.values, own), self.norm(out)

    def _joined(self, token_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return residual, (..., H), and attention input, (..., inputs). states: (..., H), of the tokens before"""
        x = self.embed(token_ids) + states
        return x, self.layer.input_layernorm(x)

    def _fed(self, x: Tensor) -> Tensor:
        """The drafter's own states instead of the target's, (..., H): normed to numbers of about 1."""
        normed: Tensor = self.norm(x)
        return self.feedback * (normed / self._norm_size())

    def _norm_size(self) -> Tensor:
        return self.norm.weight.detach().pow(2).mean().sqrt()

    def _heads(self, normed: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (B, heads, L, head_dim), rotated. normed: (B, L, inputs); where: (B or 1, L)"""
        attention = self.layer.self_attn
        parts = (
            one(normed).unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
            for one in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        queries, keys, values = parts
        cos, sin = self._angles(where)
        return rotated(queries, cos, sin), rotated(keys, cos, sin), values

    def _angles(self, where: Tensor) -> tuple[Tensor, Tensor]:
        """(1, 1, L, head_dim) each."""
        theta = self.config.rope_parameters["rope_theta"]
        frequencies = rotary_frequencies(self.config.head_dim, theta, where.device)
        return rotary_angles(where[:, None], frequencies)

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
        """(L, L) bool: keys that the tokens of a text do not see."""
        unseen = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
        if self.skips_first:
            unseen[1:, 0] = True
        return unseen

    def _rest(self, x: Tensor, found: Tensor) -> Tensor:
        """The layer behind its attention. x, found: (n, H) and (n, heads x head_dim)"""
        x = x + self.layer.self_attn.o_proj(found)
        inner: Tensor = self.layer.mlp(self.layer.post_attention_layernorm(x))
        return x + inner

    @torch.no_grad()
    def begin_as(self, layer: Mapping[str, Tensor], norm: Tensor) -> None:
        """Start as a layer of the target and its last norm. layer: its tensors by transformers' names in the layer

        Of a wider inner part the first outputs are taken: `narrowed` puts those that matter first.
        """
        inner = self.config.intermediate_size
        layer = begun_norms(layer)
        own = {
            name: layer[name][:, :inner] if name.endswith("down_proj.weight")
            else layer[name][: len(value)]
            for name, value in self.layer.state_dict().items()
        }  # fmt: skip
        self.layer.load_state_dict(own)
        self.norm.get_buffer("base").copy_(norm)

    def linear_inputs(self, states: Tensor, token_ids: Tensor) -> Tensor:
        """Return the inputs of a linear guess, (n, inputs). states: (n, states x H), normed; token_ids: (n,)"""
        return torch.cat([states, self.looked_up(token_ids)], dim=-1)

    @torch.no_grad()
    def begin_linear(self, found: Tensor) -> None:
        """Start as a linear guess, to which the layer adds nothing yet. found: (H, inputs), see `linear_inputs`"""
        features, embeddings = found.split([found.shape[1] - len(found), len(found)], dim=1)
        self.mix.weight.copy_(embeddings)
        self._begin_linear(features)

    def _begin_linear(self, features: Tensor) -> None:
        self.inject.project.weight.copy_(features)
        for matrix in (self.layer.self_attn.o_proj, self.layer.mlp.down_proj):
            nn.init.zeros_(matrix.weight)

    def folded(self) -> dict[str, Tensor]:
        """The tensors that the runtime takes: without the scale of embeddings, which norms make up for."""
        state = folded_norms(self.state_dict())
        for name in (
            "inject.project.weight", "layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight"
        ):  # fmt: skip
            state[name] = state[name] / self.scale
        state["feedback"] = state["feedback"] / (self._norm_size().cpu() * self.scale)
        return state

    def unfold(self, state: Mapping[str, Tensor]) -> None:
        """Continue from tensors of `folded`."""
        known, state = self.state_dict(), begun_norms(state)
        own = {name: tensor.float() for name, tensor in state.items() if name in known}
        for name in (
            "inject.project.weight", "layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight"
        ):  # fmt: skip
            own[name] = own[name] * self.scale
        size = own["norm.base"].pow(2).mean().sqrt()
        own["feedback"] = own["feedback"] * size * self.scale
        self.load_state_dict(own)


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
        self.layers = nn.ModuleList([BesideLayer(self.config)])
        self.norm = Norm(hidden, epsilon)
        self.inject = Inject(num_states, hidden, epsilon)

    @property
    def layer(self) -> BesideLayer:
        """Its only layer."""
        layer = self.layers[0]
        assert isinstance(layer, BesideLayer)
        return layer

    def _joined(self, token_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.layer
        parts = [layer.input_layernorm(self.looked_up(token_ids)), layer.hidden_norm(states)]
        return states, torch.cat(parts, dim=-1)

    def _fed(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x)
        return normed

    def linear_inputs(self, states: Tensor, token_ids: Tensor) -> Tensor:
        """The states alone: an embedding is read by attention only."""
        return states

    @torch.no_grad()
    def begin_as(self, layer: Mapping[str, Tensor], norm: Tensor) -> None:
        """As of `FeatureNetwork`; embedding and state are read as the layer reads its one input, half each."""
        wide = {
            name: torch.cat([one, one], dim=1) / 2
            if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
            else one
            for name, one in layer.items()
        }
        super().begin_as({**wide, "hidden_norm.weight": layer["input_layernorm.weight"]}, norm)

    @torch.no_grad()
    def begin_linear(self, found: Tensor) -> None:
        """Start as a linear guess of the states alone."""
        self._begin_linear(found)

    def folded(self) -> dict[str, Tensor]:
        """The tensors that the runtime and the published layout take."""
        return folded_norms(self.state_dict())

    def unfold(self, state: Mapping[str, Tensor]) -> None:
        """Continue from tensors of `folded`."""
        known, state = self.state_dict(), begun_norms(state)
        self.load_state_dict({name: one.float() for name, one in state.items() if name in known})
