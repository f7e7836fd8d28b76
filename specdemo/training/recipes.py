"""Recipes of the draft networks: the start of each, and its loss.

The names are those of `models.networks.registry`; a new kind adds its recipe here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig

from specdemo.config.errors import UserError
from specdemo.models.networks.folders import load_state, read_config, read_layer, read_tensor
from specdemo.models.networks.four_bit import rounded
from specdemo.training.block import BlockTask, DFlashTask, MedusaTask
from specdemo.training.chain import FADING, MID_UNTIL, MID_WEIGHT, UNROLLED, ChainTask, FeatureTask
from specdemo.training.networks import DFlashNetwork, Eagle3Network, FeatureNetwork, narrowed
from specdemo.training.package import card_part, draft_config
from specdemo.training.student import EVERYWHERE, KL, L1, Student, spread
from specdemo.training.trainer import Start, Task

MARKOV_RANK = 128


Made = tuple[Task[Any], tuple[int, ...]]
"""A task, and the target's layers that its network starts as."""


def network_facts(task: Task[Any]) -> dict[str, object]:
    """Return the entries of a network's config.json in addition to those of every drafter."""
    start, base = task.start, getattr(task.module, "base", None)
    known = {
        "reads": list(start.layers),
        "depth": start.options.depth,
        "causal": start.network.kind == "jet",
        "extends": len(base.layers) if base else 0,
        "feedback": True,
        "form": start.network.form,
        "mask": start.mask,
    }
    return {key: known[key] for key in start.network.facts}


def _draft(start: Start) -> Made:
    """Start as layers of the target, or as an earlier draft model; early exit is its last layer, behind its lower ones."""
    student, layers = _draft_student(start, start.network.layers or start.options.layers)
    return ChainTask(student, start), layers


def _block(start: Start) -> Made:
    """Start layers that add nothing to a draft model and guess a block; with Markov and confidence heads unless it is causal."""
    base, _ = _draft_student(start, 0)
    nn.Module.to(base, start.device).requires_grad_(requires_grad=False)
    for layer in base.layers:  # the runtime computes with rounded matrices
        for parameter in layer.parameters():
            if parameter.ndim == 2:
                parameter.data = rounded(parameter.data)
    count, words = start.network.layers, 0 if start.network.kind == "jet" else len(start.word_ids)
    student = Student(
        draft_config(start.config, count), len(start.layers),
        base=base, depth=start.options.depth, markov=(words, MARKOV_RANK),
    )  # fmt: skip
    layers = (start.config.num_hidden_layers - 1,) * count
    student.begin(start.folder, layers)
    student.begin_above()
    return BlockTask(student, start), layers


def _medusa(start: Start) -> Made:
    """Start heads that add nothing to the target's last state."""
    return MedusaTask(start), ()


def _feature(start: Start) -> Made:
    """Start as a linear guess with the target's last layer, or as an earlier drafter of the same kind."""
    config, made = _narrow_config(start), FeatureNetwork
    if start.options.form == "eagle3":
        made, config.attention_bias = Eagle3Network, False  # published layers have no biases
    size = start.embedding[start.word_ids].float().pow(2).mean().sqrt()
    network = made(config, len(start.layers), start.embedding, 1 / float(size))
    task = FeatureTask(network, start)
    if start.options.init:
        network.unfold(load_state(start.options.init))
    else:
        network.begin_as(*_last_layer(start))
        task.fit()
    return task, (start.config.num_hidden_layers - 1,)


def _dflash(start: Start) -> Made:
    """Start layers as the target's last."""
    config = _narrow_config(start)
    config.attention_bias = False
    network = DFlashNetwork(config, len(start.layers), start.embedding, start.mask)
    network.begin_as(*_last_layer(start))
    return DFlashTask(network, start), (start.config.num_hidden_layers - 1,)


def _narrow_config(start: Start) -> LlamaConfig:
    options, narrow = start.options, draft_config(start.config, start.network.layers)
    # A drafter that is continued keeps its width.
    inner = read_config(options.init)["intermediate_size"] if options.init else options.inner
    narrow.intermediate_size = min(inner, start.config.intermediate_size)
    return narrow


def _last_layer(start: Start) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return the target's last layer, its most important inner outputs first, and its last norm in float32."""
    layer = read_layer(start.folder, start.config.num_hidden_layers - 1)
    norm = read_tensor(start.folder, "model.norm.weight").float()
    return narrowed(layer, layer["post_attention_layernorm.weight"]), norm


def _draft_student(start: Start, num_layers: int) -> tuple[Student, tuple[int, ...]]:
    """Return a draft model from the folder of an earlier one, or from layers of the target."""
    folder, depth = start.options.init, start.config.num_hidden_layers
    state = load_state(folder) if folder else {}
    config = read_config(folder) if folder else {}
    num_layers = config.get("num_hidden_layers", num_layers)
    if num_layers > depth:
        raise UserError("training.layers", most=depth, count=num_layers)
    student = Student(draft_config(start.config, num_layers))
    layers = spread(num_layers, depth)
    student.begin(start.folder, layers)
    if state:
        own = {name: tensor for name, tensor in state.items() if name in student.state_dict()}
        try:
            student.load_state_dict(own, strict=False)
        except RuntimeError as error:
            raise UserError("training.other_shape", folder=folder.name if folder else "") from error
        layers = tuple(config["specdemo"].get("card", {}).get("layers", layers))
    return student, layers


RECIPES: dict[str, Callable[[Start], Made]] = {
    "draft": _draft,
    "feature": _feature,
    "exit": _draft,
    "medusa": _medusa,
    "block": _block,
    "jet": _block,
    "dflash": _dflash,
}


def loss_of(recipe: str) -> str:
    """Return a sentence about a recipe's loss, for the card of the drafter."""
    text: str = card_part("words", "losses")[recipe]
    return text.format(
        kl=KL, l1=L1, everywhere=EVERYWHERE, mid=MID_WEIGHT, mid_until=MID_UNTIL, unrolled=UNROLLED, fading=FADING
    )  # fmt: skip
