"""A lean pass for decoders of the Llama and Qwen family: the weights of a loaded transformers model, fewer and larger steps.

Matrices that read the same input are one; key/value heads are read where they lie; rotary tables are
computed once; rows of several conversations go through the matrices together. What it computes is what the
module computes, up to the rounding of the number format; `agrees` looks, and `open_decoder` goes back to
the module where it does not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.engine.cache import RollbackCache
from specdemo.engine.decoder import PIECE, Answer, Decoder, ModuleDecoder, Pass
from specdemo.models import native, packing, processor
from specdemo.models.kernels import (
    FourBit,
    Look,
    Nf4Apart,
    Nf4Stack,
    Stacked,
    attend,
    look,
    pack,
    rms_norm,
    stack,
)
from specdemo.models.memory import free_ram
from specdemo.models.native import NativeDecoder

KNOWN = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # whose tables do not depend on the text
TABLE = 1024  # positions by which the rotary tables grow
PROBE = 24  # tokens on which both passes are compared
WIDE_ROWS = (4, 5, 6, 7, 8, 10, 12, 16)  # at which the two kinds of product are compared
WIDE_SHARE = 0.25  # of the free memory that the wide copy may take
TRIES = 4
COMPILED = "compiled pass"
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.04, torch.float16: 0.01}


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """One decoder layer. Norms (H,); of queries and keys (head_dim,), or None."""

    input_norm: Tensor
    post_norm: Tensor
    qkv: Stacked
    output: Stacked
    gate_up: Stacked
    down: Stacked
    query_key_norms: tuple[Tensor, Tensor] | None = None

    def matrices(self) -> tuple[Stacked, ...]:
        """Its four products."""
        return self.qkv, self.output, self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the rows of one pass lie among all rows, and what they look at."""

    begin: int
    end: int
    cache: RollbackCache
    look: Look


class LeanDecoder:
    """Implements `Decoder`. Shares its weights with the module that it was made from."""

    piece = PIECE

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        base = model.model
        self.config = config
        self.model = model
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = base.layers[0].self_attn.head_dim
        self.scaling = float(base.layers[0].self_attn.scaling)
        self.embedding = base.embed_tokens.weight
        self.norm = base.norm.weight
        self.eps = float(config.rms_norm_eps)
        self.layers = [_layer(layer) for layer in base.layers]
        self.rotary = Rotary(base, self.head_dim)

    @cached_property
    def head(self) -> Stacked:
        """The output head."""
        return pack(self.model.lm_head.weight)

    @torch.inference_mode()
    def run(self, passes: Sequence[Pass]) -> list[Answer]:
        """Answer passes of different conversations together; their `depth` must be the same."""
        device = self.embedding.device
        depth = passes[0].depth
        positions = torch.tensor([place for one in passes for place in one.positions])
        tables = self.rotary.tables(int(positions.max()) + 1)
        cos, sin = (table[positions] for table in tables)
        rows = self._place(passes)
        x = self.embedding[
            torch.tensor([t for one in passes for t in one.token_ids], device=device)
        ]
        wanted = {layer for one in passes for layer in one.reads}
        states = {0: x} if 0 in wanted else {}
        for index, layer in enumerate(self.layers[:depth]):
            x = x + layer.output(
                self._attend(index, layer, self._norm(x, layer.input_norm), cos, sin, rows)
            )
            gate, up = layer.gate_up(self._norm(x, layer.post_norm)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate).mul_(up))
            if index + 1 in wanted:
                states[index + 1] = x
        if depth is not None:
            return [Answer(torch.empty(0), (x[one.begin : one.end],)) for one in rows]
        return self._answers(passes, rows, x, states)

    def _answers(
        self, passes: Sequence[Pass], rows: Sequence[Rows], x: Tensor, states: dict[int, Tensor]
    ) -> list[Answer]:
        """Norm and head, of the rows that need them. x: (rows, H) of all passes"""
        last = len(self.layers)
        if last in states:
            states[last] = self._norm(x, self.norm)
        asked = [range(at.end - one.answers, at.end) for one, at in zip(passes, rows, strict=True)]
        if sum(map(len, asked)) < len(x):
            x = x[[row for part in asked for row in part]]
        logits = self.head(self._norm(x, self.norm)).split([len(part) for part in asked])
        return [
            Answer(one_logits, tuple(states[layer][at.begin : at.end] for layer in one.reads))
            for one, at, one_logits in zip(passes, rows, logits, strict=True)
        ]

    def _place(self, passes: Sequence[Pass]) -> list[Rows]:
        """Lay the passes one behind the other."""
        placed, begin = [], 0
        for one in passes:
            rows = len(one.token_ids)
            at = look(one.seen, rows, self.heads // self.kv_heads, self.embedding)
            placed.append(Rows(begin, begin + rows, one.cache, at))
            begin += rows
        return placed

    def _attend(
        self,
        index: int,
        layer: LeanLayer,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        rows: Sequence[Rows],
    ) -> Tensor:
        """Attention of one layer, each conversation over its own keys. x: (rows, H) normed. returns: (rows, heads * head_dim)"""
        heads, kv_heads = self.heads, self.kv_heads
        qkv = layer.qkv(x).view(len(x), heads + 2 * kv_heads, self.head_dim)
        turned = qkv[:, : heads + kv_heads]
        if layer.query_key_norms:
            norms = layer.query_key_norms
            parts = turned.split([heads, kv_heads], dim=1)
            turned = torch.cat([self._norm(p, n) for p, n in zip(parts, norms, strict=True)], dim=1)
        turned = torch.addcmul(turned * cos, turned.roll(self.head_dim // 2, dims=-1), sin)
        attended = [
            self._attend_one(index, at, turned[at.begin : at.end], qkv[at.begin : at.end])
            for at in rows
        ]
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def _attend_one(self, index: int, at: Rows, turned: Tensor, qkv: Tensor) -> Tensor:
        """One conversation. turned: (rows, heads + kv_heads, head_dim); qkv: with the values behind"""
        heads, kv_heads = self.heads, self.kv_heads
        keys, values = at.cache.layers[index].update(
            turned[:, heads:].transpose(0, 1)[None],
            qkv[:, heads + kv_heads :].transpose(0, 1)[None],
        )
        return attend(turned[:, :heads], keys, values, at.look, self.scaling)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.eps)


class Rotary:
    """Tables of a model's own rotary embedding, for as many positions as were asked for."""

    def __init__(self, model: Any, head_dim: int) -> None:
        self._model, self._half = model, head_dim // 2
        self._tables = self._computed(TABLE)
        self._full: tuple[Tensor, Tensor] | None = None  # float32; made when first asked for

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of at least `length` positions, (positions, 1, head_dim) each."""
        if length > len(self._tables[0]):
            self._tables, self._full = self._computed(-(-length // TABLE) * TABLE), None
        return self._tables

    def full(self, length: int) -> tuple[Tensor, Tensor]:
        """The same, (positions, head_dim) float32."""
        tables = self.tables(length)
        if self._full is None:
            cos, sin = (table[:, 0].float().contiguous() for table in tables)
            self._full = cos, sin
        return self._full

    def _computed(self, length: int) -> tuple[Tensor, Tensor]:
        embedding = self._model.embed_tokens.weight
        positions = torch.arange(length, device=embedding.device)[None]
        with torch.inference_mode():
            cos, sin = self._model.rotary_emb(embedding, positions)
            signed = torch.cat([-sin[..., : self._half], sin[..., self._half :]], dim=-1)
        return cos[0][:, None], signed[0][:, None]


def open_decoder(model: Any) -> tuple[Decoder, str]:
    """The lean pass for a model that it knows and agrees with; else the module itself. Warm the model up before.

    returns: the decoder, and how it runs, in words
    """
    module = ModuleDecoder(model)
    if not knows(model):
        return module, "transformers' own pass"
    lean = LeanDecoder(model)
    compiled = compile_pass(lean)
    if compiled is not None and agrees(compiled, module):
        return compiled, f"{COMPILED} on {processor.name()}"
    rows = widen(lean)
    if not agrees(lean, module):
        return module, "transformers' own pass"
    return lean, f"lean pass, bf16 from {rows} rows" if rows else "lean pass"


def compile_pass(lean: LeanDecoder) -> NativeDecoder | None:
    """The same pass as one compiled function, where processor, sizes and number format allow it."""
    head = lean.model.lm_head.weight
    stacks = [one for layer in lean.layers for one in layer.matrices()]
    if head.dtype != torch.bfloat16 or not native.runs_here():
        return None
    if not all(isinstance(one, Nf4Stack | Nf4Apart) for one in stacks):
        return None
    first = lean.layers[0].qkv.four_bit()  # type: ignore[attr-defined]
    inner = lean.layers[0].down.in_features  # type: ignore[attr-defined]
    shape = native.Shape(
        lean.heads, lean.kv_heads, lean.head_dim, lean.embedding.shape[1], inner, first.block,
        lean.eps, lean.scaling,
    )  # fmt: skip
    # Of biases the compiled pass knows those of queries, keys and values.
    beyond = [one for layer in lean.layers for one in layer.matrices()[1:]]
    if any(one.bias is not None for one in beyond) or not native.fits(shape, len(head)):  # type: ignore[attr-defined]
        return None
    norm, eps = lean.norm, lean.eps
    table, unit = packing.meanings(first.code)
    layers = [_native_layer(layer, unit) for layer in lean.layers]
    compiled = native.NativeLayers(layers, shape, table, head, norm.float())
    return native.NativeDecoder(
        lean.config, compiled, lean.embedding, lambda x: rms_norm(x, norm, eps), lean.rotary.full
    )


def _native_layer(layer: LeanLayer, unit: float) -> native.NativeLayer:
    norms = [norm.float() for norm in layer.query_key_norms or ()]
    return native.NativeLayer(
        layer.input_norm.float(),
        layer.post_norm.float(),
        *(_pack(one.four_bit(), unit) for one in layer.matrices()),  # type: ignore[attr-defined]
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
        and model.device.type == "cpu"  # seen nowhere else yet
        and model.dtype in TOLERANCE
        and config.hidden_act == "silu"
        and kind in STATIC_ROPE
        and model.lm_head.bias is None
    )


def agrees(one: Decoder, other: Decoder) -> bool:
    """Whether two decoders give the same logits to a text read in two pieces and then a small tree, up to rounding."""
    numbers = torch.arange(PROBE) * 7919 % one.config.vocab_size
    first, second = (_probe(decoder, numbers.tolist()) for decoder in (one, other))
    error = (first - second).norm() / second.norm()
    return bool(error < TOLERANCE[second.dtype])


def _probe(decoder: Decoder, token_ids: list[int]) -> Tensor:
    from specdemo.engine.target import CachedModel
    from specdemo.engine.types import Proposal

    conversation = CachedModel(decoder)
    last = conversation.read(token_ids[: PROBE // 2])
    more = conversation.read(token_ids[PROBE // 2 : -3])
    tree = Proposal(tuple(token_ids[-2:]), (-1, -1))
    return torch.cat([last[None], more[None], conversation.forward(token_ids[-3], tree).logits])


def _layer(layer: nn.Module) -> LeanLayer:
    attention: Any = layer.self_attn
    mlp: Any = layer.mlp
    norms = None
    if hasattr(attention, "q_norm"):
        norms = (attention.q_norm.weight, attention.k_norm.weight)
    return LeanLayer(
        layer.input_layernorm.weight,  # type: ignore[union-attr, arg-type]
        layer.post_attention_layernorm.weight,  # type: ignore[union-attr, arg-type]
        stack([attention.q_proj, attention.k_proj, attention.v_proj]),
        stack([attention.o_proj]),
        stack([mlp.gate_proj, mlp.up_proj]),
        stack([mlp.down_proj]),
        norms,
    )
