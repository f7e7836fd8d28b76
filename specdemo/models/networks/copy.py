"""A target's quantised self: its big matrices once more in 4-bit, everything else the target's own tensors."""

from __future__ import annotations

import copy
import threading
from itertools import chain
from typing import TYPE_CHECKING, Any

from specdemo.engine.target import CachedModel
from specdemo.files.quiet import import_bitsandbytes
from specdemo.models import loading
from specdemo.models.devices import BYTES_PER_WEIGHT, LOADING_FACTOR
from specdemo.models.loading import LoadedModel
from specdemo.trace.events import ModelInfo

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

COPIED_PRECISIONS = ("bf16", "fp32")
COPY_PRECISION = "nf4"


def no_copy_why(precision: str) -> str:
    """Why a target of this precision cannot draft for itself; empty when it can."""
    if precision in COPIED_PRECISIONS:
        return ""
    return (
        f"The target itself already runs in {precision}; "
        "load it in bf16 or fp32 to draft with a quantised copy."
    )


class QuantisedCopy:
    """The NF4 copy of a loaded target, made once, at first use (the method of gpt-fast).

    Input embedding, output head, norms and biases are the target's own tensors, so only the quantised matrices need memory.
    """

    def __init__(self, target: LoadedModel) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._made: LoadedModel | None = None

    def open(self) -> CachedModel:
        """The copy with an empty cache. Raises UserError when there is no memory for it."""
        return CachedModel(self._loaded().decoder)

    def memory_bytes(self) -> int:
        """Memory that the copy needs, made or not."""
        return needed_bytes(self._target)

    def info(self) -> ModelInfo:
        """Which weights draft, and how they are computed; makes the copy when it is not there yet."""
        return self._loaded().info

    def _loaded(self) -> LoadedModel:
        with self._lock:
            if self._made is None:
                self._made = make_copy(self._target)
            return self._made


def make_copy(target: LoadedModel) -> LoadedModel:
    """Quantise a target. Raises UserError if the free memory is too small, before any is used."""
    name = f"The quantised copy of {target.info.name}"
    loading.check_room(name, COPY_PRECISION, needed_bytes(target), target.device)
    with loading.one_at_a_time, loading.reporting_out_of_memory(name, COPY_PRECISION):
        model = share(target.model)
        for path in matrices(model):
            parent, _, attribute = path.rpartition(".")
            linear: Any = model.get_submodule(path)
            setattr(model.get_submodule(parent), attribute, _quantised(linear))
        decoder, kernel = loading.ready(model, COPY_PRECISION, target.device)
    info = ModelInfo(
        target.info.name, target.info.revision, COPY_PRECISION, kernel, target.info.parameters
    )
    return LoadedModel(model, decoder, info, target.device, target.vocabulary_size)


def share(model: PreTrainedModel) -> PreTrainedModel:
    """A second tree of modules over the very same tensors."""
    shared = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def matrices(model: PreTrainedModel) -> list[str]:
    """Paths of the layers that are quantised: every linear one but the output head, as when loading in NF4."""
    from torch import nn

    head = model.get_output_embeddings()
    return [
        path
        for path, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer is not head
    ]


def _quantised(linear: nn.Linear) -> nn.Linear:
    """The layer in NF4; the one given is left as it is."""
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


def needed_bytes(target: LoadedModel) -> int:
    """Memory of the copy's quantised matrices."""
    model = target.model
    linear: list[Any] = [model.get_submodule(path) for path in matrices(model)]
    weights = sum(layer.weight.numel() for layer in linear)
    return int(weights * BYTES_PER_WEIGHT[COPY_PRECISION] * LOADING_FACTOR)
