"""The upload of a Space: only the program, with a front matter for the hardware."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.space.stand_in import NAME, refusal
from huggingface_hub import SpaceCard
from programs import ROOT
from test_project import project_files, requirements

from specdemo.cli.commands import space as plan_module
from specdemo.cli.commands.space import (
    STATIC,
    ZERO,
    SpacePlan,
    make_plan,
    space_card,
    space_requirements,
)


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory) -> SpacePlan:
    """The plan of the whole program on ZeroGPU."""
    folder = tmp_path_factory.mktemp("zero")
    return make_plan(NAME, "zero", folder, target="smollm2-135m-instruct")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The files of a static Space."""
    folder = tmp_path_factory.mktemp("static")
    make_plan(NAME, STATIC, folder)
    return folder


def test_the_program_is_uploaded_whole_and_nothing_beside_it(laid_out):
    files = {path.relative_to(ROOT).as_posix() for path in project_files()}
    needed = {
        name
        for name in files
        if name.startswith(("specdemo/", "assets/"))
        and not name.startswith("assets/screenshots/")
        and not name.endswith(".d.ts")
    }
    written = {"README.md", "requirements.txt", ".gitattributes", "app.py", "LICENSE"}
    assert len(needed) > 300
    assert needed | written <= set(laid_out.sizes)
    assert {name.partition("/")[0] for name in laid_out.sizes} == {*written, "specdemo", "assets"}
    assert not any("__pycache__" in name or "/." in name for name in laid_out.sizes)


def test_the_app_runs_from_exactly_what_is_uploaded(laid_out, tmp_path):
    code = (
        "import app, specdemo, urllib.request as web\n"
        "from specdemo.ui.app import launch_options\n"
        "from specdemo.session.studio import Studio\n"
        "from specdemo.config.settings import AppSettings\n"
        "options = launch_options(Studio(AppSettings.from_environment()))\n"
        "_, url, _ = app.demo.launch(prevent_thread_lock=True, server_port=None, **options)\n"
        "assert web.urlopen(url + 'player.html').status == 200\n"
        "assert b'specdemo' in web.urlopen(url).read()\n"
        "print(specdemo.__file__)\n"
    )
    kept = ("PATH", "HOME", "LANG", "SYSTEMROOT", "TMP", "TEMP")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables |= {**laid_out.variables, "SPECDEMO_REPLAY": "1", "SPECDEMO_CACHE": str(tmp_path)}
    words, where = [sys.executable, "-B", "-c", code], laid_out.folder
    assert str(where) in subprocess.check_output(words, cwd=where, env=variables, text=True)


def test_large_files_that_are_no_text_are_kept_outside_of_git(laid_out):
    rules = (laid_out.folder / ".gitattributes").read_text(encoding="utf-8")
    large = [name for name, size in laid_out.sizes.items() if size > 100_000]
    assert len(large) > 10
    for name in large:
        data = (laid_out.folder / name).read_bytes()[:4096]
        assert (b"\0" in data) == (f"*{Path(name).suffix} " in rules), name
    assert not (ROOT / ".gitattributes").exists()


def test_a_space_asks_for_nothing_that_it_brings(laid_out):
    wanted = requirements(laid_out.folder / "requirements.txt")
    tested = requirements()
    assert set(wanted) == set(tested) - {"gradio", "huggingface_hub"}
    assert str(wanted.pop("torch")) == "torch"
    assert all(requirement == tested[name] for name, requirement in wanted.items())


def test_without_zerogpu_torch_stays_the_tested_range():
    text = "# Tested\ntorch>=2.8,<=2.13.0\nspaces\ngradio>=6.31,<7\nhuggingface-hub==2.4.0\n"
    assert space_requirements(text, "cpu-basic") == "torch>=2.8,<=2.13.0\n"
    assert space_requirements(text, ZERO) == "torch\n"


def test_a_program_that_refuses_zerogpus_torch_is_not_uploaded():
    assert "torch 2.8.0" in refusal(space_requirements, "torch>=2.9,<3\n", ZERO).message


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        (ZERO, {"sdk": "gradio", "suggested_hardware": ZERO, "python_version": "3.12"}),
        ("t4-small", {"sdk": "gradio", "suggested_hardware": "t4-small"}),
        (STATIC, {"sdk": "static", "app_file": "index.html"}),
    ],
)
def test_the_front_matter_suits_the_hardware(hardware, expected, laid_out, site):
    folder = site if hardware == STATIC else laid_out.folder
    card = space_card(folder, hardware)
    matter = SpaceCard(str(card)).data.to_dict()
    assert matter["tags"] == ["specdemo"]
    assert expected.items() <= matter.items()
    assert matter["title"]
    assert len(matter["short_description"]) <= 60
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {matter["colorFrom"], matter["colorTo"]} <= colours
    assert (folder / matter["app_file"]).is_file()
    whole = hardware != STATIC and re.fullmatch(r"\d+\.\d+\.\d+", matter["sdk_version"])
    assert ("sdk_version" in matter) == bool(whole)


def test_an_installed_package_says_that_it_takes_a_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(plan_module, "PROJECT", tmp_path)
    assert (
        "checkout"
        in refusal(make_plan, NAME, "cpu", tmp_path / "out", target="smollm2-135m-instruct").message
    )
