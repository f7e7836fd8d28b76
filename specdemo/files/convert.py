"""Convert a GGUF file once and exactly to a folder in Hugging Face layout, with transformers alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specdemo.config.errors import Phrase, UserError
from specdemo.files.gguf_config import config_of
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.quiet import quiet_gguf, quiet_transformers
from specdemo.files.store import check_space
from specdemo.files.weights import NotReadable

RECIPE = "gguf-2"  # increased when the conversion changes; older folders and packed copies are then made again
TOKENIZER = "tokenizer_config.json"  # written last, so it marks a complete description
EXACT_BELOW = 1_000_000_000  # bytes of GGUF; a larger file is stored as float16 to save disk space
ESTIMATED_SECONDS_PER_GB = 100.0  # measured on two cores; only moves the progress bar


def expanded_bytes(gguf_bytes: int) -> int:
    """Upper estimate of the converted folder's size: 4-bit weights become 32-bit or 16-bit ones."""
    return gguf_bytes * (7 if gguf_bytes < EXACT_BELOW else 4)


def check_gguf(path: Path) -> None:
    """Raise UserError unless the file starts with GGUF's signature."""
    with path.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise UserError("model.not_gguf", name=path.name)


def convert_gguf(gguf: Path, folder: Path, progress: ProgressCallback = silent) -> None:
    """Dequantise a GGUF file into safetensors, config and tokenizer.

    Dequantised 4-bit weights need more bits than float16 has; float32 represents them exactly.
    """
    check_gguf(gguf)
    check_space(
        folder, expanded_bytes(gguf.stat().st_size), Phrase("disk.converting", name=gguf.name)
    )
    with _estimated(gguf.stat().st_size, progress), reporting_damage(gguf):
        _convert(gguf, folder)


@contextmanager
def reporting_damage(gguf: Path) -> Iterator[None]:
    """Turn any error of reading a damaged GGUF file into a UserError."""
    with quiet_transformers(), quiet_gguf():
        try:
            yield
        except (UserError, MemoryError, NotReadable):
            raise
        except Exception as error:  # the reader uses damaged values as lengths and offsets
            if getattr(error, "errno", None) is not None:  # the system's own, as for a full disk
                raise
            raise UserError(
                "model.gguf_unreadable", name=gguf.name, error=_first_line(error)
            ) from error


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    dtype = torch.float32 if gguf.stat().st_size < EXACT_BELOW else torch.float16
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        config=config_of(gguf),
        dtype=dtype,
        quantization_config=GgufConfig(dequantize=True),
        **_source(gguf),
    )
    model.save_pretrained(str(folder), safe_serialization=True)
    _save_tokenizer(gguf, folder)


def describe_gguf(gguf: Path, folder: Path) -> None:
    """Write the files that describe a GGUF file's model: config.json, generation_config.json and the tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM

    config = config_of(gguf)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(str(folder))
    model.generation_config.save_pretrained(str(folder))
    if not (folder / TOKENIZER).is_file():
        _save_tokenizer(gguf, folder)


def _save_tokenizer(gguf: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), **_source(gguf))
    tokenizer.save_pretrained(str(folder))


def _source(gguf: Path) -> dict[str, Any]:
    """Return the arguments that make transformers read this file and nothing else."""
    return {"gguf_file": gguf.name, "trust_remote_code": False, "local_files_only": True}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def _estimated(gguf_bytes: int, progress: ProgressCallback) -> Iterator[None]:
    """Report a conversion by its expected time, since transformers reports nothing itself."""
    finished, began = threading.Event(), time.monotonic()
    expected = max(5.0, gguf_bytes / 1e9 * ESTIMATED_SECONDS_PER_GB)

    def tell() -> None:
        while not finished.wait(0.3):
            passed = time.monotonic() - began
            progress(
                Progress(
                    "convert", passed / (passed + expected / 2), "once; later starts skip this"
                )
            )

    progress(Progress("convert", 0.0, "once; later starts skip this"))
    teller = threading.Thread(target=tell, name="specdemo-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        finished.set()
        teller.join()
