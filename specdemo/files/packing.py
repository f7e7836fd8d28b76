"""Pack a model into bitsandbytes' own 4-bit form, one tensor at a time, never unquantised as a whole.

The copy is a folder in Hugging Face layout that `from_pretrained` reads as it is. Its numbers are those that
`from_pretrained` computes when it quantises the unquantised model itself.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from specdemo.config.errors import Phrase
from specdemo.config.strings import Json
from specdemo.files.folder import INDEX, find_family, read_config, safetensors_table, weight_files
from specdemo.files.header import Header, Numbers, read_header
from specdemo.files.progress import Pace, ProgressCallback
from specdemo.files.quiet import import_bitsandbytes, quiet_transformers
from specdemo.files.store import MARKER, check_space

if TYPE_CHECKING:
    import torch
    from bitsandbytes.functional import QuantState
    from gguf import GGMLQuantizationType, TensorNameMap
    from torch import Tensor
    from transformers import BitsAndBytesConfig

PACKING_RECIPE = "nf4-1"  # increased when packing changes; older copies are then made again
SHARD_BYTES = 200_000_000  # packed weights that are in memory at a time
DESCRIPTION = ("*.json", "*.jinja", "*.txt", "tokenizer.model", "LICENSE*")
READ_STEP = 1 << 21  # weights that are unpacked in one step
ROWS = 64  # the rows of one read are a multiple of it, so that blocks of 64 weights stay whole
COUNTS = ("block_count", "attention.head_count", "attention.head_count_kv")  # in a GGUF file
ROTARY_TABLES = r"rotary_emb\.inv_freq"  # stored by older versions of transformers
ALL_ROWS = slice(None)
NF4_BLOCK = 64  # weights that share a scale
NF4_STEP = 1 << 17  # weights that fit in the processor's cache with their intermediate values


class NotReadable(Exception):
    """The weights need more than reading: another architecture, or other tensors than the model's."""


@dataclass(frozen=True, slots=True)
class GgufWeight:
    """A tensor of a GGUF file.

    shape: as in torch; offset: of its bytes in the file
    heads: number of heads by which llama.cpp has permuted the rows; 0 for rows in transformers' order
    above: number that llama.cpp has added to each of its numbers
    """

    file: Path
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    heads: int = 0
    above: float = 0.0

    @property
    def rows(self) -> tuple[int, int]:
        """Number of rows, and bytes of a row; a vector has a row for each number."""
        from gguf import GGML_QUANT_SIZES

        count, size = GGML_QUANT_SIZES[self.kind]
        return self.shape[0], math.prod(self.shape[1:]) // count * size

    def read(self, part: slice) -> Tensor:
        """Return some of its rows, float32."""
        import torch
        from gguf.quants import dequantize

        values = dequantize(self.raw(part), self.kind)
        if self.above:
            values -= np.float32(self.above)
        return torch.from_numpy(values.reshape(-1, *self.shape[1:]))

    def raw(self, part: slice) -> Numbers:
        """Return some of its rows as they are stored, (rows, bytes of a row) uint8."""
        # A new map for each read: otherwise the pages that were read would count as this process's memory.
        stored = np.memmap(self.file, np.uint8, "r", self.offset, self.rows)
        if self.heads:
            found: Numbers = stored[_order(self.shape[0], self.heads)[part]]
            return found
        return np.array(stored[part])


@dataclass(frozen=True, slots=True)
class SafetensorsWeight:
    """A tensor of a safetensors file."""

    file: Path
    name: str
    shape: tuple[int, ...]

    def read(self, part: slice = ALL_ROWS) -> Tensor:
        """Return some of its rows, in the type that they are stored in."""
        from safetensors import safe_open

        with safe_open(self.file, framework="pt") as file:
            found: Tensor = file.get_slice(self.name)[part]
        return found


Weight = GgufWeight | SafetensorsWeight
Weights = Mapping[str, Weight]


def safetensors_weights(folder: Path, name: str) -> dict[str, SafetensorsWeight]:
    """Return the weights of a model folder, by transformers' names. Raises UserError for damaged files."""
    return {
        key: SafetensorsWeight(path, key, tuple(row["shape"]))
        for path in weight_files(folder, name)
        for key, row in safetensors_table(path).items()
    }


def gguf_weights(path: Path, names: Iterable[str]) -> Weights:
    """Return those weights of a GGUF file, by transformers' names. Raises NotReadable, and any error for a damaged file."""
    from gguf import GGMLQuantizationType

    header = read_header(path)
    family = find_family(gguf=header.family)
    if not family.packs:
        raise NotReadable(header.family)
    layers, heads, kv_heads = (_count(header, key) for key in COUNTS)
    permuted = {"attn_q": heads, "attn_k": kv_heads} if family.permuted else {}
    above = family.layer.offset if family.layer else 0.0
    known = gguf_names(header.family, layers)
    found = {}
    for name in names:
        stem, _, suffix = name.rpartition(".")
        gguf_name = known.get_name(stem) or ""
        tensor = header.tensors.get(f"{gguf_name}.{suffix}")
        if tensor is None:
            continue
        found[name] = GgufWeight(
            path, tensor.shape, GGMLQuantizationType(tensor.kind), tensor.offset,
            permuted.get(gguf_name.rpartition(".")[2], 0), above if len(tensor.shape) == 1 else 0.0,
        )  # fmt: skip
        if tensor.offset + math.prod(found[name].rows) > path.stat().st_size:
            raise ValueError(f"{name} is cut short")
    return found


def gguf_names(family: str, layers: int) -> TensorNameMap:
    """Return llama.cpp's names of tensors by transformers' names. family: by llama.cpp's name"""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    architecture = next(key for key, value in MODEL_ARCH_NAMES.items() if value == family)
    return get_tensor_name_map(architecture, layers)


def _count(header: Header, key: str) -> int:
    found = header.values.get(f"{header.family}.{key}")
    if not isinstance(found, int):
        raise NotReadable(key)
    return found


def parts_of(shape: tuple[int, ...]) -> list[slice]:
    """Return the ranges of rows that are read in one step, from the first to the last."""
    width = int(np.prod(shape[1:], dtype=np.int64))
    step = max(ROWS, READ_STEP // max(width, 1) // ROWS * ROWS)
    return [slice(begin, min(begin + step, shape[0])) for begin in range(0, shape[0], step)]


def _order(rows: int, heads: int) -> Numbers:
    """Return llama.cpp's position of each row: it stores the two halves of a head's rotary pairs alternately.

    rows 4, one head: 0 2 1 3 (rows 0 and 1 are the first half of their pairs)
    """
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(rows)


def quantise_nf4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes, two in a byte, and the scale of each block of 64 weights. Runs in the calling thread alone.

    weight: any shape; returns: ((n + 1) // 2, 1) uint8, and (blocks,) float32, as `quantize_4bit` does
    """
    import torch
    from bitsandbytes.functional import quantize_4bit

    flat = weight.reshape(-1)
    whole = len(flat) // NF4_BLOCK * NF4_BLOCK
    codes = np.empty(whole // 2, dtype=np.uint8)
    scales = np.empty(whole // NF4_BLOCK, dtype=np.float32)
    for first in range(0, whole, NF4_STEP):
        part = slice(first, min(first + NF4_STEP, whole))
        blocks = flat[part].float().numpy().reshape(-1, NF4_BLOCK)
        found = codes[part.start // 2 : part.stop // 2]
        _quantise_blocks(blocks, found, scales[part.start // NF4_BLOCK : part.stop // NF4_BLOCK])
    parts = [(torch.from_numpy(codes)[:, None], torch.from_numpy(scales))]
    if whole < len(flat):
        code, state = quantize_4bit(flat[whole:], blocksize=NF4_BLOCK, quant_type="nf4")
        parts.append((code, state.absmax))
    return torch.cat([code for code, _ in parts]), torch.cat([scale for _, scale in parts])


class Quantiser(Protocol):
    """Makes the stored form of matrices, in parts, see `pack`."""

    def config(self) -> Json:
        """Return the entry `quantization_config` of config.json."""

    def part(self, weight: Weight, part: slice) -> Any:
        """Return some rows of a matrix in that form. Raises NotReadable."""

    def named(self, name: str, weight: Weight, parts: Sequence[Any]) -> dict[str, Tensor]:
        """Return all tensors of a matrix, by their names in the folder."""

    def beside(self, name: str, weight: Weight) -> dict[str, Tensor]:
        """Return the tensors that are stored beside an unquantised one."""
        return {}


@dataclass(frozen=True)
class Nf4(Quantiser):
    """bitsandbytes' own 4-bit form. dtype: of matrices before"""

    dtype: torch.dtype

    def config(self) -> Json:
        found: Json = quantisation("nf4", self.dtype).to_dict()
        return found

    def part(self, weight: Weight, part: slice) -> tuple[Tensor, Tensor]:
        """Return codes and scales, see `quantise_nf4`."""
        return quantise_nf4(weight.read(part).to(self.dtype))

    def named(
        self, name: str, weight: Weight, parts: Sequence[tuple[Tensor, Tensor]]
    ) -> dict[str, Tensor]:
        """Return the tensors under the names that bitsandbytes reads."""
        import torch

        codes, scales = zip(*parts, strict=True)
        state = nf4_state(torch.cat(scales), weight.shape, self.dtype)
        stored = {f"{name}.{key}": value for key, value in state.as_dict(packed=True).items()}
        return {name: torch.cat(codes)} | stored


def nf4_state(scales: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> QuantState:
    """Return bitsandbytes' description of quantised weights. scales: (blocks,) float32; dtype: of the weights before"""
    import torch
    from bitsandbytes.functional import QuantState, get_4bit_type

    return QuantState(
        scales, shape=torch.Size(shape), code=get_4bit_type("nf4", "cpu"),
        blocksize=NF4_BLOCK, quant_type="nf4", dtype=dtype,
    )  # fmt: skip


@cache
def _code_bounds() -> Numbers:
    """Return the bounds between codes: the means of neighbouring code values. (15,) float32"""
    from bitsandbytes.functional import get_4bit_type

    code = get_4bit_type("nf4", "cpu")
    found: Numbers = ((code[:-1] + code[1:]) / 2).numpy()
    return found


def _quantise_blocks(blocks: Numbers, codes: Numbers, scales: Numbers) -> None:
    """Fill in codes and scales. A code is the number of bounds below its weight; counting is faster than searching."""
    np.abs(blocks).max(axis=1, out=scales)
    scaled = blocks * (np.float32(1) / np.maximum(scales, np.float32(1e-38)))[:, None]
    counted = np.zeros(scaled.shape, dtype=np.uint8)
    above = np.empty(scaled.shape, dtype=np.bool_)
    for bound in _code_bounds():
        np.greater(scaled, bound, out=above)
        counted += above.view(np.uint8)
    pairs = counted.reshape(-1).view("<u2")  # the first of two in the lower byte
    np.bitwise_or(pairs << 4, pairs >> 8, out=codes, casting="unsafe")


@dataclass(frozen=True, slots=True)
class Plan:
    """The tensors of a model, and the form in which each is stored.

    shapes: of all tensors by name; tied: tensors that share another one's data when they are not stored
    quantised: matrices that are stored in 4-bit; ignored: patterns of stored tensors that the model does not use
    """

    shapes: Mapping[str, tuple[int, ...]]
    tied: frozenset[str]
    quantised: frozenset[str]
    ignored: tuple[str, ...] = ()

    def ignores(self, name: str) -> bool:
        """Check whether the model does not use a tensor that older saves contain."""
        return any(re.search(pattern, name) for pattern in (*self.ignored, ROTARY_TABLES))

    def packed_bytes(self, name: str) -> int:
        """Return the size of a tensor in the copy."""
        count = math.prod(self.shapes[name])
        return count * 9 // 16 if name in self.quantised else 2 * count

    @property
    def head(self) -> str:
        """Name of the matrix of the output head."""
        own = "lm_head.weight"
        return own if own in self.shapes.keys() - self.tied else "model.embed_tokens.weight"


def quantisation(precision: str, dtype: torch.dtype) -> BitsAndBytesConfig:
    """Return transformers' quantisation of large matrices. dtype: of its computations"""
    from transformers import BitsAndBytesConfig

    if precision == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
    )


def plan(folder: Path, dtype: torch.dtype) -> Plan:
    """Plan the tensors of the model in a folder's config.json. Raises NotReadable if its quantisation is not so simple."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.quantizers.auto import AutoHfQuantizer

    import_bitsandbytes()
    from bitsandbytes.nn.modules import Linear4bit

    with quiet_transformers():
        config = AutoConfig.from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True
        )
        if getattr(config, "quantization_config", None):
            raise NotReadable("quantised already")
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        if model._keep_in_fp32_modules or model._keep_in_fp32_modules_strict:
            raise NotReadable("parts that stay in float32")
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        tied = frozenset(model.all_tied_weights_keys)
        quantiser = AutoHfQuantizer.from_config(quantisation("nf4", dtype))
        quantiser.preprocess_model(model=model, dtype=dtype, device_map={"": "cpu"})
    layers = {
        f"{name}.weight": layer
        for name, layer in model.named_modules()
        if isinstance(layer, Linear4bit)
    }
    if any(layer.source_cls is not torch.nn.Linear for layer in layers.values()):
        raise NotReadable("matrices that are stored the other way around")
    ignored = tuple(model._keys_to_ignore_on_load_unexpected or ())
    return Plan(shapes, tied, frozenset(layers), ignored)


def copy_description(source: Path, folder: Path) -> None:
    """Copy the configuration and the tokenizer of a model folder."""
    for pattern in DESCRIPTION:
        for path in source.glob(pattern):
            if path.name not in (INDEX, MARKER):
                shutil.copyfile(path, folder / path.name)


def total_bytes(plan: Plan, weights: Weights) -> int:
    """Return the size of the copy. Raises NotReadable if model and file do not have the same tensors."""
    missing = plan.shapes.keys() - weights.keys() - plan.tied
    wrong = [
        name for name in plan.shapes.keys() & weights if plan.shapes[name] != weights[name].shape
    ]
    unread = [name for name in weights if name not in plan.shapes and not plan.ignores(name)]
    if missing or wrong or unread:
        raise NotReadable(", ".join([*sorted(missing), *wrong, *unread]))
    return sum(plan.packed_bytes(name) for name in plan.shapes if name in weights)


def pack(
    folder: Path,
    plan: Plan,
    weights: Weights,
    dtype: torch.dtype,
    progress: ProgressCallback,
    quantiser: Quantiser | None = None,
) -> None:
    """Write the packed weights and their config.json into a folder.

    dtype: of unquantised tensors; quantiser: form of the matrices of layers; NF4 by default
    """
    import torch
    from safetensors.torch import save_file

    quantiser = quantiser or Nf4(dtype)
    total = total_bytes(plan, weights)
    pace = Pace(progress, "quantise", total, "4-bit")
    pace.reached(0)
    check_space(folder, total, Phrase("disk.packed_copy"))
    sizes = {name: plan.packed_bytes(name) for name in plan.shapes if name in weights}
    shards = group_by_size(sizes, SHARD_BYTES)
    index: dict[str, str] = {}
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for number, names in enumerate(shards, start=1):
            file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            tensors: dict[str, Tensor] = {}
            for name in names:
                tensors |= _packed(name, plan, weights[name], dtype, pool, pace, quantiser)
            save_file(tensors, folder / file, metadata={"format": "pt"})
            index |= dict.fromkeys(tensors, file)
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=2)
    (folder / INDEX).write_text(text, encoding="utf-8")
    config = read_config(folder, folder.name)
    config["quantization_config"] = quantiser.config()
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def group_by_size(sizes: Mapping[str, int], most: int) -> list[list[str]]:
    """Distribute tensors to files in their order. sizes: bytes by name; most: bytes of a file with several tensors"""
    groups: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if filled and filled + size > most:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups


def _packed(
    name: str,
    plan: Plan,
    weight: Weight,
    dtype: torch.dtype,
    pool: ThreadPoolExecutor,
    pace: Pace,
    quantiser: Quantiser,
) -> dict[str, Tensor]:
    """Return the stored form of a tensor by names. pool: works on its parts"""
    import torch

    shape, before, quantised = plan.shapes[name], pace.count, name in plan.quantised
    kept = torch.empty(0 if quantised else shape, dtype=dtype)

    def work_on(part: slice) -> Any:
        """Return a part in its quantised form, or copy it into `kept`."""
        if quantised:
            return quantiser.part(weight, part)
        kept[part] = weight.read(part)
        return None

    found, parts = [], parts_of(shape)
    for part, one in zip(parts, pool.map(work_on, parts), strict=True):
        found.append(one)
        pace.reached(before + plan.packed_bytes(name) * part.stop // shape[0])
    if quantised:
        return quantiser.named(name, weight, found)
    return {name: kept} | quantiser.beside(name, weight)
