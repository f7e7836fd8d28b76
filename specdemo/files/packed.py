"""Pack a model into bitsandbytes' own 4-bit form, one tensor at a time, never unquantised as a whole.

The copy is a folder in Hugging Face layout that `from_pretrained` reads as it is. Its numbers are those that
`from_pretrained` computes when it quantises the unquantised model itself.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from specdemo.config.errors import Phrase
from specdemo.files.folder import INDEX, read_header
from specdemo.files.progress import Pace, ProgressCallback
from specdemo.files.quiet import import_bitsandbytes, quiet_transformers
from specdemo.files.store import MARKER, check_space
from specdemo.files.weights import NotReadable, Weight, Weights, parts_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Found = TypeVar("Found")

RECIPE = "nf4-1"  # increased when packing changes; older copies are then made again
SHARD_BYTES = 200_000_000  # packed weights that are in memory at a time
DESCRIPTION = ("*.json", "*.jinja", "*.txt", "tokenizer.model", "LICENSE*")


@dataclass(frozen=True, slots=True)
class Plan:
    """The tensors of a model, and the form in which each is stored.

    shapes: of all tensors by name; tied: tensors that share another one's data when they are not stored
    quantised: matrices that are stored in 4-bit
    """

    shapes: Mapping[str, tuple[int, ...]]
    tied: frozenset[str]
    quantised: frozenset[str]

    def packed_bytes(self, name: str) -> int:
        """Return the size of a tensor in the copy."""
        count = math.prod(self.shapes[name])
        return count * 9 // 16 if name in self.quantised else 2 * count


def quantisation(precision: str, dtype: torch.dtype) -> Any:
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
    return Plan(shapes, tied, frozenset(layers))


def copy_description(source: Path, folder: Path) -> None:
    """Copy the configuration and the tokenizer of a model folder."""
    for pattern in DESCRIPTION:
        for path in source.glob(pattern):
            if path.name not in (INDEX, MARKER):
                shutil.copyfile(path, folder / path.name)


def total_bytes(plan: Plan, weights: Weights) -> int:
    """Return the size of the copy. Raises NotReadable if a tensor of the model is not stored."""
    missing = plan.shapes.keys() - weights.keys() - plan.tied
    wrong = [
        name for name in plan.shapes.keys() & weights if plan.shapes[name] != weights[name].shape
    ]
    if missing or wrong:
        raise NotReadable(", ".join(sorted(missing) + wrong))
    return sum(plan.packed_bytes(name) for name in plan.shapes if name in weights)


def pack(
    folder: Path,
    plan: Plan,
    weights: Weights,
    dtype: torch.dtype,
    progress: ProgressCallback,
) -> None:
    """Write the packed weights and their config.json into a folder.

    dtype: of unquantised tensors, and of matrices before quantisation
    """
    import torch

    total = total_bytes(plan, weights)
    shards = _shards(plan, [name for name in plan.shapes if name in weights])
    pace = Pace(progress, "quantise", total, "4-bit")
    pace.reached(0)
    check_space(folder, total, Phrase("disk.packed_copy"))
    index: dict[str, str] = {}
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads) as pool:
        work = _Work(pool, threads, pace)
        for file, names in shards.items():
            _write_shard(folder / file, names, plan, weights, dtype, work)
            stored = read_header(folder / file)
            index |= {name: file for name in stored if name != "__metadata__"}
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=2)
    (folder / INDEX).write_text(text, encoding="utf-8")
    _write_config(folder, dtype)


def _write_shard(
    path: Path,
    names: Sequence[str],
    plan: Plan,
    weights: Weights,
    dtype: torch.dtype,
    work: _Work,
) -> None:
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    for name in names:
        tensors |= _packed(name, plan, weights[name], dtype, work)
    save_file(tensors, path, metadata={"format": "pt"})


def _write_config(folder: Path, dtype: torch.dtype) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["quantization_config"] = quantisation("nf4", dtype).to_dict()
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def is_packed(folder: Path) -> bool:
    """Check whether the weights of a folder are quantised already, according to its config.json."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return bool(config.get("quantization_config"))


def _shards(plan: Plan, names: Sequence[str]) -> dict[str, list[str]]:
    """Assign tensors to files."""
    shards: list[list[str]] = [[]]
    size = 0
    for name in names:
        if size and size + plan.packed_bytes(name) > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += plan.packed_bytes(name)
    return {
        f"model-{number:05d}-of-{len(shards):05d}.safetensors": shard
        for number, shard in enumerate(shards, start=1)
    }


def _packed(
    name: str, plan: Plan, weight: Weight, dtype: torch.dtype, work: _Work
) -> dict[str, Tensor]:
    """Return the stored form of a tensor, under the names that bitsandbytes reads."""
    import torch

    from specdemo.files import nf4

    shape = plan.shapes[name]

    def read(part: slice) -> Tensor:
        return weight.read(part).to(dtype)

    def quantise(part: slice) -> tuple[Tensor, Tensor]:
        return nf4.quantise(read(part))

    total = plan.packed_bytes(name)
    if name not in plan.quantised:
        kept = torch.empty(shape, dtype=dtype)
        for part, piece in work.on_parts(shape, total, read):
            kept[part] = piece
        return {name: kept}
    codes, scales = zip(*(found for _, found in work.on_parts(shape, total, quantise)), strict=True)
    state = nf4.state_of(torch.cat(scales), shape, dtype)
    stored = {f"{name}.{key}": value for key, value in state.as_dict(packed=True).items()}
    return {name: torch.cat(codes)} | stored


@dataclass(frozen=True, slots=True)
class _Work:
    """Process parts of tensors in several threads, and report progress."""

    pool: ThreadPoolExecutor
    threads: int
    pace: Pace

    def on_parts(
        self, shape: tuple[int, ...], total: int, do: Callable[[slice], Found]
    ) -> Iterator[tuple[slice, Found]]:
        """Yield each part with its result, in order; a few are computed ahead. total: bytes of the whole"""
        before, waiting, coming = self.pace.count, parts_of(shape), deque[Future[Found]]()
        for number, part in enumerate(waiting):
            while len(coming) <= self.threads and number + len(coming) < len(waiting):
                coming.append(self.pool.submit(do, waiting[number + len(coming)]))
            yield part, coming.popleft().result()
            self.pace.reached(before + total * part.stop // shape[0])
