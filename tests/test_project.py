"""The project's papers agree with each other and with the code."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from programs import ROOT, run

from specdemo.config.settings import AppSettings, fields
from specdemo.files.catalogue import entries
from tools import docs

MEGABYTE = 1_000_000
START = (
    "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && .venv/bin/python app.py"
)
TEST = (
    "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt -r requirements-dev.txt"
    " && .venv/bin/python -m pytest"
)
TEXTS = {".md", ".py", ".toml", ".txt", ".json", ".js", ".css", ".pyi", ""}


def read(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def front_matter() -> dict[str, object]:
    return yaml.safe_load(read("README.md").split("---\n")[1])


def requirements(name: str | Path = "requirements.txt") -> dict[str, Requirement]:
    lines = [line.split("#")[0].strip() for line in read(name).splitlines()]
    return {found.name: found for found in map(Requirement, filter(None, lines))}


def project_files() -> list[Path]:
    """Return the files of the repository: git's list, else every file outside hidden folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = filter(None, run(*command).split("\0"))
    except (OSError, AssertionError):
        found = (path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*"))
        names = [name for name in found if not re.search(r"(^|/)(\.|__pycache__)", name)]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_the_spacefile_mirrors_the_front_matter() -> None:
    manifest = yaml.safe_load(read("Spacefile"))
    assert manifest["v"] == 0
    assert (ROOT / manifest["icon"]).is_file()
    assert manifest["x-huggingface"] == front_matter()


def test_the_spacefile_names_what_exists() -> None:
    (micro,) = yaml.safe_load(read("Spacefile"))["micros"]
    assert micro["primary"]
    assert all((ROOT / name).exists() for name in micro["include"])
    defaults = {setting.variable: setting.default for setting in fields(AppSettings)}
    for preset in micro["presets"]["env"]:
        assert defaults[preset["name"]] == preset["default"]


def test_the_front_matter_suits_the_requirements() -> None:
    matter = front_matter()
    assert matter["sdk"] == "gradio"
    assert len(str(matter["short_description"])) <= 60
    assert (ROOT / str(matter["app_file"])).is_file()
    assert requirements()["gradio"].specifier.contains(str(matter["sdk_version"]))


def test_the_front_matter_names_models_of_the_catalogue() -> None:
    assert set(front_matter()["models"]) <= {entry.repo for entry in entries()}


def test_the_requirements_admit_zerogpu_and_the_tested_torch() -> None:
    torch = requirements()["torch"].specifier
    for version in ("2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.13.0", "2.13.0+cpu"):
        assert torch.contains(version), version
    assert not torch.contains("2.14.0")


@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.glob("requirements*.txt")))
def test_every_requirement_has_an_upper_end(name: str) -> None:
    for requirement in requirements(name).values():
        assert {item.operator for item in requirement.specifier} & {"==", "<", "<="}, requirement


def test_the_wheel_takes_the_tested_versions_and_nothing_without_an_end() -> None:
    written = tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]
    asked = {found.name: found for found in map(Requirement, written)}
    tested = requirements()
    assert asked.keys() == tested.keys()
    for name, requirement in asked.items():
        assert str(requirement.marker) == str(tested[name].marker)
        operators = {item.operator for item in requirement.specifier}
        assert operators == {">=", "<"}
        for item in tested[name].specifier:
            if item.operator in ("==", "<=", ">="):
                assert requirement.specifier.contains(item.version), requirement


def test_the_requirements_of_replays_are_part_of_all_requirements() -> None:
    everything = requirements()
    for name, requirement in requirements("requirements-replay.txt").items():
        assert requirement.specifier == everything[name].specifier


def test_the_two_commands_are_in_the_readme_and_ci_runs_the_test_command() -> None:
    lines = read("README.md").splitlines()
    assert START in lines
    assert TEST in lines
    assert read(".ci/run").splitlines()[-1] == TEST
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_the_readme_links_to_the_reference() -> None:
    assert "(docs/reference.md)" in read("README.md")


def test_the_first_documents_stay_short() -> None:
    assert len(read("README.md").split("---\n", 2)[2].splitlines()) <= 115
    assert len(read("docs/performance.md").split()) < 1_000


def test_links_between_documents_have_targets() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for link in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_architecture_names_places_that_exist() -> None:
    text = read("docs/architecture.md").split("## Where things live")[1].split("## One run")[0]
    places = re.findall(r"`((?:\w+/)+(?:\w+(?:\.\w+)?)?)`", text)
    assert len(places) > 20
    for place in places:
        assert (ROOT / place).exists() or (ROOT / "specdemo" / place).exists(), place


def test_files_stay_small() -> None:
    sizes = {path: path.stat().st_size for path in project_files()}
    assert {path: size for path, size in sizes.items() if size >= 10 * MEGABYTE} == {}
    weights = [
        size for path, size in sizes.items() if path.suffix in {".safetensors", ".gguf", ".npz"}
    ]
    assert sum(weights) < 60 * MEGABYTE
    shipped = [size for path, size in sizes.items() if path.is_relative_to(ROOT / "assets")]
    assert sum(shipped) < 60 * MEGABYTE


def test_nothing_points_at_one_machine() -> None:
    pattern = re.compile(
        r"(?<![\w.~$}/-])/(work|home|root|tmp|opt|Users|mnt)/\w|file:///[a-z]|extra-index-url"
    )
    for path in project_files():
        if path.suffix not in TEXTS or path == Path(__file__).resolve():
            continue
        found = pattern.search(path.read_text(encoding="utf-8", errors="replace"))
        assert found is None, f"{path.relative_to(ROOT)}: {found.group()}"


def test_the_licence_is_whole() -> None:
    text = read("LICENSE")
    assert text.lstrip().startswith("Apache License")
    assert "END OF TERMS AND CONDITIONS" in text


def test_a_document_without_its_markers_is_noticed() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        docs.between("no markers", "map", "")
