"""Lists facts about this machine and installation: one fact a line, with advice if something is wrong."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import ASSETS
from specdemo.files.catalogue import DEFAULT_TARGET, find
from specdemo.files.progress import folder_bytes, megabytes
from specdemo.files.quiet import import_bitsandbytes
from specdemo.files.sources import is_converted
from specdemo.files.store import free_bytes
from specdemo.files.wheel import LOCAL_WHEEL, installed_gguf, pip_command
from specdemo.models.devices import free_ram, processor

CHECKED_PACKAGES = (
    "torch",
    "transformers",
    "bitsandbytes",
    "numba",
    "accelerate",
    "gguf",
    "huggingface_hub",
    "gradio",
    "plotly",
)
REQUIREMENTS = ASSETS.parent / "requirements.txt"
INSTALL = (
    "Run pip install -r requirements.txt"
    if REQUIREMENTS.is_file()
    else "Install specdemo again with all that it requires"
)
PYTHONS = ((3, 11), (3, 13))
ROOM_FOR_DEFAULT = 400_000_000  # wheel, GGUF file and its packed copy


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the report. advice: to follow if it is not ok"""

    name: str
    value: str
    ok: bool = True
    advice: str = ""


def facts() -> list[Fact]:
    """Return the lines of the report, in reading order. Nothing is loaded, downloaded or changed."""
    settings, complaint = _settings()
    computing = all(map(installed, ("torch", "bitsandbytes")))
    return [
        _python(),
        *_packages(),
        *_processor(),
        *((_four_bit(), _cuda(), _device(settings)) if computing else ()),
        _memory(),
        *_cache(settings.cache_dir),
        _embedded(settings.cache_dir),
        _draft(),
        _pip(),
        *complaint,
        *(_variable(name) for name in sorted(os.environ) if name.startswith("SPECDEMO_")),
    ]


def _settings() -> tuple[AppSettings, list[Fact]]:
    try:
        return AppSettings.from_environment(), []
    except UserError as error:
        advice = error.advice or "Correct the variable."
        return AppSettings(), [Fact("Settings", error.message, ok=False, advice=advice)]


def _python() -> Fact:
    low, high = (".".join(map(str, version)) for version in PYTHONS)
    ok = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    return Fact("Python", platform.python_version(), ok, f"Use Python {low} to {high}.")


def _packages() -> list[Fact]:
    """Return the versions of CHECKED_PACKAGES. A checkout lists the required ones in requirements.txt, an installed package in its metadata."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import SpecifierSet
    from packaging.utils import canonicalize_name

    lines: list[str] = []
    if REQUIREMENTS.is_file():
        lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    else:
        with suppress(metadata.PackageNotFoundError):
            lines = metadata.requires("specdemo") or []
    required: dict[str, SpecifierSet] = {}
    for line in lines:
        with suppress(InvalidRequirement):
            requirement = Requirement(line.split("#")[0].strip())
            required.setdefault(canonicalize_name(requirement.name), requirement.specifier)
    found = []
    for name in CHECKED_PACKAGES:
        wanted = required.get(canonicalize_name(name), SpecifierSet())
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            found.append(Fact(name, "missing", ok=False, advice=INSTALL))
            continue
        value = f"{version} (wanted {wanted})" if str(wanted) else version
        ok = wanted.contains(version, prereleases=True) and installed(name)
        found.append(Fact(name, value, ok, INSTALL))
    return found


def installed(name: str) -> bool:
    """Whether a library can be imported; it is not."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _processor() -> list[Fact]:
    cpu = processor()
    flags = cpu.get("flags", "").split()
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
    found = ", ".join(flag for flag in known if flag in flags) or "cannot be told on this system"
    return [
        Fact("CPU", f"{cpu['model name']}, {os.cpu_count()} cores"),
        Fact("CPU instructions", found),
    ]


def _four_bit() -> Fact:
    """Return how the CPU computes with NF4 weights."""
    import_bitsandbytes()
    from bitsandbytes import functional

    from specdemo.kernels import cpu_features, runtime

    if runtime.runs_here():
        threads = "torch's threads" if runtime.is_borrowed() else "threads of Python"
        value = f"compiled pass on {cpu_features.name()}, in {threads} (fastest)"
        return Fact("4-bit on the CPU", value)
    if getattr(functional, "has_avx512bf16", lambda: False)():
        return Fact("4-bit on the CPU", "fused AVX512-BF16 kernel (fast)")
    slow = "dequantises each pass: correct, but slow; bf16 or fp32 may be faster for a small model"
    return Fact("4-bit on the CPU", slow)


def _cuda() -> Fact:
    import torch

    if not torch.cuda.is_available():
        return Fact("CUDA", "none; the CPU is used")
    free, total = torch.cuda.mem_get_info()
    return Fact(
        "CUDA", f"{torch.cuda.get_device_name()}, {megabytes(free)} of {megabytes(total)} free"
    )


def _device(settings: AppSettings) -> Fact:
    """Return the device on which models of the settings' precision run, and the reason."""
    from specdemo.models.devices import best_device, choose_device

    if settings.device.strip().lower() == "auto":
        best = best_device(settings.precision)
        return Fact("Device", f"{best.device} for {settings.precision}: {best.why}")
    try:
        device = choose_device(settings.device, settings.precision)
    except UserError as error:
        return Fact("Device", error.message, ok=False, advice=error.advice or "Choose auto.")
    return Fact("Device", f"{device} for {settings.precision}: the settings say so")


def _memory() -> Fact:
    return Fact("Memory", f"{megabytes(free_ram())} free")


def _cache(folder: Path) -> list[Fact]:
    used = folder_bytes(folder) if folder.is_dir() else 0
    free = free_bytes(folder)
    ok = free >= ROOM_FOR_DEFAULT or used > ROOM_FOR_DEFAULT / 2
    advice = "Free some space, or set SPECDEMO_CACHE to a folder on another disk."
    space = Fact("Disk", f"{megabytes(free)} free", ok, advice)
    return [Fact("Cache", f"{folder} ({megabytes(used)})"), space]


def _embedded(cache_dir: Path) -> Fact:
    entry = find(DEFAULT_TARGET)
    assert entry is not None, "the default target is in the catalogue"
    wheel = entry.wheel
    assert wheel is not None, "the default target comes in a wheel"
    if is_converted(entry, cache_dir, "nf4", read=True):
        return Fact("Embedded model", "converted and whole")
    if installed_gguf(wheel):
        return Fact(
            "Embedded model",
            f"installed as the package {wheel.package}; converted at the first start",
        )
    size = megabytes(wheel.size)
    return Fact("Embedded model", f"not here yet; the first start downloads {size} and converts it")


def _draft() -> Fact:
    target = find(DEFAULT_TARGET)
    draft = find(target.draft) if target is not None and target.draft else None
    folder = draft.folder if draft is not None else None
    present = folder is not None and any(folder.glob("*.safetensors"))
    advice = "Get the whole project again, or run: python -m specdemo train draft"
    return Fact("Shipped draft", "present" if present else "missing", present, advice)


def _pip() -> Fact:
    try:
        pip_command()
    except UserError as error:
        return Fact("pip", "missing", ok=False, advice=error.advice)
    return Fact("pip", "can fetch the embedded model")


def _variable(name: str) -> Fact:
    value = os.environ[name]
    lost = name == LOCAL_WHEEL and not Path(value).is_file()
    return Fact(name, value, not lost, "Correct it or unset it: there is no such file.")
