"""A target's quantised self: its big matrices once more in 4-bit, everything else the target's own tensors."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TYPE_CHECKING, Any

from specdemo.files.quiet import import_bitsandbytes
from specdemo.models import loading
from specdemo.models.loading import LoadedModel
from specdemo.models.memory import BYTES_PER_WEIGHT, LOADING_FACTOR
from specdemo.models.networks.registry import Draft
from specdemo.trace.events import ModelInfo

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

COPIED_PRECISIONS = ("bf16", "fp32")
COPY_PRECISION = "nf4"


def no_copy_why(precision: str) -> str:
    """Return the reason why a target of this precision cannot draft for itself; "" if it can."""
    if precision in COPIED_PRECISIONS:
        return ""
    return (
        f"The target itself already runs in {precision}; "
        "load it in bf16 or fp32 to draft with a quantised copy."
    )


def quantised_copy(target: LoadedModel) -> Draft:
    """Return the NF4 copy of a loaded target, which is made at first use (the method of gpt-fast).

    Input embedding, output head, norms and biases are the target's own tensors, so only the quantised matrices need memory.
    """
    info = ModelInfo(
        target.info.name, target.info.revision, COPY_PRECISION, "", quantised_weights(target.model)
    )
    return Draft(info, lambda: make_copy(target))


def make_copy(target: LoadedModel) -> LoadedModel:
    """Quantise a target. Raises UserError if the free memory is too small, before any is used."""
    name = f"The quantised copy of {target.info.name}"
    weights = quantised_weights(target.model)
    needed = int(weights * BYTES_PER_WEIGHT[COPY_PRECISION] * LOADING_FACTOR)
    loading.check_room(name, COPY_PRECISION, needed, target.device)
    with loading.one_at_a_time, loading.reporting_out_of_memory(name, COPY_PRECISION):
        model = share(target.model)
        for path, linear in matrices(model).items():
            model.set_submodule(path, _quantised(linear))
        decoder, kernel = loading.ready(model, COPY_PRECISION, target.device)
    info = ModelInfo(
        target.info.name, target.info.revision, COPY_PRECISION, kernel, target.info.parameters
    )
    return LoadedModel(model, decoder, info, target.device, target.vocabulary_size)


def share(model: PreTrainedModel) -> PreTrainedModel:
    """Return a second tree of modules over the very same tensors."""
    shared = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def matrices(model: PreTrainedModel) -> dict[str, nn.Linear]:
    """Return the layers that are quantised by their paths: every linear one but the output head, as when loading in NF4."""
    from torch import nn

    head = model.get_output_embeddings()
    return {
        path: layer
        for path, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer is not head
    }


def _quantised(linear: nn.Linear) -> nn.Linear:
    """Return a layer in NF4; the given one is unchanged."""
    import_bitsandbytes()
    from bitsandbytes import nn as bitsandbytes_nn

    modules: Any = bitsandbytes_nn

    weight = linear.weight
    layer = modules.Linear4bit(
        linear.in_features, linear.out_features, bias=False,
        compute_dtype=weight.dtype, quant_type=COPY_PRECISION, compress_statistics=False, device="meta",
    )  # fmt: skip
    raw = modules.Params4bit(
        weight.data, quant_type=COPY_PRECISION, compress_statistics=False, module=layer
    )
    layer.weight = raw.to(weight.device)
    layer.bias = linear.bias
    quantised: nn.Linear = layer.eval()
    return quantised


def quantised_weights(model: PreTrainedModel) -> int:
    """Return the number of weights in the matrices that a copy quantises."""
    return sum(layer.weight.numel() for layer in matrices(model).values())
