"""The one table of what can be trained: a network, what it reads, its loss, and what the runtime must know of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from specdemo.config.errors import UserError
from specdemo.drafters.methods import TRAINED
from specdemo.models.networks.compact_files import load_state, read_config, read_layer, read_tensor
from specdemo.models.networks.four_bit import rounded
from specdemo.models.quiet import quiet_transformers
from specdemo.training.chain import MID_UNTIL, MID_WEIGHT, ChainTask, Shared
from specdemo.training.eagle3_network import Eagle3Network
from specdemo.training.feature import FADING, UNROLLED, FeatureTask
from specdemo.training.feature_layer import narrowed
from specdemo.training.feature_network import FeatureNetwork
from specdemo.training.package import draft_config
from specdemo.training.student import EVERYWHERE, KL, L1, Student, spread

if TYPE_CHECKING:
    from transformers import LlamaConfig

    from specdemo.training.data import Row
    from specdemo.training.options import TrainOptions
    from specdemo.training.trainer import Task

RANK = 128  # of the Markov head
_DISTANCE = f"{KL} KL + {L1} L1 to the target's distribution over the reduced vocabulary"
_DISTILLED = (
    f"{_DISTANCE}, places after a token that was surely kept counting {EVERYWHERE} of those after a refused one"
    " + normalised squared error of the final hidden state"
)
ALONE = (
    f"{_DISTILLED}; so for {UNROLLED} drafted tokens, each read with the drafter's own state before it, {FADING} as much "
    "for each as for the one before"
)
LOSSES = {
    "draft": f"{_DISTILLED} + {MID_WEIGHT} times that of a middle one, fading out at {MID_UNTIL:.0%} of the time",
    "feature": f"{_DISTILLED}; the features of random runs of tokens are missing, as while drafting on",
    "exit": _DISTILLED,
    "medusa": f"{_DISTANCE} so many tokens later, mean over the heads",
    "block": "per place: 0.1 KL + 0.9 L1 to the target's distribution + "
    "cross-entropy of the confidence to 1 - TV; later places count less",
    "jet": f"{_DISTANCE} at every place; later places count less",
}


def alone_task(
    options: TrainOptions, config: LlamaConfig, folder: Path, shared: Shared, rows: Sequence[Row]
) -> tuple[FeatureTask, dict[str, object], tuple[int, ...]]:
    """As `make_task`, for a feature drafter without a draft model. rows: to train on

    It begins as a linear guess with the target's last layer, or goes on from an earlier drafter of its kind.
    """
    layers, last = shared.hidden.layers, config.num_hidden_layers - 1
    if eagle3 := options.form == "eagle3":
        layers = layers[:-1]
    narrow = draft_config(config, 1)
    narrow.intermediate_size = min(options.inner, config.intermediate_size)
    size = shared.embedding[shared.word_ids].float().pow(2).mean().sqrt()
    if eagle3:
        narrow.attention_bias = False  # published layers of this form have none
    made = Eagle3Network if eagle3 else FeatureNetwork
    network = made(narrow, len(layers), shared.embedding, 1 / float(size))
    task = FeatureTask(network, shared, layers)
    if options.init:
        network.unfold(load_state(options.init))
    else:
        layer, norm = read_layer(folder, last), read_tensor(folder, "model.norm.weight")
        network.begin_as(narrowed(layer, layer["post_attention_layernorm.weight"]), norm)
        task.fit(rows)
    network.to(shared.device)
    extra = {"reads": list(layers), "feedback": True} | ({"form": "eagle3"} if eagle3 else {})
    return task, extra, (last,)


def dflash_task(
    options: TrainOptions, config: LlamaConfig, folder: Path, shared: Shared
) -> tuple[Task, dict[str, object], tuple[int, ...]]:
    """As `make_task`, for a block drafter of the form of DFlash. A mask is the token that the target says least."""
    from specdemo.training.dflash import LAYERS, DFlashNetwork, DFlashTask

    layers, last = shared.hidden.layers[:-1], config.num_hidden_layers - 1
    narrow = draft_config(config, LAYERS)
    narrow.intermediate_size = min(options.inner, config.intermediate_size)
    narrow.attention_bias = False
    mask = int(shared.hidden.word_mass.argmin())
    network = DFlashNetwork(narrow, len(layers), shared.embedding, mask)
    layer, norm = read_layer(folder, last), read_tensor(folder, "model.norm.weight")
    network.begin_as(narrowed(layer, layer["post_attention_layernorm.weight"]), norm.float())
    network.to(shared.device)
    causal = options.kind == "jet"
    task = DFlashTask(network, shared, layers, depth=options.depth, causal=causal)
    facts = {"form": "dflash", "depth": options.depth, "causal": causal, "mask": mask}
    return task, {"reads": list(layers), **facts}, (last,)


def make_task(
    options: TrainOptions, config: LlamaConfig, folder: Path, shared: Shared
) -> tuple[Task, dict[str, object], tuple[int, ...]]:
    """What is trained, what its config.json must say beside the usual, and the target's layers it began as."""
    from specdemo.training.block import BlockTask
    from specdemo.training.medusa import MedusaTask

    kind, layers = options.kind, shared.hidden.layers
    if kind == "medusa":
        task = MedusaTask(options.depth, shared)
        return task, {"reads": [layers[-1]], "depth": options.depth}, ()
    if kind == "exit":
        student, began = _student(options, config, folder, shared, layers=(layers[0],))
        exit_task = ChainTask(student, shared, layers=layers[:1], compile_it=options.compile)
        return exit_task, {"reads": [layers[0]]}, began
    if kind == "draft":
        student, began = _student(options, config, folder, shared)
        return ChainTask(student, shared, compile_it=options.compile), {}, began
    student, began = _student(options, config, folder, shared, layers=layers)
    if kind == "feature":
        feature = ChainTask(student, shared, layers=layers, compile_it=options.compile)
        return feature, {"reads": list(layers), "extends": _base_layers(student)}, began
    block = BlockTask(
        student, shared, depth=options.depth, causal=kind == "jet", compile_it=options.compile
    )
    facts = {"depth": options.depth, "causal": kind == "jet", "extends": _base_layers(student)}
    return block, {"reads": list(layers), **facts}, began


def _base_layers(student: Student) -> int:
    return len(student.base.layers)


def _student(
    options: TrainOptions,
    config: LlamaConfig,
    folder: Path,
    shared: Shared,
    layers: tuple[int, ...] = (),
) -> tuple[Student, tuple[int, ...]]:
    """A student that begins as layers of the target, as an earlier draft, or as nothing on top of a draft."""
    from transformers import LlamaForCausalLM

    with quiet_transformers():
        target = LlamaForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        ).model
    if options.kind == "exit":
        student = Student(draft_config(config, 1), own_input=False)
        began = spread(1, config.num_hidden_layers)
        student.begin(target, began)
    elif options.kind == "draft":
        student, began = _draft(config, target, options.layers, options.init)
    else:
        base, _ = _draft(config, target, 0, options.init)
        base = base.to(shared.device).requires_grad_(requires_grad=False)
        for layer in base.layers:  # as the runtime computes with them
            for parameter in layer.parameters():
                if parameter.ndim == 2:
                    parameter.data = rounded(parameter.data)
        own = TRAINED[options.kind].above
        student = Student(
            draft_config(config, own),
            len(layers),
            base=base,
            depth=1 if options.kind == "feature" else options.depth,
            markov=(len(shared.word_ids), RANK) if options.kind == "block" else (0, 0),
        )
        began = (config.num_hidden_layers - 1,) * own
        student.begin(target, began)
        student.begin_above()
    return student.to(shared.device), began


def _draft(
    config: LlamaConfig, target: Any, num_layers: int, folder: Path | None
) -> tuple[Student, tuple[int, ...]]:
    """A draft model: that of a folder, or layers of the target."""
    state = load_state(folder) if folder else {}
    card = read_config(folder)["specdemo"].get("card", {}) if folder else {}
    numbers = [int(name.split(".")[1]) for name in state if name.startswith("layers.")]
    num_layers = max(numbers) + 1 if numbers else num_layers
    if num_layers > config.num_hidden_layers:
        raise UserError("training.layers", most=config.num_hidden_layers, count=num_layers)
    student = Student(draft_config(config, num_layers))
    began = spread(num_layers, config.num_hidden_layers)
    student.begin(target, began)
    if state:
        own = {name: tensor for name, tensor in state.items() if name in student.state_dict()}
        try:
            student.load_state_dict(own, strict=False)
        except RuntimeError as error:
            raise UserError("training.other_shape", folder=folder.name if folder else "") from error
        began = tuple(card.get("layers", began))
    return student, began
