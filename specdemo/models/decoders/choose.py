"""Which decoder runs a model: the fastest that gives the same logits, else the module as it comes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specdemo.engine.forward import Decoder
from specdemo.engine.module_decoder import ModuleDecoder
from specdemo.kernels import cpu_features, packing, runtime
from specdemo.models.decoders import graphs
from specdemo.models.decoders.compiled import CompiledDecoder
from specdemo.models.decoders.layer import LlamaLayer
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import FourBit, Nf4Joined, Nf4Stack, rms_norm
from specdemo.models.memory import free_ram

KNOWN = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # whose tables do not depend on the text
PROBE = 24  # tokens on which both passes are compared
WIDE_ROWS = (4, 5, 6, 7, 8, 10, 12, 16)  # at which the two kinds of product are compared
WIDE_SHARE = 0.25  # of the free memory that the wide copy may take
TRIES = 4
COMPILED = "compiled pass"
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.04, torch.float16: 0.01}


def open_decoder(model: Any) -> tuple[Decoder, str]:
    """The lean pass for a model that it knows and agrees with; else the module itself. Warm the model up before.

    returns: the decoder, and how it runs, in words
    """
    module = ModuleDecoder(model)
    if not knows(model):
        return module, "transformers' own pass"
    lean = LeanDecoder(model)
    if model.device.type == "cuda":
        return open_on_gpu(lean, module, graphs.cuda_graph(model.device))
    compiled = compile_pass(lean)
    if compiled is not None and agrees(compiled, module):
        return compiled, f"{COMPILED} on {cpu_features.name()}"
    rows = widen(lean)
    if not agrees(lean, module):
        return module, "transformers' own pass"
    return lean, f"lean pass, bf16 from {rows} rows" if rows else "lean pass"


def open_on_gpu(
    lean: LeanDecoder, module: ModuleDecoder, record: graphs.Record
) -> tuple[Decoder, str]:
    """The same for a model on a GPU, whose work `record` records."""
    recorded = graphs.GraphDecoder(lean, record)
    try:
        # The second text meets passes that were recorded for the first.
        agreed = agrees(recorded, module, texts=2)
    except (
        RuntimeError
    ):  # of a GPU, or a build of bitsandbytes, that cannot do what the lean pass asks
        agreed = False
    if not agreed:
        return module, "transformers' own pass"
    return recorded, "lean pass in CUDA graphs" if recorded.records else "lean pass"


def compile_pass(lean: LeanDecoder) -> CompiledDecoder | None:
    """The same pass as one compiled function, where the processor, sizes and number format allow it."""
    head = lean.model.lm_head.weight
    stacks = [one for layer in lean.layers for one in layer.matrices()]
    if head.dtype != torch.bfloat16 or not runtime.runs_here():
        return None
    if not all(isinstance(one, Nf4Stack | Nf4Joined) for one in stacks):
        return None
    first = lean.layers[0].qkv.four_bit()  # type: ignore[attr-defined]
    inner = lean.layers[0].down.in_features  # type: ignore[attr-defined]
    shape = runtime.Shape(
        lean.sizes.heads, lean.sizes.kv_heads, lean.sizes.head_dim, lean.embedding.shape[1], inner,
        first.block, lean.sizes.eps, lean.sizes.scaling,
    )  # fmt: skip
    # Of biases the compiled pass knows those of queries, keys and values.
    beyond = [one for layer in lean.layers for one in layer.matrices()[1:]]
    if any(one.bias is not None for one in beyond) or not runtime.fits(shape, len(head)):  # type: ignore[attr-defined]
        return None
    norm, eps = lean.norm, lean.sizes.eps
    table, unit = packing.meanings(first.code)
    layers = [_layer_weights(layer, unit) for layer in lean.layers]
    compiled = runtime.CompiledLayers(layers, shape, table, head, norm.float())
    return CompiledDecoder(
        lean.config, compiled, lean.embedding, lambda x: rms_norm(x, norm, eps), lean.rotary.full
    )


def _layer_weights(layer: LlamaLayer, unit: float) -> runtime.LayerWeights:
    norms = [norm.float() for norm in layer.query_key_norms or ()]
    return runtime.LayerWeights(
        layer.input_norm.float(),
        layer.post_norm.float(),
        *(_pack(one.four_bit(), unit) for one in layer.matrices()),  # type: ignore[attr-defined, arg-type]
        *norms,
    )


def _pack(one: FourBit, unit: float) -> packing.Packed:
    bias = None if one.bias is None else one.bias.float()
    return packing.Packed(one.codes, packing.in_blocks(one.scales.float() * unit), None, bias)


def widen(lean: LeanDecoder) -> int:
    """Give 4-bit matrices a bfloat16 copy for passes of many rows where that is faster and memory allows it.

    A 4-bit product costs little for one row and grows with rows; where the processor multiplies bfloat16
    matrices by itself (AMX), that costs the same for sixteen rows as for one.

    returns: rows from which the copy is used; 0 for never
    """
    stacks = [one for layer in lean.layers for one in layer.matrices() if isinstance(one, Nf4Stack)]
    if len(stacks) < len(lean.layers) * len(lean.layers[0].matrices()):
        return 0
    size = sum(2 * one.in_features * one.out_features for one in stacks)
    if size > WIDE_SHARE * (free_ram() or 0):
        return 0
    for one in stacks:
        one.widen()
    rows = _faster_from(stacks)
    for one in stacks:
        one.wide_from = rows
        if not rows:
            one.wide = None
    return rows


@torch.inference_mode()
def _faster_from(stacks: Sequence[Nf4Stack]) -> int:
    """Fewest rows for which the wide copies are faster, measured over all layers; 0 when that is never so."""
    for rows in WIDE_ROWS:
        inputs = [torch.ones(rows, one.in_features, dtype=torch.bfloat16) for one in stacks]
        fastest = {}
        for wide in (True, False):
            for one in stacks:
                one.wide_from = 0 if wide else rows + 1
            spent = []
            for _ in range(TRIES):
                begun = time.perf_counter()
                for one, x in zip(stacks, inputs, strict=True):
                    one(x)
                spent.append(time.perf_counter() - begun)
            fastest[wide] = min(spent[1:])
        if fastest[True] < fastest[False]:
            return rows
    return 0


def knows(model: Any) -> bool:
    """Whether a model is built as the lean pass expects."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    return (
        type(model).__name__ in KNOWN
        and model.device.type in ("cpu", "cuda")
        and model.dtype in TOLERANCE
        and config.hidden_act == "silu"
        and kind in STATIC_ROPE
        and model.lm_head.bias is None
    )


def agrees(one: Decoder, other: Decoder, texts: int = 1) -> bool:
    """Whether two decoders give the same logits to texts read in two pieces and then a small tree, up to rounding."""
    numbers = torch.arange(texts * PROBE) * 7919 % one.config.vocab_size
    for text in numbers.view(texts, PROBE).tolist():
        first, second = (_probe(decoder, text) for decoder in (one, other))
        if not (first - second).norm() < TOLERANCE[second.dtype] * second.norm():
            return False
    return True


def _probe(decoder: Decoder, token_ids: list[int]) -> Tensor:
    from specdemo.engine.target import CachedModel
    from specdemo.engine.types import Proposal

    conversation = CachedModel(decoder)
    last = conversation.read(token_ids[: PROBE // 2])
    more = conversation.read(token_ids[PROBE // 2 : -3])
    tree = Proposal(tuple(token_ids[-2:]), (-1, -1))
    return torch.cat([last[None], more[None], conversation.forward(token_ids[-3], tree).logits])
