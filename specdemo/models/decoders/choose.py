"""Which decoder runs a model: the fastest that gives the same logits, else the module as it comes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specdemo.engine.cache import RollbackCache
from specdemo.engine.passes import Decoder, ForwardInput
from specdemo.engine.module_decoder import ModuleDecoder
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.kernels import cpu_features, runtime
from specdemo.models.decoders import graphs, heads, packed
from specdemo.models.decoders.compiled import CompiledDecoder
from specdemo.models.decoders.heads import AUTO, HeadChoice
from specdemo.models.decoders.lean import LeanDecoder, rotary_of
from specdemo.models.decoders.operators import Nf4Stack, rms_norm
from specdemo.models.decoders.rotary import RotaryTables
from specdemo.models.decoders.small_heads import with_head
from specdemo.models.decoders.verdicts import Verdict, Verdicts
from specdemo.models.devices import DEVICES
from specdemo.models.memory import LARGE_HEAD, free_ram, leave_to_file

KNOWN = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # whose tables do not depend on the text
PROBE = 24  # tokens on which both passes are compared
WIDE_ROWS = (4, 5, 6, 7, 8, 10, 12, 16)  # at which the two kinds of product are compared
WIDE_SHARE = 0.25  # of the free memory that the wide copy may take
TRIES = 4
COMPILED = "compiled pass"
FOUR_BITS = 0.15  # what a head of 4 bits, which nobody gets unasked, moves logits by at most
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.04, torch.float16: 0.01}


def open_decoder(
    model: Any, head: HeadChoice | None = None, verdicts: Verdicts | None = None
) -> tuple[Decoder, str]:
    """The fastest pass that agrees with a model; else the module itself. Warm the model up before, see `warms_up`.

    returns: the decoder, and how it runs, in words
    """
    module = ModuleDecoder(model)
    if not knows(model):
        return module, "transformers' own pass"
    if model.device.type == "cuda":
        record, bits = graphs.cuda_graph(model.device), (head or HeadChoice()).bits
        return open_on_gpu(LeanDecoder(model), module, record, bits)
    if model.device.type == "mps":
        return open_measured(LeanDecoder(model), module)
    opened = open_compiled(model, head or HeadChoice(), verdicts)
    if opened is not None:
        leave_to_file(model.get_input_embeddings().weight, model.lm_head.weight)
        return opened
    lean = LeanDecoder(model)
    rows = widen(lean)
    if not agrees(lean, module):
        return module, "transformers' own pass"
    return lean, f"lean pass, bf16 from {rows} rows" if rows else "lean pass"


def packs(model: Any) -> bool:
    """Whether `open_decoder` will try the compiled pass on a model."""
    return knows(model) and packed.compiles(model)


def open_on_gpu(
    lean: LeanDecoder, module: ModuleDecoder, record: graphs.Record, bits: str = AUTO
) -> tuple[Decoder, str]:
    """The same for a model on a GPU, whose work `record` records.

    bits: of the head; AUTO takes 16, since nobody has measured on a GPU what fewer are worth
    """
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
    way = "lean pass in CUDA graphs" if recorded.records else "lean pass"
    if bits in (AUTO, "16"):
        return recorded, way
    smaller = with_head(recorded, lean.model, int(bits))
    return smaller, f"{way}, {bits}-bit head"


def open_measured(lean: Decoder, module: ModuleDecoder) -> tuple[Decoder, str]:
    """The lean pass where it runs, agrees and is faster, on a device of which that is not known."""
    try:
        faster = agrees(lean, module) and _seconds(lean) < _seconds(module)
    except (RuntimeError, TypeError):  # what the device cannot do
        faster = False
    return (lean, "lean pass") if faster else (module, "transformers' own pass")


def _seconds(decoder: Decoder) -> float:
    """The fastest of some passes of one row behind a short text."""
    conversation = CachedModel(decoder)
    token_ids = _text(decoder.config.vocab_size)
    conversation.read(token_ids)
    spent = []
    for token_id in token_ids[:TRIES]:
        begun = time.perf_counter()
        conversation.read([token_id])
        spent.append(time.perf_counter() - begun)
    return min(spent)


def open_compiled(
    model: Any, choice: HeadChoice, verdicts: Verdicts | None
) -> tuple[CompiledDecoder, str] | None:
    """The compiled pass where it runs and agrees. While it is made, the module's layers come to read its memory.

    The module goes through the rows that are compared once, and each of its layers is packed as soon as it has run.
    """
    if not packed.compiles(model):
        return None
    known = verdicts.read(choice.bits) if verdicts else None
    if known is not None and not known.taken:
        return None
    if known is not None:
        decoder = _compiled(model, packed.pack_layers(model), known.bits)
        return decoder, _way(known.bits)
    text = _text(model.config.get_text_config().vocab_size)
    beside = fused_seconds(model)  # before the layers are laid out for the compiled pass
    layers, states = packed.pack_behind(model, lambda: _compared_states(model, text))
    decoder, verdict = _with_head(model, layers, choice)
    weight = model.lm_head.weight
    wanted = heads.logits_of(states, heads.exact(weight))
    allowed = TOLERANCE[weight.dtype] + (FOUR_BITS if verdict.bits == 4 else 0)
    agreed = _near(_probe(decoder, text), wanted, allowed)
    verdict = replace(verdict, agrees=agreed)
    if agreed and beside is not None:
        verdict = replace(verdict, seconds=(_seconds(decoder), beside))
    if verdicts:
        verdicts.write(choice.bits, verdict)
    return (decoder, _way(verdict.bits)) if verdict.taken else None


def fused_seconds(model: Any) -> float | None:
    """What a pass of one row takes by bitsandbytes' fused 4-bit kernel; None where that does not run or does not agree.

    Processors with AVX512-BF16 have it beside the compiled pass; on others this asks for nothing.
    """
    if not packed.is_fused(model):
        return None
    lean = LeanDecoder(model)
    return _seconds(lean) if agrees(lean, ModuleDecoder(model)) else None


def compile_pass(model: Any, bits: int = 16) -> CompiledDecoder | None:
    """The compiled pass with a head of so many bits, whether it agrees or not; None where it does not run."""
    if not packed.compiles(model):
        return None
    return _compiled(model, packed.pack_layers(model), bits)


def _way(bits: int) -> str:
    head = "" if bits == 16 else f", {bits}-bit head"
    return f"{COMPILED} on {cpu_features.name()}{head}"


def _compiled(model: Any, layers: Sequence[runtime.LayerWeights], bits: int) -> CompiledDecoder:
    base, shape, coding = model.model, packed.shape_of(model), packed.coding_of(model)
    table, _ = runtime.meanings(coding.code)
    head = heads.head_matrix(model.lm_head.weight, bits, coding)
    compiled = runtime.CompiledLayers(layers, shape, table, head, base.norm.weight.float())
    leave_to_file(model.lm_head.weight)
    return CompiledDecoder(
        model.config.get_text_config(), compiled, base.embed_tokens.weight,
        lambda x: rms_norm(x, base.norm.weight, shape.epsilon),
        RotaryTables(rotary_of(base, shape.head_dim)).full,
    )  # fmt: skip


@torch.inference_mode()
def _with_head(
    model: Any, layers: Sequence[runtime.LayerWeights], choice: HeadChoice
) -> tuple[CompiledDecoder, Verdict]:
    """The pass with the head that is wanted. `auto` takes 8 bits for a large head that says what the bfloat16 head says."""
    weight = model.lm_head.weight
    if choice.bits != AUTO:
        return _compiled(model, layers, int(choice.bits)), Verdict(True, int(choice.bits))
    if weight.nbytes < LARGE_HEAD or choice.sample is None:
        return _compiled(model, layers, 16), Verdict(True)
    decoder = _compiled(model, layers, 8)
    states = heads.states_of(decoder, choice.sample()[: heads.SAMPLE_ROWS])
    measured = heads.measured(states, weight, decoder.head, packed.coding_of(model))
    if measured.small:
        return decoder, Verdict(True, 8, measured)
    del decoder
    return _compiled(model, layers, 16), Verdict(True, 16, measured)


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
        and model.device.type in DEVICES
        and model.dtype in TOLERANCE
        and config.hidden_act == "silu"
        and kind in STATIC_ROPE
        and model.lm_head.bias is None
        and "sliding_attention" not in (getattr(config, "layer_types", None) or ())
    )


def agrees(one: Decoder, other: Decoder, texts: int = 1) -> bool:
    """Whether two decoders give the same logits to texts read in two pieces and then a small tree, up to rounding."""
    for number in range(texts):
        text = _text(one.config.vocab_size, number)
        first, second = (_probe(decoder, text) for decoder in (one, other))
        if not _near(first, second, TOLERANCE[second.dtype]):
            return False
    return True


def _near(found: Tensor, wanted: Tensor, tolerance: float) -> bool:
    return bool((found - wanted).norm() < tolerance * wanted.norm())


def _text(vocabulary: int, number: int = 0) -> list[int]:
    """Token ids on which passes are compared."""
    return (torch.arange(number * PROBE, (number + 1) * PROBE) * 7919 % vocabulary).tolist()


def _probe(decoder: Decoder, token_ids: list[int]) -> Tensor:
    """Logits behind two pieces of a text, behind a pending token, and behind two siblings that follow it."""
    conversation = CachedModel(decoder)
    last = conversation.read(token_ids[: PROBE // 2])
    more = conversation.read(token_ids[PROBE // 2 : -3])
    tree = Proposal(tuple(token_ids[-2:]), (-1, -1))
    return torch.cat([last[None], more[None], conversation.forward(token_ids[-3], tree).logits])


@torch.inference_mode()
def _compared_states(model: Any, token_ids: list[int]) -> Tensor:
    """What the head reads of the rows that `_probe` gives, from one pass of the module: (5, hidden)"""
    module = ModuleDecoder(model)
    seen = torch.ones(PROBE, PROBE, dtype=torch.bool).tril_()
    seen[-1, -2] = False  # siblings
    layers = module.config.num_hidden_layers
    positions = [*range(PROBE - 1), PROBE - 2]
    rows = ForwardInput(token_ids, positions, seen, RollbackCache(layers), 0, depth=layers)
    (states,) = module.run([rows])[0].states
    normed: Tensor = model.model.norm(states)[
        [PROBE // 2 - 1, PROBE - 4, PROBE - 3, PROBE - 2, PROBE - 1]
    ]
    return normed
