"""Trains a block drafter in the form of DFlash (2602.06036), or a causal one in that of JetSpec.

The target's states of the text become keys and values in every layer; a block is the pending token and a mask for each
guessed position. "on" is pending and two positions are guessed:

    text      the  cat  sat                keys and values alone
    block                    on   #   #    sees the text, and all of the block or, if causal, the rows before it
    guesses                       a  mat
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdemo.models.decoders.rotary import rotary_angles, rotary_frequencies
from specdemo.training.block import BlockTask
from specdemo.training.data import Row
from specdemo.training.feature_layer import Layer, Norm, folded_norms, rotated
from specdemo.training.task import Shared


@dataclass(frozen=True, slots=True)
class Blocks:
    """Positions of blocks in a batch of texts. L = longest text, Q = rows of blocks; n guesses in all.

    token_ids, where: (B, Q) of the blocks' rows; seen: (B, 1, Q, L + Q) bool, of the text and of the blocks
    here: (n,) row of the flattened blocks that guesses; there: (n,) index of the target's state
    place: (n,) 1 = the token after the pending one; greedy: (n,) bool
    """

    token_ids: np.ndarray
    where: np.ndarray
    seen: np.ndarray
    here: np.ndarray
    there: np.ndarray
    place: np.ndarray
    greedy: np.ndarray


def lay_blocks(
    batch: Sequence[Row], depth: int, offsets: Sequence[int], mask: int, *, causal: bool
) -> Blocks:
    """Blocks of `depth` guesses one after another through each answer, from an offset on. mask: token id"""
    length, rows = max(len(row.token_ids) for row in batch), depth + 1
    begins = [
        range(max(row.first, 1) + offset, len(row.token_ids), depth)
        for row, offset in zip(batch, offsets, strict=True)
    ]
    width = rows * max(1, *map(len, begins))
    token_ids = np.full((len(batch), width), mask, np.int64)
    where = np.zeros((len(batch), width), np.int64)
    seen = np.zeros((len(batch), width, length + width), bool)
    seen[:, :, length:] = np.eye(width, dtype=bool)  # unused rows must see something
    inside = np.tri(rows, dtype=bool) if causal else True
    found: list[tuple[int, int, int, bool]] = []
    for line, (row, pendings) in enumerate(zip(batch, begins, strict=True)):
        for number, pending in enumerate(pendings):
            begin = number * rows
            block = slice(begin, begin + rows)
            token_ids[line, begin] = row.token_ids[pending]
            where[line, block] = np.arange(pending, pending + rows)
            seen[line, block, :pending] = True
            seen[line, block, length + begin : length + begin + rows] = inside
            for place in range(min(depth, len(row.token_ids) - pending)):
                here, there = line * width + begin + 1 + place, row.start + pending + place
                found.append((here, there, place + 1, row.temperature == 0))
    columns = [np.array(column) for column in zip(*found, strict=True)]
    return Blocks(token_ids, where, seen[:, None], *columns)


class BlockLayer(Layer):
    """A layer of Qwen3: queries and keys pass a norm of each head."""

    def __init__(self, config: Any) -> None:
        super().__init__(config, config.hidden_size)
        self.self_attn.q_norm = Norm(config.head_dim, config.rms_norm_eps)
        self.self_attn.k_norm = Norm(config.head_dim, config.rms_norm_eps)


class DFlashNetwork(nn.Module):
    """The drafter while it is trained; `folded` gives its tensors by the names of the published layout.

    config: of its layers; num_states: of the target that are read; embedding: (V, H), the target's; mask: token id
    """

    def __init__(self, config: Any, num_states: int, embedding: Tensor, mask: int) -> None:
        super().__init__()
        hidden, epsilon = config.hidden_size, config.rms_norm_eps
        self.config, self.mask = config, mask
        self.fc = nn.Linear(num_states * hidden, hidden, bias=False)
        self.hidden_norm = Norm(hidden, epsilon)
        self.layers = nn.ModuleList([BlockLayer(config) for _ in range(config.num_hidden_layers)])
        self.norm = Norm(hidden, epsilon)
        self.__dict__["embedding"] = embedding  # neither trained nor saved

    def read(self, states: Tensor, token_ids: Tensor, where: Tensor, seen: Tensor) -> Tensor:
        """(B, Q, H): the head's input. states: (B, L, states x H), of each token; the rest as in `Blocks`"""
        embedding: Tensor = self.embedding  # type: ignore[assignment]
        text = self.hidden_norm(self.fc(states.float()))
        x = embedding[token_ids].float()
        before = torch.arange(states.shape[1], device=where.device).expand(len(where), -1)
        angles = self._angles(torch.cat([before, where], dim=1))
        for layer in self.layers:
            x = self._through(layer, text, x, angles, seen)
        found: Tensor = self.norm(x)
        return found

    def _through(
        self, layer: Any, text: Tensor, x: Tensor, angles: tuple[Tensor, Tensor], seen: Tensor
    ) -> Tensor:
        own, attention = layer.input_layernorm(x), layer.self_attn
        both, rows = torch.cat([text, own], dim=1), x.shape[1]

        def heads(part: Tensor) -> Tensor:
            apart: Tensor = part.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
            return apart

        cos, sin = angles
        queries = attention.q_norm(heads(attention.q_proj(own)))
        keys = rotated(attention.k_norm(heads(attention.k_proj(both))), cos, sin)
        queries = rotated(queries, cos[:, :, -rows:], sin[:, :, -rows:])
        values = heads(attention.v_proj(both)).to(queries.dtype)
        found = F.scaled_dot_product_attention(
            queries, keys.to(queries.dtype), values, attn_mask=seen, enable_gqa=True
        )
        x = x + attention.o_proj(found.transpose(1, 2).flatten(2))
        inner: Tensor = layer.mlp(layer.post_attention_layernorm(x))
        return x + inner

    def _angles(self, where: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1, rows, head_dim) each."""
        theta = self.config.rope_parameters["rope_theta"]
        frequencies = rotary_frequencies(self.config.head_dim, theta, where.device)
        return rotary_angles(where[:, None], frequencies)

    @torch.no_grad()
    def begin_as(self, layer: Mapping[str, Tensor], norm: Tensor) -> None:
        """Each layer starts as a layer of the target, whose inner part adds nothing yet; the last norm as the target's.

        layer: its tensors by transformers' names in the layer; norm: (H,)
        """
        inner = self.config.intermediate_size
        for own in self.layers:
            assert isinstance(own, BlockLayer)
            for name, parameter in own.named_parameters():
                if name in layer:
                    given = layer[name][:, :inner] if "down_proj" in name else layer[name]
                    parameter.copy_(given[: len(parameter)])
            for norm_name in ("input_layernorm", "post_attention_layernorm"):
                base = own.get_submodule(norm_name).get_buffer("base")
                base.copy_(layer[f"{norm_name}.weight"])
            nn.init.zeros_(own.mlp.down_proj.weight)
        self.norm.get_buffer("base").copy_(norm)

    def folded(self) -> dict[str, Tensor]:
        """Its tensors, by the names of the published layout."""
        return folded_norms(self.state_dict())


class DFlashTask(BlockTask):
    """Distils the target's distributions into blocks; guesses are not corrected afterwards."""

    def __init__(
        self,
        network: DFlashNetwork,
        shared: Shared,
        layers: tuple[int, ...],
        *,
        depth: int,
        causal: bool,
    ) -> None:
        super().__init__(network, shared, layers, depth=depth, causal=causal, compile_it=False)
        self.network, self.corrects = network, False

    def plan(self, batch: Sequence[Row], offsets: Sequence[int]) -> Blocks:
        """Return the positions of blocks, by `lay_blocks`."""
        return lay_blocks(batch, self.depth, offsets, self.network.mask, causal=self.causal)

    def weights(self) -> dict[str, Tensor]:
        """Return the tensors by the names of the published layout."""
        folded: dict[str, Tensor] = self.network.folded()
        return folded

    def _states(self, plan: Any, batch: Sequence[Row]) -> tuple[Tensor, Tensor]:
        device, hidden = self.shared.device, self.shared.hidden
        features = hidden.texts(batch, self.layers, device)
        token_ids, where, seen = (
            torch.from_numpy(part).to(device) for part in (plan.token_ids, plan.where, plan.seen)
        )
        with torch.autocast(device.type, torch.bfloat16):
            final = self.network.read(features, token_ids, where, seen)
        here = torch.from_numpy(plan.here).to(device)
        wanted = hidden.final(plan.there, device)
        return final.flatten(0, 1)[here].to(self.head.dtype), wanted.to(self.head.dtype)
