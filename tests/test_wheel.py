"""The wheel: built from the project's files, installed elsewhere, and used without the checkout."""

import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import httpx
import pytest
from programs import ROOT, run, serving_page
from test_project import project_files

from specdemo.trace.metrics import output_text
from specdemo.trace.replay import read


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """Build the source distribution from a copy, so that the checkout stays clean, and unpack it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("sdist")
    for path in project_files():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    run(sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", out, cwd=source)
    (built,) = out.glob("specdemo-*.tar.gz")
    with tarfile.open(built) as archive:
        archive.extractall(out, filter="data")
    return out / built.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(unpacked) -> Path:
    """Build the wheel from the source distribution, without network."""
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    out = unpacked.parent
    run(sys.executable, "-m", "pip", "wheel", *options, "-w", out, unpacked, cwd=out)
    (built,) = out.glob("specdemo-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Unpack the wheel into a folder; its requirements come from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--no-deps", "--no-index", "--quiet", "--target", folder]
    run(sys.executable, "-m", "pip", "install", *options, wheel, cwd=folder)
    return folder


def specdemo(installed: Path, *words: object, cwd: Path) -> str:
    (command,) = (installed / "bin").glob("specdemo*")
    return run(command, *words, cwd=cwd, PYTHONPATH=str(installed))


def test_the_source_distribution_holds_every_file_that_the_readme_names(unpacked):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = {
        *re.findall(r"\]\((?!https?:)([^)#]+)", readme),
        *re.findall(r"requirements[\w-]*\.txt", readme),
    }
    named |= {"app.py", "Spacefile", "LICENSE", "tests/conftest.py", "pyproject.toml"}
    assert {name for name in named if not (unpacked / name).exists()} == set()


def test_the_wheel_holds_every_module_and_asset_and_neither_tests_nor_pictures(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        metadata = archive.read(next(name for name in inside if name.endswith("METADATA"))).decode()
    files = [path.relative_to(ROOT).as_posix() for path in project_files()]
    modules = {name for name in files if name.startswith("specdemo/") and name.endswith(".py")}
    assets = {f"specdemo/{name}" for name in files if name.startswith("assets/")}
    pictures = {name for name in assets if "/screenshots/" in name}
    assert modules
    assert pictures
    assert modules | assets - pictures <= inside
    assert not pictures & inside
    assert {
        "specdemo/files/catalogue.json",
        "specdemo/cli/commands.toml",
        "specdemo/py.typed",
    } <= inside
    outside = {name.partition("/")[0] for name in inside}
    assert {name for name in outside if not name.endswith(".dist-info")} == {"specdemo"}
    for line in (
        "Requires-Dist: torch<2.14,>=2.8",
        "Provides-Extra: desktop",
        "Author: The specdemo",
    ):
        assert line in metadata
    assert "Classifier: Programming Language :: Python :: 3.13" in metadata
    assert "## Start" in metadata
    assert re.findall(r"\]\((?!https?:)", metadata) == []  # links to files lead nowhere there


def test_an_installed_wheel_replays_a_recorded_run_away_from_the_checkout(installed, tmp_path):
    trace = installed / "specdemo" / "assets" / "runs" / "01-guess-and-check.jsonl"
    said = specdemo(installed, "replay", trace, cwd=tmp_path)
    assert said.strip() == output_text(read(trace).trace.lane("speculative")).strip()
    specdemo(installed, "export", trace, "--html", "run.html", cwd=tmp_path)
    assert "<script" in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_an_installed_wheel_describes_itself(installed, tmp_path):
    code = "import specdemo, specdemo.config.strings; print(specdemo.__file__, specdemo.config.strings.ASSETS)"
    said = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert all(Path(word).is_relative_to(installed) for word in said.split())
    assert "draft_model" in specdemo(installed, "methods", cwd=tmp_path)
    assert "smollm2" in specdemo(installed, "models", cwd=tmp_path)


def test_an_installed_wheel_serves_the_page(installed, tmp_path):
    (command,) = (installed / "bin").glob("specdemo*")
    options = {"log": tmp_path / "log", "cwd": tmp_path, "PYTHONPATH": str(installed)}
    with serving_page(command, "app", "--replay", **options) as process:
        page = httpx.get(process.url, timeout=30)
        assert "specdemo" in page.text
        script = page.headers["Link"].partition("<")[2].partition(">")[0]
        assert script.startswith("files/")
        answer = httpx.get(f"{process.url}/{script}", timeout=30)
        assert answer.raise_for_status().text.strip()
