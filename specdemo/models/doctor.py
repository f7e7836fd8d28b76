"""Lists facts about this machine and installation: one fact a line, with advice if something is wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import ASSETS, Json
from specdemo.files.catalogue import DEFAULT_TARGET, find
from specdemo.files.hub import has_gguf
from specdemo.files.progress import folder_bytes, megabytes
from specdemo.files.quiet import import_bitsandbytes
from specdemo.files.sources import is_converted
from specdemo.files.store import free_bytes
from specdemo.files.wheel import LOCAL_WHEEL, pip_command
from specdemo.models.devices import processor
from specdemo.models.memory import free_ram, way

# Texts of the report, and the names of checked packages and instructions.
TEXTS: Json = json.loads(Path(__file__).with_name("doctor.json").read_text(encoding="utf-8"))
REQUIREMENTS = ASSETS.parent / "requirements.txt"
INSTALL: str = TEXTS["install"]["checkout" if REQUIREMENTS.is_file() else "wheel"]
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
        _embedded(settings),
        _draft(),
        _pip(),
        *complaint,
        *(_variable(name) for name in sorted(os.environ) if name.startswith("SPECDEMO_")),
    ]


def _settings() -> tuple[AppSettings, list[Fact]]:
    try:
        return AppSettings.from_environment(), []
    except UserError as error:
        advice = error.advice or TEXTS["settings"]
        return AppSettings(), [Fact("Settings", error.message, ok=False, advice=advice)]


def _python() -> Fact:
    low, high = (".".join(map(str, version)) for version in PYTHONS)
    ok = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    return Fact("Python", platform.python_version(), ok, TEXTS["python"].format(low=low, high=high))


def _packages() -> list[Fact]:
    """Return the versions of the checked packages. A checkout lists the required ones in requirements.txt, an installed package in its metadata."""
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
    for name in TEXTS["packages"]:
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
    found = ", ".join(flag for flag in TEXTS["instructions"] if flag in flags)
    cores = Fact("CPU", f"{cpu['model name']}, {os.cpu_count()} cores")
    return [cores, Fact("CPU instructions", found or TEXTS["unknown"])]


def _four_bit() -> Fact:
    """Return how the CPU computes with NF4 weights."""
    import_bitsandbytes()
    from bitsandbytes import functional

    from specdemo.kernels import cpu_features, runtime

    way = "fused" if getattr(functional, "has_avx512bf16", lambda: False)() else "slow"
    if runtime.runs_here():
        way = "torch_threads" if runtime.is_borrowed() else "own_threads"
    return Fact("4-bit on the CPU", TEXTS["four_bit"][way].format(cpu=cpu_features.name()))


def _cuda() -> Fact:
    import torch

    if not torch.cuda.is_available():
        return Fact("CUDA", TEXTS["no_cuda"])
    free, total = map(megabytes, torch.cuda.mem_get_info())
    return Fact("CUDA", f"{torch.cuda.get_device_name()}, {free} of {total} free")


def _device(settings: AppSettings) -> Fact:
    """Return the device on which models of the settings' precision run, and the reason."""
    from specdemo.models.devices import best_device, choose_device

    precision, texts = settings.precision, TEXTS["device"]
    if settings.device.strip().lower() == "auto":
        device, why = best_device(precision)
        value = texts["best"].format(device=device, precision=precision, why=why)
        return Fact("Device", value)
    try:
        named = choose_device(settings.device, precision)
    except UserError as error:
        return Fact("Device", error.message, ok=False, advice=error.advice or texts["advice"])
    return Fact("Device", texts["named"].format(device=named, precision=precision))


def _memory() -> Fact:
    return Fact("Memory", f"{megabytes(free_ram())} free")


def _cache(folder: Path) -> list[Fact]:
    used = folder_bytes(folder) if folder.is_dir() else 0
    free = free_bytes(folder)
    ok = free >= ROOM_FOR_DEFAULT or used > ROOM_FOR_DEFAULT / 2
    space = Fact("Disk", f"{megabytes(free)} free", ok, TEXTS["disk"])
    return [Fact("Cache", f"{folder} ({megabytes(used)})"), space]


def _embedded(settings: AppSettings) -> Fact:
    entry = find(DEFAULT_TARGET)
    assert entry is not None, "the default target is in the catalogue"
    file = entry.gguf
    assert file is not None, "the default target is a GGUF file"
    state, precision = "whole", way(settings).of(entry).precision
    if not is_converted(entry.name, file, settings.cache_dir, precision, read=True):
        state = "installed" if has_gguf(file, settings.cache_dir) else "missing"
    value = TEXTS["embedded"][state].format(size=megabytes(file.size))
    return Fact("Embedded model", value)


def _draft() -> Fact:
    target = find(DEFAULT_TARGET)
    draft = find(target.draft) if target is not None and target.draft else None
    folder = draft.folder if draft is not None else None
    present = folder is not None and any(folder.glob("*.safetensors"))
    return Fact("Shipped draft", "present" if present else "missing", present, TEXTS["draft"])


def _pip() -> Fact:
    try:
        pip_command()
    except UserError as error:
        return Fact("pip", "missing", ok=False, advice=error.advice)
    return Fact("pip", TEXTS["pip"])


def _variable(name: str) -> Fact:
    value = os.environ[name]
    lost = name == LOCAL_WHEEL and not Path(value).is_file()
    return Fact(name, value, not lost, TEXTS["variable"])
