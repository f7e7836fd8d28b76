"""Loads weights in a precision on a device, and describes the arithmetic path that they will use."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from specdemo.config.errors import Phrase, UserError, first_line
from specdemo.config.strings import Json
from specdemo.engine.attention import ModuleDecoder, finish, use_shared_heads
from specdemo.engine.passes import Decoder
from specdemo.engine.target import CachedModel, PrefixReader
from specdemo.files.folder import (
    GGUF_BLOCKS,
    check_folder,
    check_read,
    count_parameters,
    find_family,
    quantised_by,
    read_config,
)
from specdemo.files.packing import quantisation
from specdemo.files.progress import Progress, ProgressCallback, megabytes, silent
from specdemo.files.quiet import import_bitsandbytes, quiet_transformers
from specdemo.files.sources import ModelFiles
from specdemo.kernels import cpu_features
from specdemo.models.decoders.blocks import load_blocks
from specdemo.models.decoders.choose import open_decoder, uses_compiled_pass
from specdemo.models.decoders.heads import AUTO_HEAD, SAMPLE
from specdemo.models.devices import (
    AUTO,
    FILE,
    FOUR_BIT,
    choose_device,
    gpu_dtype,
)
from specdemo.models.measurements import Measurement, PassCheck, pass_check
from specdemo.models.memory import Way, Weights, free_on
from specdemo.models.tokenizers import load_tokenizer
from specdemo.trace.events import COMPILED, ModelInfo

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FUSED_ROWS, FUSED_COLUMNS = 32, 64  # the fused CPU kernel crashes on layers of other multiples
UNFUSED = "bitsandbytes NF4, dequantise each pass"
OWN_BLOCKS = "the file's own blocks, 8-bit activations"
QUANTISED = ("nf4", "int8")
EXPERTS_KEPT = " (experts in 16 bits)"
SMALLER = {"fp32": "bf16 or nf4", "bf16": "nf4", "int8": "nf4", "file": "nf4"}

# Loading changes global defaults, and a first 4-bit pass is not thread-safe.
one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run. Never move or save it: its 4-bit weights are laid out for its device.

    decoder: runs it, see `specdemo.models.decoders.choose`; before the first pass the module as it comes
    vocabulary_size: rows of the output head
    files: the files from which it was loaded
    """

    model: PreTrainedModel
    decoder: Decoder
    info: ModelInfo
    device: torch.device
    vocabulary_size: int
    files: ModelFiles | None = None

    @property
    def known(self) -> str:
        """The catalogue name of the model, else its own name."""
        return (self.files.known if self.files else "") or self.info.name

    def open(self, _target: CachedModel) -> PrefixReader:
        """Start one conversation in which the model drafts. It reads nothing of the target."""
        return PrefixReader(CachedModel(self.decoder))


def load_model(
    files: ModelFiles,
    precision: str = "nf4",
    device: str = "auto",
    progress: ProgressCallback = silent,
) -> LoadedModel:
    """Load, quantise and warm up a model. Raises UserError when it cannot fit or cannot be read."""
    return warm(place_model(files, precision, device, progress), progress)


def place_model(
    files: ModelFiles,
    precision: str = "nf4",
    device: str = "auto",
    progress: ProgressCallback = silent,
    *,
    head: str = AUTO_HEAD,
) -> LoadedModel:
    """Load and quantise a model on its device, without a pass: `warm` makes it ready. Raises UserError.

    head: bits of the head that `warm` will make, for the estimate of memory
    """
    where = choose_device(device, precision)
    check_folder(files.folder, files.name)
    config = read_config(files.folder, files.name)
    precision = precision_of(files, precision)
    if precision not in (*SMALLER, FOUR_BIT):
        raise UserError("model.precision", precision=precision)
    family = find_family(model_type=config.get("model_type", ""))
    compiled = where.type == "cpu" and cpu_features.compiles() and family.layer is not None
    weights = Weights.of_folder(files.folder, files.name)
    needed = weights.loaded_bytes(Way(precision, head, compiled))
    check_room(files.name, precision, needed, where)
    with one_at_a_time, reporting_out_of_memory(files.name, precision):
        quantises = precision in QUANTISED and not quantised_by(config)
        progress(Progress("quantise" if quantises else "load", None, files.name))
        model = load_blocks(files) if precision == FILE else _load(files, precision, where)
        use_shared_heads(model)
        _own_vectors(model)
        model.eval().requires_grad_(False)
    parameters = count_parameters(files.folder, files.name)
    info = ModelInfo(files.name, files.revision, precision, "", parameters)
    rows = model.get_output_embeddings().weight.shape[0]
    return LoadedModel(model, ModuleDecoder(model), info, where, rows, files)


def precision_of(files: ModelFiles, wanted: str) -> str:
    """Return the precision in which files are loaded: `auto` takes the form in which `resolve` has stored them."""
    if wanted != AUTO:
        return wanted
    config = read_config(files.folder, files.name)
    return FILE if quantised_by(config) == GGUF_BLOCKS else FOUR_BIT


def warm(
    placed: LoadedModel,
    progress: ProgressCallback = silent,
    *,
    head: str = AUTO_HEAD,
    cache_dir: Path | None = None,
) -> LoadedModel:
    """Return a placed model after its first passes, with the decoder that suits the device.

    head: bits of the output head, see `AppSettings`; cache_dir: folder that caches the checks of these weights
    Raises UserError when there is no memory for it, and for a model that computes no numbers.
    """
    info, files = placed.info, placed.files
    assert files
    check = None
    if cache_dir and files.revision:  # which identifies the content of the weights
        check = pass_check(cache_dir, f"{files.name} {files.revision} {info.precision}", head)
    with one_at_a_time, reporting_out_of_memory(info.name, info.precision):
        progress(Progress("warm up", None, info.name))
        decoder, kernel = ready(
            placed.model, info.precision, placed.device, head, lambda: _ids(files, SAMPLE), check
        )
        if CachedModel(decoder).read([0]).isnan().any():
            raise UserError("model.not_numbers", name=info.name)
    progress(Progress("warm up", 1.0, info.name))
    if files.stored and info.precision in QUANTISED:
        kernel = f"{files.stored} quantised a second time: {kernel}"
    elif files.stored and info.precision == FILE:
        kernel = f"{files.stored}: {kernel}"
    return replace(placed, decoder=decoder, info=replace(info, kernel=kernel))


def _load(files: ModelFiles, precision: str, device: torch.device) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    try:
        with quiet_transformers():
            opened: Any = AutoModelForCausalLM.from_pretrained(
                str(files.folder),
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported like the others
                **loading_options(files.folder, precision, device),
            )
    except (OSError, ValueError, KeyError) as error:
        raise UserError("model.load_failed", name=files.name, reason=first_line(error)) from error
    model, report = opened
    report["mismatched_keys"] |= _misfits(model)
    check_read(files.folder, files.name, report)
    loaded: PreTrainedModel = model
    return loaded


def _misfits(model: PreTrainedModel) -> set[str]:
    """Return the names of quantised matrices of a wrong shape: transformers compares those of others only."""
    found = set()
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear):
            state = getattr(layer.weight, "quant_state", None)
            shape = state.shape if state is not None else layer.weight.shape
            if tuple(shape) != (layer.out_features, layer.in_features):
                found.add(f"{name}.weight")
    return found


def _own_vectors(model: PreTrainedModel) -> None:
    """Copy norms and biases out of the mapped weight files, which stay mapped as a whole for as long as any tensor is used."""
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data = parameter.data.clone()


def _ids(files: ModelFiles, text: str) -> list[int]:
    ids: list[int] = load_tokenizer(files)(text, add_special_tokens=False)["input_ids"]
    return ids


def loading_options(folder: Path, precision: str, device: torch.device) -> Json:
    """Return transformers' options for a folder's weights in a precision. A packed copy contains its own quantisation."""
    dtype, config = torch_dtype(precision, device), read_config(folder, folder.name)
    options: Json = {
        "dtype": dtype,
        "attn_implementation": find_family(model_type=config["model_type"]).attention,
        "device_map": {"": device},
        "use_safetensors": True,
        "local_files_only": True,
    }
    if precision in QUANTISED:
        import_bitsandbytes()
        if not quantised_by(config):
            options["quantization_config"] = quantisation(precision, dtype)
    return options


def torch_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Return the type of all weights except the quantised matrices, see `gpu_dtype`."""
    if precision == "fp32":
        return torch.float32
    return torch.bfloat16 if device.type == "cpu" else gpu_dtype(device)


def pack_as(precision: str, device: str) -> torch.dtype | None:
    """Return the type in which `resolve` stores the unquantised part of a model; None if big matrices are not in 4-bit."""
    if precision not in (AUTO, FOUR_BIT, FILE):
        return None
    return torch_dtype(precision, choose_device(device, precision))


def ready(
    model: PreTrainedModel,
    precision: str,
    device: torch.device,
    head: str = AUTO_HEAD,
    sample: Callable[[], Sequence[int]] | None = None,
    check: Measurement[PassCheck] | None = None,
) -> tuple[Decoder, str]:
    """Return the fastest decoder that agrees with a model, and a description of its arithmetic."""
    compiled = uses_compiled_pass(model)
    # The compiled pass reads 4-bit weights as they are stored, and each layer of the module runs once before it is packed.
    kernel = prepare_kernels(model, precision, device, fuse=not compiled)
    if not compiled:
        warm_up(model)
    if precision in QUANTISED and any(weight.ndim == 3 for weight in model.parameters()):
        kernel += EXPERTS_KEPT
    decoder, way = open_decoder(model, head, sample, check)
    if way.startswith(COMPILED) and kernel != OWN_BLOCKS:
        return decoder, f"bitsandbytes NF4, {way}"  # the model's own kernels no longer run
    return decoder, f"{kernel}, {way}"


def prepare_kernels(
    model: PreTrainedModel, precision: str, device: torch.device, *, fuse: bool = True
) -> str:
    """Return a description of the path, after disabling bitsandbytes' fused CPU kernel for shapes that crash it.

    fuse: whether that kernel, which lays weights out in a way of its own, may be used
    """
    place = device.type.upper()
    words = str(model.dtype).removeprefix("torch.")
    if precision == FILE:
        return OWN_BLOCKS
    if precision == "int8":
        return f"bitsandbytes LLM.int8 on {place}"
    if precision != "nf4":
        return f"PyTorch {words} on {place}"
    if device.type != "cpu":
        return f"bitsandbytes NF4 on {place}, {words} compute"
    from bitsandbytes.nn.modules import Linear4bit

    layers = [layer for layer in model.modules() if isinstance(layer, Linear4bit)]
    fused = 0
    for layer in layers:
        fits = layer.out_features % FUSED_ROWS == 0 and layer.in_features % FUSED_COLUMNS == 0
        layer.support_avx512bf16_for_cpu = bool(layer.support_avx512bf16_for_cpu and fits and fuse)
        fused += layer.support_avx512bf16_for_cpu
    if fused == 0:
        return UNFUSED
    if fused < len(layers):
        share = f"fused AVX512-BF16 in {fused} of {len(layers)} layers"
        return f"bitsandbytes NF4, {share}, others dequantise each pass"
    return "bitsandbytes NF4, fused AVX512-BF16"


def warm_up(model: PreTrainedModel) -> None:
    """Run one pass, which packs 4-bit weights for the CPU, compiles CUDA kernels and fills allocators."""
    with torch.inference_mode():
        model(torch.zeros(1, 4, dtype=torch.long, device=model.device), use_cache=False)
    finish(model.device)


def check_room(name: str, precision: str, needed: int, device: torch.device) -> None:
    """Raise UserError when a device has fewer bytes free than are needed."""
    free = free_on(str(device))
    if needed > free:
        raise _too_large(
            name, precision, Phrase("model.needs", needed=megabytes(needed), free=megabytes(free))
        )


def _too_large(name: str, precision: str, reason: Phrase) -> UserError:
    known = {"name": name, "precision": precision, "reason": reason}
    if precision in SMALLER:
        return UserError("model.too_large_precision", **known, smaller=SMALLER[precision])
    return UserError("model.too_large", **known)


@contextmanager
def reporting_out_of_memory(name: str, precision: str) -> Iterator[None]:
    """Replace an out-of-memory error by a UserError, and free the allocated memory."""
    try:
        yield
        return
    except MemoryError:
        pass
    # torch.OutOfMemoryError is one; the CPU allocator raises a plain one.
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "not enough memory" not in str(error):
            raise
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()
    raise _too_large(name, precision, Phrase("model.no_fit"))
