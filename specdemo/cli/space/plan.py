"""The plan of a Hugging Face Space: its files in a folder, front matter, requirements and variables."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.config.strings import ASSETS

if TYPE_CHECKING:
    from huggingface_hub import SpaceCard
    from packaging.requirements import Requirement

PROJECT = ASSETS.parent
STATIC = "static"
ZERO = "zero-a10g"  # the hub's name for ZeroGPU
HARDWARE = {"zero": ZERO, "cpu": "cpu-basic", STATIC: STATIC}
TAG = "specdemo"  # in the front matter of every Space of this program, which recognises them by it
LEFT_OUT = ("__pycache__", "*.pyc", "*.pyi", "*.d.ts", "screenshots", ".*")
LARGE = ("*.npy", "*.safetensors")  # suffixes of files that the hub stores outside of git
MANAGED = {
    "gradio",
    "spaces",
    "huggingface-hub",
}  # preinstalled on a Space; requiring them can break its build
ZERO_TORCH = ("2.8.0", "2.9.1", "2.10.0", "2.11.0")  # versions that ZeroGPU may install
SPACE_ABOUT = """
# specdemo

A small draft model guesses the next tokens of a text, and the large target model checks all guesses in one pass. This is
speculative decoding. The page shows it live, and every number says whether it was measured, recorded or modelled.

Written by `python -m specdemo space`.
"""


@dataclass(frozen=True, slots=True)
class SpacePlan:
    """The files and settings of a Space.

    repo: OWNER/NAME; hardware: the hub's name, or `static`
    folder: contains only the Space's files; sizes: bytes of each, by its path in the Space
    variables: of the Space's environment
    """

    repo: str
    hardware: str
    private: bool
    folder: Path
    sizes: Mapping[str, int]
    variables: Mapping[str, str]

    @property
    def sdk(self) -> str:
        return STATIC if self.hardware == STATIC else "gradio"


def make_plan(
    repo: str, hardware: str, folder: Path, *, target: str = "", private: bool = False
) -> SpacePlan:
    """Write the files of the Space to an empty folder and check them, without a network. Raises UserError.

    hardware: zero, cpu, static or the hub's name of a GPU; target: the model that the page loads
    """
    check_name(repo)
    hardware = _hardware(hardware)
    variables = {}
    if hardware == STATIC:
        from specdemo.ui.site import write_site

        write_site(folder)
    else:
        _check_target(target)
        _copy_program(folder, hardware)
        variables = {"GRADIO_SSR_MODE": "false", "SPECDEMO_TARGET": target}
    card = space_card(folder, hardware)
    card.save(folder / "README.md")
    (folder / ".gitattributes").write_text(_attributes(), encoding="utf-8")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    return SpacePlan(repo, hardware, private, folder, sizes, variables)


def describe(plan: SpacePlan) -> str:
    who = "private" if plan.private else "public; one that is private already stays so"
    variables = [f"{name}={value}" for name, value in plan.variables.items()]
    return "\n".join(
        [
            f"Space      {plan.repo} ({who})",
            f"Hardware   {plan.hardware}",
            f"Variables  {', '.join(variables) or 'none'}",
            f"Upload     {len(plan.sizes)} files, {_megabytes(sum(plan.sizes.values()))}",
            *(f"           {line}" for line in _folders(plan.sizes)),
            *_written(plan, "README.md"),
            *_written(plan, "requirements.txt"),
            *_written(plan, ".gitattributes"),
        ]
    )


def _folders(sizes: Mapping[str, int]) -> Iterator[str]:
    """A line for each folder, down to the second level: size, number of files, path."""
    found: dict[str, list[int]] = {}
    for path, size in sizes.items():
        parts = path.split("/")[:-1][:2]
        found.setdefault("/".join([*parts, ""]) or "./", []).append(size)
    for name, group in sorted(found.items()):
        yield f"{_megabytes(sum(group)):>8}  {len(group):>4}  {name}"


def _written(plan: SpacePlan, name: str) -> list[str]:
    """A file that is written for the Space, indented."""
    path = plan.folder / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return ["", name, *(f"    {line}".rstrip() for line in lines)] if lines else []


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def check_name(repo: str) -> None:
    """Raise UserError if a name is not OWNER/NAME."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # exported, not listed

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UserError("space.bad_name", repo=repo) from error
    if "/" not in repo:
        raise UserError("space.no_owner", repo=repo)


def _hardware(name: str) -> str:
    """Return the hub's name of hardware. Raises UserError if the hub's client does not list it."""
    from huggingface_hub import SpaceHardware

    known = sorted(item.value for item in SpaceHardware)
    found = HARDWARE.get(name, name)
    if found == STATIC or found in known:
        return found
    raise UserError("space.hardware", name=name, names=", ".join(known))


def _check_target(target: str) -> None:
    """Raise UserError for a target that a Space cannot load. The hub is not asked whether it has the model."""
    from specdemo.files.catalogue import find

    if Path(target).exists():
        raise UserError("space.local_target", target=target)
    if target != "auto" and "/" not in target and not find(target):
        raise UserError("space.unknown_target", target=target)


def _copy_program(folder: Path, hardware: str) -> None:
    """Copy the files that `python app.py` reads, with a requirements.txt for the hardware."""
    if not (PROJECT / "app.py").is_file():
        raise UserError("space.not_a_checkout")
    for name in ("specdemo", "assets"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for name in ("app.py", "LICENSE"):
        shutil.copyfile(PROJECT / name, folder / name)
    wanted = (PROJECT / "requirements.txt").read_text(encoding="utf-8")
    (folder / "requirements.txt").write_text(space_requirements(wanted, hardware), encoding="utf-8")


def space_requirements(text: str, hardware: str) -> str:
    """Return a requirements.txt without the packages that a Space manages itself; ZeroGPU also chooses torch.

    Raises UserError unless the program accepts each version of torch that ZeroGPU may install.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = []
    for line in text.splitlines():
        wanted = line.partition("#")[0].strip()
        if not wanted:
            continue
        requirement = Requirement(wanted)
        if canonicalize_name(requirement.name) in MANAGED:
            continue
        if requirement.name == "torch" and hardware == ZERO:
            _check_torch(requirement)
            wanted = "torch"
        lines.append(wanted)
    return "\n".join([*lines, ""])


def _check_torch(requirement: Requirement) -> None:
    refused = [version for version in ZERO_TORCH if not requirement.specifier.contains(version)]
    if refused:
        raise UserError("space.torch_range", requirement=requirement, names=", ".join(refused))


def space_card(folder: Path, hardware: str) -> SpaceCard:
    """README.md of the Space: the front matter that the hub reads, and a few sentences."""
    from huggingface_hub import SpaceCard

    readme = (folder if hardware == STATIC else PROJECT) / "README.md"
    card = SpaceCard(readme.read_text(encoding="utf-8"))
    matter: Any = card.data
    matter.tags = [TAG]
    if hardware != STATIC:
        matter.suggested_hardware = hardware
        card.text = SPACE_ABOUT
    return card


def _attributes() -> str:
    return "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LARGE)
