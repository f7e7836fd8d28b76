"""Choice of the decoder of a model: the fastest one whose logits agree with transformers' module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from specdemo.engine.attention import ModuleDecoder, causal
from specdemo.engine.cost import glance
from specdemo.engine.passes import Decoder
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.kernels import cpu_features, runtime
from specdemo.kernels.packing import BLOCK_OUTPUTS
from specdemo.models.decoders import graphs, heads, packed
from specdemo.models.decoders.blocks import head_of_bytes
from specdemo.models.decoders.form import Module, form_of
from specdemo.models.decoders.heads import AUTO_HEAD
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.devices import DEVICES
from specdemo.models.measurements import Measurement, PassCheck
from specdemo.models.memory import LARGE_HEAD, leave_to_file
from specdemo.trace.events import COMPILED

PROBED = 24  # tokens on which both passes are compared
MODULE = "transformers' own pass"
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.04, torch.float16: 0.01}
# Of a pass with 8-bit activations: models of the catalogue have 0.02, small random ones 0.05.
BYTES_TOLERANCE = 0.08


def open_decoder(
    model: Module,
    head: str = AUTO_HEAD,
    sample: Callable[[], Sequence[int]] | None = None,
    check: Measurement[PassCheck] | None = None,
) -> tuple[Decoder, str]:
    """Return the fastest decoder that agrees with a model, else the module itself, and its description.

    Run a pass of the model before, see `uses_compiled_pass`.

    head: bits of the output head as in `AppSettings`
    sample: returns token ids on which `auto` compares heads; without it the head has 16 bits
    check: the cached result of an earlier check
    """
    module = ModuleDecoder(model)
    if not is_supported(model):
        return module, MODULE
    if model.device.type == "cuda":
        return open_on_gpu(LeanDecoder(model), module, graphs.cuda_graph(model.device))
    if model.device.type == "mps":
        return open_measured(LeanDecoder(model), module)
    opened = _open_compiled(model, head, sample, check)
    if opened is not None:
        leave_to_file(model.get_input_embeddings().weight, model.lm_head.weight)
        return opened
    lean = LeanDecoder(model)
    return (lean, "lean pass") if agrees(lean, module) else (module, MODULE)


def uses_compiled_pass(model: Module) -> bool:
    """Return True if `open_decoder` will try the compiled pass on a model."""
    return is_supported(model) and packed.layout_of(model) is not None


def open_on_gpu(
    lean: LeanDecoder, module: ModuleDecoder, record: graphs.Record
) -> tuple[Decoder, str]:
    """Choose the decoder of a model on a GPU. record: records the work of a pass"""
    recorded = graphs.GraphDecoder(lean, record)
    try:
        # The second text is answered by recordings that were made for the first.
        agreed = agrees(recorded, module, texts=2)
    except RuntimeError:  # this GPU or build of bitsandbytes lacks an operation of the lean pass
        agreed = False
    if not agreed:
        return module, MODULE
    return recorded, "lean pass in CUDA graphs" if recorded.records else "lean pass"


def open_measured(lean: Decoder, module: ModuleDecoder) -> tuple[Decoder, str]:
    """Choose the lean pass if it runs, agrees and is faster, on a device where that is not known in advance."""
    try:
        faster = agrees(lean, module) and _pass_seconds(lean) < _pass_seconds(module)
    except (RuntimeError, TypeError):  # the device lacks an operation
        faster = False
    return (lean, "lean pass") if faster else (module, MODULE)


def _pass_seconds(decoder: Decoder) -> float:
    """Return the fastest of some passes of one row."""
    return glance(CachedModel(decoder), None).verify_seconds(1)


def _open_compiled(
    model: Module,
    head: str,
    sample: Callable[[], Sequence[int]] | None,
    check: Measurement[PassCheck] | None,
) -> tuple[packed.CompiledDecoder, str] | None:
    """Return the compiled pass if it runs and agrees. While it is made, the module's layers switch to its memory.

    The module reads the compared rows once, before its layers are packed.
    """
    layout, known = packed.layout_of(model), check.read() if check else None
    if layout is None or (known is not None and not known.agrees):
        return None
    if known is not None:
        layers = packed.pack_layers(model, layout.form)
        return _compile(model, layout, layers, known.bits), _description(layout, known.bits)
    text = _probe_text(model.config.get_text_config().vocab_size)
    states, layers = _module_states(model, text), packed.pack_layers(model, layout.form)
    decoder, found = _choose_head(model, layout, layers, head, sample)
    weight = model.lm_head.weight
    wanted = heads.logits_of(states, heads.exact_values(weight)) * layout.form.logits
    tolerance = BYTES_TOLERANCE if layout.coding.in_blocks else TOLERANCE[weight.dtype]
    agreed = _is_near(_probe(decoder, text), wanted, tolerance)
    if check:
        check.write(replace(found, agrees=agreed))
    return (decoder, _description(layout, found.bits)) if agreed else None


def _description(layout: packed.Layout, bits: int) -> str:
    activations = ", 8-bit activations" if layout.coding.in_blocks else ""
    head = "" if bits == 16 else f", {bits}-bit head"
    return f"{COMPILED} on {cpu_features.name()}{activations}{head}"


def _compile(
    model: Module, layout: packed.Layout, layers: Sequence[packed.PackedLayer], bits: int
) -> packed.CompiledDecoder:
    table, _ = runtime.meanings(layout.coding.code)
    form, weight = layout.form, model.lm_head.weight
    missing = -len(weight) % BLOCK_OUTPUTS  # rows that fill the last block
    rows = F.pad(weight, (0, 0, 0, missing)) if missing else weight
    head = rows if bits == 16 else head_of_bytes(rows)
    head = getattr(model.lm_head, "blocks", head)  # blocks of a file
    norm = form.norm(model.model.norm, torch.float32)
    compiled = runtime.CompiledLayers(layers, layout.shape, table, head, norm, scale=form.logits)
    leave_to_file(weight)
    return packed.CompiledDecoder(model, form, compiled)


@torch.inference_mode()
def _choose_head(
    model: Module,
    layout: packed.Layout,
    layers: Sequence[packed.PackedLayer],
    head: str,
    sample: Callable[[], Sequence[int]] | None,
) -> tuple[packed.CompiledDecoder, PassCheck]:
    """Return the compiled pass and its head; `auto` uses 8 bits for a large head if their distributions are nearly the same."""
    weight = model.lm_head.weight
    of_file = hasattr(model.lm_head, "blocks")
    if head != AUTO_HEAD or weight.nbytes < LARGE_HEAD or sample is None or of_file:
        return _compile(model, layout, layers, 16), PassCheck(True)
    decoder = _compile(model, layout, layers, 8)
    states = heads.states_of(decoder, sample()[: heads.SAMPLE_ROWS])
    if heads.suits(states, weight, decoder.head):
        return decoder, PassCheck(True, 8)
    del decoder
    return _compile(model, layout, layers, 16), PassCheck(True)


def is_supported(model: Module) -> bool:
    """Whether a model is built as the lean pass expects."""
    return model.device.type in DEVICES and model.dtype in TOLERANCE and form_of(model) is not None


def agrees(one: Decoder, other: Decoder, texts: int = 1) -> bool:
    """Return True if two decoders return the same logits up to rounding, for texts read in two chunks and a small tree."""
    for number in range(texts):
        text = _probe_text(one.config.vocab_size, number)
        first, second = (_probe(decoder, text) for decoder in (one, other))
        if not _is_near(first, second, TOLERANCE[second.dtype]):
            return False
    return True


def _is_near(found: Tensor, wanted: Tensor, tolerance: float) -> bool:
    return bool((found - wanted).norm() < tolerance * wanted.norm())


def _probe_text(vocabulary: int, number: int = 0) -> list[int]:
    """Return the token ids on which passes are compared. number: of the text"""
    return (torch.arange(number * PROBED, (number + 1) * PROBED) * 7919 % vocabulary).tolist()


def _probe(decoder: Decoder, token_ids: list[int]) -> Tensor:
    """Return the logits after two chunks of a text, after a pending token, and after two siblings that follow it."""
    conversation = CachedModel(decoder)
    last = conversation.read(token_ids[: PROBED // 2])
    more = conversation.read(token_ids[PROBED // 2 : -3])
    tree = Proposal(tuple(token_ids[-2:]), (-1, -1))
    return torch.cat([last[None], more[None], conversation.forward(token_ids[-3], tree).logits])


def _module_states(model: Module, token_ids: list[int]) -> Tensor:
    """Return the input of the head at the rows that `_probe` returns, from one pass of the module, (5, hidden)."""
    seen = causal(PROBED)
    seen[-1, -2] = False  # siblings
    states = heads.states_of(ModuleDecoder(model), token_ids, seen)
    return states[[PROBED // 2 - 1, *range(PROBED - 4, PROBED)]]
