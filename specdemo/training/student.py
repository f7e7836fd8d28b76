"""The draft while it is trained: some of the target's layers, its embedding, the loss."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaModel

from specdemo.training.data import Row, padded, positions
from specdemo.training.teacher import HiddenStates, read_states

HEAD_ROWS = 512  # positions whose logits exist at once


def spread(num_layers: int, depth: int) -> tuple[int, ...]:
    """Which of `depth` layers a draft begins as: evenly spaced, first and last among them.

    spread(4, 30) is (0, 10, 20, 29); spread(2, 16) is (0, 15)
    """
    if num_layers == 1:
        return (depth - 1,)
    return tuple(min(index * depth // (num_layers - 1), depth - 1) for index in range(num_layers))


def begin(config: LlamaConfig, target: Any, layers: Sequence[int]) -> LlamaModel:
    """A trainable fp32 model of copied layers; the embedding is the target's own, frozen.

    target: the target's LlamaModel, unquantised
    """
    draft = LlamaModel(config).float()
    for mine, index in zip(draft.layers, layers, strict=True):
        mine.load_state_dict(target.layers[index].state_dict())
    draft.norm.load_state_dict(target.norm.state_dict())
    draft.embed_tokens.weight.data = target.embed_tokens.weight.data
    draft.embed_tokens.weight.requires_grad_(requires_grad=False)
    return draft


def stack(draft: LlamaModel, mid: int) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The draft as a function of token ids (B, L), to (final, mid): (B, L, H) each.

    mid: the layer whose output is the middle state
    """

    def run(token_ids: Tensor) -> tuple[Tensor, Tensor]:
        x = draft.embed_tokens(token_ids)
        where = torch.arange(token_ids.shape[1], device=token_ids.device)[None]
        rotary = draft.rotary_emb(x, where)
        middle = x
        for index, layer in enumerate(draft.layers):
            # Without a mask, scaled_dot_product_attention takes its causal path.
            x = layer(
                x,
                attention_mask=None,
                position_ids=where,
                use_cache=False,
                position_embeddings=rotary,
            )
            x = x[0] if isinstance(x, tuple) else x
            if index == mid:
                middle = x
        return draft.norm(x), middle

    return run


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled where a compiler exists and takes it, else as it is."""
    if not any(shutil.which(name) for name in ("g++", "c++", "clang++", "cl")):
        return function
    chosen = [torch.compile(function, dynamic=True)]

    def run(*arguments: Any) -> Any:
        try:
            return chosen[0](*arguments)
        except Exception:
            if chosen[0] is function:
                raise
            chosen[0] = function  # the compiler failed, not the model: eager shows which
            return function(*arguments)

    return run


class DistilledHead(torch.autograd.Function):
    """KL(teacher || draft) over the reduced vocabulary; logits exist for a few rows at a time.

    forward(states (n, H), teacher (n, H), head (W, H)) -> mean KL in nats, () float32
    The logits' gradient is softmax(draft) - softmax(teacher), so forward makes it.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, teacher: Tensor, head: Tensor) -> Tensor:
        """Sum the loss and keep its gradient with respect to the states."""
        gradient, total = torch.empty_like(states), states.new_zeros((), dtype=torch.float32)
        for begin_row in range(0, len(states), HEAD_ROWS):
            rows = slice(begin_row, begin_row + HEAD_ROWS)
            said = F.linear(states[rows], head).log_softmax(-1, dtype=torch.float32)
            wanted = F.linear(teacher[rows], head).log_softmax(-1, dtype=torch.float32)
            probs = wanted.exp()
            total += (probs * wanted.sub_(said)).sum()
            gradient[rows] = said.exp_().sub_(probs).to(head.dtype) @ head
        ctx.save_for_backward(gradient / len(states))
        return total / len(states)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        """Scale what forward kept."""
        return ctx.saved_tensors[0] * outer[0], None, None


def normalised_error(states: Tensor, wanted: Tensor) -> Tensor:
    """Mean over rows of squared error by squared length of the wanted row. (n, H) each"""
    states, wanted = states.float(), wanted.float()
    return ((states - wanted).pow(2).sum(-1) / wanted.pow(2).sum(-1).clamp(min=1)).mean()


def batch_loss(
    run: Callable[[Tensor], tuple[Tensor, Tensor]],
    batch: Sequence[Row],
    hidden: HiddenStates,
    head: Tensor,
    mid_weight: float,
) -> tuple[Tensor, Tensor]:
    """Loss of a batch, and the KL within it. head: (W, H) bf16"""
    device = head.device
    token_ids = torch.from_numpy(padded(batch)).to(device)
    with torch.autocast(device.type, torch.bfloat16):
        final, middle = run(token_ids)
    here, there = positions(batch, answers_only=True)
    states = final.flatten(0, 1)[torch.from_numpy(here).to(device)].to(torch.bfloat16)
    wanted = read_states(hidden.final, there, device)
    divergence = DistilledHead.apply(states, wanted, head)
    loss = divergence + normalised_error(states, wanted)
    if mid_weight:
        here, there = positions(batch, answers_only=False)
        states = middle.flatten(0, 1)[torch.from_numpy(here).to(device)]
        loss = loss + mid_weight * normalised_error(states, read_states(hidden.mid, there, device))
    return loss, divergence.detach()


def save_tensors(path: Path, value: dict[str, Any]) -> None:
    """Write a checkpoint in one move."""
    torch.save(value, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def trained_state(draft: nn.Module) -> dict[str, Tensor]:
    """The draft's own tensors: all but the embedding."""
    return {
        name: tensor.detach().cpu()
        for name, tensor in draft.state_dict().items()
        if not name.startswith("embed_tokens")
    }
