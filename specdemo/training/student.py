"""The network that is trained: some decoder layers that may read the target's hidden states, and its losses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaModel

from specdemo.models.devices import mixed_precision
from specdemo.models.networks.folders import read_layer, read_tensor

HEAD_POSITIONS = 512  # positions whose logits exist at the same time
EPSILON = 1e-5


def spread(num_layers: int, depth: int) -> tuple[int, ...]:
    """Choose which of `depth` layers a draft starts as: evenly spaced, first and last among them.

    spread(4, 30) is (0, 10, 20, 29); spread(2, 16) is (0, 15)
    """
    if num_layers == 1:
        return (depth - 1,)
    return tuple(min(index * depth // (num_layers - 1), depth - 1) for index in range(num_layers))


class Inject(nn.Module):
    """The target's states one token earlier, projected and added to a draft's states (after EAGLE-3, Li 2503.01840).

    It starts at zero, so that a drafter starts as good as the draft model below it.
    """

    def __init__(self, num_states: int, hidden_size: int, epsilon: float = EPSILON) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.gain = nn.Parameter(torch.ones(num_states * hidden_size))
        self.project = nn.Linear(num_states * hidden_size, hidden_size, bias=False)
        self.hidden_size = hidden_size
        nn.init.zeros_(self.project.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Project features, (..., states x H), to (..., H); zero features give zero."""
        states = features.unflatten(-1, (-1, self.hidden_size))
        norm = F.rms_norm(states.float(), (self.hidden_size,), eps=self.epsilon).flatten(-2)
        projected: Tensor = self.project(norm.to(features.dtype) * self.gain)
        return projected


class Markov(nn.Module):
    """DSpark's sequential stage: logits added by the previous token, and the confidence of the guess."""

    def __init__(self, words: int, hidden_size: int, rank: int) -> None:
        super().__init__()
        # One row more for every word outside the reduced vocabulary.
        self.token = nn.Embedding(words + 1, rank)
        self.bias = nn.Linear(rank, words, bias=False)
        self.confidence = nn.Linear(hidden_size + rank, 1)
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.zeros_(self.bias.weight)

    def forward(self, states: Tensor, logits: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        """Correct logits by the previous token. states: (n, H); logits: (n, W); previous: (n,) rows of the reduced vocabulary

        returns: logits (n, W), and confidence logits (n,)
        """
        token = self.token(previous)
        with mixed_precision(states.device):
            bias = self.bias(token)
        sure = self.confidence(torch.cat([states.float(), token.float()], dim=-1))
        return logits + bias, sure[:, 0]


class Student(LlamaModel):
    """Decoder layers to be trained, over the target's frozen embedding or over a frozen draft model.

    base: the draft model below, whose last states are inputs next to the target's; None for a draft model itself
    num_states: hidden states of the target that are read, 0 for none
    depth: positions that are guessed in one pass, 1 for a drafter that guesses token by token
    markov: tokens and rank of the Markov head, (0, 0) for none
    """

    if TYPE_CHECKING:  # transformers evaluates the annotations of its classes
        base: Student | None

    def __init__(
        self,
        config: LlamaConfig,
        num_states: int = 0,
        *,
        base: Student | None = None,
        depth: int = 1,
        markov: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(config)
        hidden = config.hidden_size
        self.inject = Inject(num_states, hidden) if base and num_states else None
        self.mask = nn.Parameter(torch.zeros(depth - 1, hidden)) if depth > 1 else None
        words, rank = markov
        self.markov = Markov(words, hidden, rank) if words else None
        if self.markov is not None:
            self.register_buffer("temperatures", torch.ones(depth))
        nn.Module.to(self, torch.float32)
        self.__dict__["base"] = base  # not a part: neither trained nor saved with this one

    def begin(self, target: Path, layers: Sequence[int]) -> None:
        """Start as layers of the target in a folder, with its embedding, frozen."""
        for mine, index in zip(self.layers, layers, strict=True):
            mine.load_state_dict(read_layer(target, index))
        self.norm.load_state_dict({"weight": read_tensor(target, "model.norm.weight")})
        self.embed_tokens.weight.data = read_tensor(target).float()
        self.embed_tokens.weight.requires_grad = False

    def begin_above(self) -> None:
        """Start as nothing on top of the base: the layers add zero at first."""
        assert self.base is not None
        for layer in self.layers:
            for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
                nn.init.zeros_(layer.get_parameter(name))
        self.norm.load_state_dict(self.base.norm.state_dict())

    def read(
        self,
        token_ids: Tensor,
        features: Tensor | None = None,
        where: Tensor | None = None,
        seen: Tensor | None = None,
        anchors: Tensor | None = None,
        places: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run the layers over a batch of L tokens and M guessed positions.

        token_ids: (B, L) int64
        features: (B, L, states x H) hidden states of the target, zero if not known; with a base they are injected, and
            without one the layers read a single state instead of the tokens' embeddings
        where: (B, L + M) positions, 0 to L - 1 by default; seen: (B, 1, L + M, L + M) additive mask, causal by default
        anchors, places: (B, M) — last known token of each guessed position, and its distance from there, from 0
        returns: (final, middle), (B, L + M, H) each
        """
        if self.base is not None:
            with torch.no_grad():
                x = self.base.states(token_ids)
            if self.inject is not None and features is not None:
                x = x + self.inject(features)
        else:
            x = self.embed_tokens(token_ids) if features is None else features.float()
        if anchors is not None:
            assert self.mask is not None
            known = x.gather(1, anchors[..., None].expand(-1, -1, x.shape[-1]))
            x = torch.cat([x, known + self.mask[places]], dim=1)
        x, middle = self._stack(x, where, seen)
        return self.norm(x), middle

    def states(self, token_ids: Tensor) -> Tensor:
        """Return the output of the last layer before the norm, (B, L, H)."""
        return self._stack(self.embed_tokens(token_ids), None, None)[0]

    def _stack(self, x: Tensor, where: Tensor | None, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        if where is None:
            where = torch.arange(x.shape[1], device=x.device)[None]
        rotary = self.rotary_emb(x, where)
        middle, mid = x, len(self.layers) // 2 - 1
        for index, layer in enumerate(self.layers):
            # Without a mask, scaled_dot_product_attention takes its causal path.
            x = layer(
                x,
                attention_mask=seen,
                position_ids=where,
                use_cache=False,
                position_embeddings=rotary,
            )
            x = x[0] if isinstance(x, tuple) else x
            if index == mid:
                middle = x
        return x, middle


KL, L1 = 0.3, 0.7  # shares of the two in the loss
EVERYWHERE = 0.5  # weight of a position after a surely accepted token, relative to one after a rejected token


class DistilledHead(torch.autograd.Function):
    """Distance of the draft's distribution q from the teacher's p over the reduced vocabulary: KL x KL(p || q) + L1 x |p - q|.

    A drawn token is accepted with probability 1 - |p - q| / 2, so the second term is the goal; the first teaches a draft
    that is still far off (DistillSpec 2310.08461 compares such losses). Logits exist for a few rows at a time.

    forward(states (n, H), teacher (n, H), head (W, H), own (W, H), weights (n,), along) -> weighted mean, () float32
    own: the draft's head if it differs from the teacher's
    along: rows follow each other in a text, and count the more the likelier the draft's previous token is rejected:
        drafts start there, so the draft's own errors choose the positions that matter
    The logits' gradients are q - p and q (s - s . q) with s = sign(q - p), so forward computes them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        teacher: Tensor,
        head: Tensor,
        own: Tensor | None = None,
        weights: Tensor | None = None,
        along: bool = False,  # noqa: FBT001, FBT002 - autograd takes no keywords
    ) -> Tensor:
        """Sum the loss and store its gradient with respect to the states."""
        own = head if own is None else own
        weights = states.new_ones(len(states)) if weights is None else weights
        weights = weights.float()[:, None].clone()
        gradient, total = torch.empty_like(states), states.new_zeros((), dtype=torch.float32)
        before = weights.new_ones(1, 1)
        for begin_row in range(0, len(states), HEAD_POSITIONS):
            rows = slice(begin_row, begin_row + HEAD_POSITIONS)
            said = F.linear(states[rows], own).log_softmax(-1, dtype=torch.float32)
            wanted = F.linear(teacher[rows], head).log_softmax(-1, dtype=torch.float32)
            probs, share = wanted.exp(), weights[rows]
            far = (probs * wanted.sub_(said)).sum(-1, keepdim=True).mul_(KL)
            mine = said.exp_()
            apart = mine - probs
            distance = apart.abs().sum(-1, keepdim=True)
            if along:
                refused = torch.cat([before, distance / 2])
                share *= EVERYWHERE + (1 - EVERYWHERE) * refused[:-1]
                before = refused[-1:]
            total += far.add_(distance, alpha=L1).mul_(share).sum()
            side = apart.sign()
            side.sub_((side * mine).sum(-1, keepdim=True)).mul_(mine).mul_(L1)
            gradient[rows] = apart.mul_(KL).add_(side).mul_(share).to(head.dtype) @ own
        ctx.save_for_backward(gradient.div_(weights.sum()))
        return total / weights.sum()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        return ctx.saved_tensors[0] * outer[0], None, None, None, None, None


def normalised_error(states: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean over rows of squared error by squared length of the target's row. states, wanted: (n, H)"""
    states, wanted = states.float(), wanted.float()
    return ((states - wanted).pow(2).sum(-1) / wanted.pow(2).sum(-1).clamp(min=1)).mean()
