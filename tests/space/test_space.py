"""A Space from one command: the hub's real client against a hub on loopback."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import SpaceCard, SpaceInfo, constants
from huggingface_hub.utils import _xet
from packaging.requirements import Requirement
from space.stand_in import GOOD, Space, hub
from test_project import project_files, requirements
from ui.served import served

from specdemo.cli.parser import main
from specdemo.errors import UserError
from specdemo.space import plan as plan_module
from specdemo.space.hub import connect, follow, publish
from specdemo.space.plan import (
    STATIC,
    ZERO,
    SpacePlan,
    check_card,
    make_plan,
    space_card,
    space_requirements,
)
from specdemo.space.visit import visit
from specdemo.ui import monitor

ROOT = Path(__file__).resolve().parents[2]
NAME = "me/demo"
README = "---\ntitle: specdemo\nsdk: gradio\ntags:\n- specdemo\n---\n"


@pytest.fixture
def server(monkeypatch, tmp_path):
    """An empty hub, and a token that it takes. The uploader keeps to this test and gives up at once."""
    for name, value in {
        "HF_TOKEN": GOOD,
        "HF_XET_CACHE": str(tmp_path / "xet"),
        "HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "0",
        "HF_XET_TELEMETRY_ENABLED": "0",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_xet, "_GLOBAL_XET_HOLDER", _xet.XetSessionHolder())
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def plan(tmp_path) -> SpacePlan:
    """A Space of four files, one of them large to the hub."""
    folder = tmp_path / "plan"
    (folder / "a").mkdir(parents=True)
    (folder / "README.md").write_text(README)
    (folder / "app.py").write_text("1")
    (folder / "a" / "w.npy").write_bytes(bytes(range(256)))
    (folder / ".gitattributes").write_text("*.npy filter=lfs")
    return planned(folder)


def planned(folder: Path, hardware: str = ZERO, **changes) -> SpacePlan:
    """A plan for what a folder holds."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    variables = {"GRADIO_SSR_MODE": "false", "SPECDEMO_TARGET": "tiny"}
    given = {"private": False, "variables": variables, **changes}
    return SpacePlan(NAME, hardware, folder=folder, sizes=sizes, **given)


def published(plan: SpacePlan, reports: list[str] | None = None):
    return publish(plan, connect(), (reports if reports is not None else []).append)


# What is uploaded


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
        "from specdemo.settings import AppSettings\n"
        "options = launch_options(Studio(AppSettings.from_environment()))\n"
        "_, url, _ = app.demo.launch(prevent_thread_lock=True, server_port=None, **options)\n"
        "assert web.urlopen(url + 'player.html').status == 200\n"
        "assert b'specdemo' in web.urlopen(url).read()\n"
        "print(specdemo.__file__)\n"
    )
    kept = ("PATH", "HOME", "LANG", "SYSTEMROOT", "TMP", "TEMP")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables |= {**laid_out.variables, "SPECDEMO_REPLAY": "1", "SPECDEMO_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=laid_out.folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(laid_out.folder) in done.stdout


def test_large_files_that_are_no_text_are_kept_outside_of_git(laid_out):
    rules = (laid_out.folder / ".gitattributes").read_text(encoding="utf-8")
    large = [name for name, size in laid_out.sizes.items() if size > 100_000]
    assert len(large) > 10
    for name in large:
        data = (laid_out.folder / name).read_bytes()[:4096]
        assert (b"\0" in data) == (f"*{Path(name).suffix} " in rules), name
    assert not (ROOT / ".gitattributes").exists()


def asked(text: str) -> dict[str, Requirement]:
    """What a requirements.txt asks for, by name."""
    return {found.name: found for found in map(Requirement, text.splitlines())}


def test_a_space_asks_for_nothing_that_it_brings(laid_out):
    wanted = asked((laid_out.folder / "requirements.txt").read_text(encoding="utf-8"))
    tested = requirements()
    assert set(wanted) == set(tested) - {"gradio", "huggingface_hub"}
    assert str(wanted.pop("torch")) == "torch"
    assert all(requirement == tested[name] for name, requirement in wanted.items())


def test_without_zerogpu_torch_stays_the_tested_range():
    text = "# Tested\ntorch>=2.8,<=2.13.0\nspaces\ngradio>=6.31,<7\nhuggingface-hub==2.4.0\n"
    assert space_requirements(text, "cpu-basic") == "torch>=2.8,<=2.13.0\n"
    assert space_requirements(text, ZERO) == "torch\n"


def sentences(error: UserError) -> str:
    """What is told, once it is sure that all three parts are there."""
    assert error.message.endswith(".")
    assert error.unharmed.endswith(".")
    assert error.advice.endswith(".")
    return error.message


def test_a_program_that_refuses_zerogpus_torch_is_not_uploaded():
    with pytest.raises(UserError) as caught:
        space_requirements("torch>=2.9,<3\n", ZERO)
    assert "torch 2.8.0" in sentences(caught.value)


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
    check_card(card, folder, hardware)
    matter = SpaceCard(str(card)).data.to_dict()
    assert matter["tags"] == ["specdemo"]
    assert expected.items() <= matter.items()
    assert ("sdk_version" in matter) == (hardware != STATIC)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("title", "", "no title"),
        ("short_description", "x" * 61, "more than 60"),
        ("colorFrom", "mauve", "must be among"),
        ("app_file", "nothing.py", "not there"),
        ("sdk", "docker", "must be gradio"),
        ("sdk_version", "6.31", "whole version"),
        ("python_version", "3.11", "ZeroGPU"),
    ],
)
def test_a_front_matter_that_makes_no_space_is_told(name, value, said, laid_out):
    card = SpaceCard.load(laid_out.folder / "README.md")
    card.data[name] = value
    with pytest.raises(UserError) as caught:
        check_card(card, laid_out.folder, ZERO)
    assert said in sentences(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("demo", "whose Space"),
        ("me/de--mo", "no name"),
        ("a/b/c", "no name"),
        ("me/demo --hardware abacus", "no hardware 'abacus'"),
        ("me/demo --target README.md", "file or folder of this machine"),
        ("me/demo --target smolm2", "no model called 'smolm2'"),
        ("logs", "which Space"),
        ("delete demo", "whose Space"),
        ("logs a/b/c", "no name"),
    ],
)
def test_what_cannot_be_is_told_before_anybody_is_asked(words, said, server, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["space", *words.split()]) == 1
    assert said in capsys.readouterr().err
    assert not server.asked


def test_an_installed_package_says_that_it_takes_a_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(plan_module, "ROOT", tmp_path)
    with pytest.raises(UserError) as caught:
        make_plan(NAME, "cpu", tmp_path / "out", target="smollm2-135m-instruct")
    assert "checkout" in sentences(caught.value)


def test_a_dry_run_prints_the_whole_plan_and_asks_nobody(server, capsys):
    assert main(["space", NAME, "--private", "--dry-run"]) == 0
    told = capsys.readouterr()
    for part in (
        f"{NAME} (private)",
        ZERO,
        "GRADIO_SSR_MODE=false, SPECDEMO_TARGET=",
        "assets/drafts/",
        "MB",
        "\n    torch\n",
        "sdk: gradio",
        "*.safetensors filter=lfs",
    ):
        assert part in told.out, part
    assert "Nothing was uploaded" in told.err
    assert not server.asked


# On the hub


def test_a_space_is_made_once_and_then_brought_up_to_date(server, plan):
    first, reports = published(plan), []
    space = server.spaces[NAME]
    assert first.address == f"{server.url}/spaces/{NAME}"
    assert (space.sdk, space.hardware, space.private) == ("gradio", ZERO, False)
    assert space.variables == dict(plan.variables)
    assert set(space.files) == set(plan.sizes)
    weights = plan.folder / "a" / "w.npy"
    assert space.files["a/w.npy"].decode() == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert len(server.data) == 1

    server.asked.clear()
    assert published(plan, reports) == first
    assert server.changes() == []
    assert reports == ["The files were up to date."]

    (plan.folder / "app.py").unlink()
    (plan.folder / "new.py").write_text("2")
    third = published(planned(plan.folder))
    assert third.commit != first.commit
    assert "app.py" not in space.files
    assert space.files["new.py"] == b"2"
    assert [line for line in server.changes() if "/commit/" in line] == server.changes()


def test_variables_hardware_and_privacy_of_a_space_follow_the_plan(server, plan):
    published(plan)
    other = planned(plan.folder, "t4-small", private=True, variables={"SPECDEMO_TARGET": "big"})
    published(other)
    space = server.spaces[NAME]
    assert (space.hardware, space.private) == ("t4-small", True)
    assert space.variables == {"GRADIO_SSR_MODE": "false", "SPECDEMO_TARGET": "big"}
    published(planned(plan.folder, "t4-small"))
    assert space.private


@pytest.mark.parametrize(
    ("request_end", "fault", "said"),
    [
        ("whoami-v2", (401, "Invalid credentials"), "refuses the token"),
        ("repos/create", (402, "Subscribe to PRO"), "paid plan: Subscribe to PRO."),
        ("repos/create", (403, "No rights"), "does not allow this: No rights."),
        ("repos/create", (409, "Exists"), "name is taken"),
        ("preupload/main", (403, "Storage limit"), "does not allow this: Storage limit."),
        ("commit/main", (413, "Too large"), "too large"),
        ("commit/main", (429, ""), "too many requests"),
        ("commit/main", (500, ""), "answered 500"),
        ("repos/create", None, "connection to the hub broke"),
        ("commit/main", None, "connection to the hub broke"),
        ("validate-yaml", (400, "bad"), "README.md"),
    ],
)
def test_what_the_hub_refuses_is_three_sentences(request_end, fault, said, server, plan):
    server.faults[request_end] = fault
    with pytest.raises(UserError) as caught:
        published(plan)
    assert said in sentences(caught.value)
    space = server.spaces.get(NAME)
    assert space is None or space.commits == 1


@pytest.mark.parametrize("words", [NAME, f"logs {NAME}", f"delete {NAME}"])
def test_without_a_token_the_way_to_one_is_told_first(words, server, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    assert main(["space", *words.split()]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err.splitlines()[0][:17]) == ("", "There is no token")
    assert "hf auth login" in told.err
    assert not server.asked


def test_a_token_that_may_only_read_is_told_before_anything_is_made(server, plan):
    server.role = "read"
    with pytest.raises(UserError) as caught:
        published(plan)
    assert "only read" in sentences(caught.value)
    assert server.changes() == []


def test_a_space_of_something_else_is_left_alone(server, plan):
    server.spaces[NAME] = Space("gradio", files={"app.py": b"mine"}, commits=2)
    with pytest.raises(UserError) as caught:
        published(plan)
    assert "not one of this program" in sentences(caught.value)
    assert server.changes() == []


@pytest.mark.parametrize("cut", ["commit/main", "POST /cas/v1/xorbs/*"])
def test_an_upload_that_was_cut_goes_on(cut, server, plan):
    server.faults[cut] = None
    with pytest.raises(UserError) as caught:
        published(plan)
    assert "broke" in sentences(caught.value)
    assert "same command again" in caught.value.advice
    assert server.spaces[NAME].commits == 1

    server.faults.clear()
    published(plan)
    assert set(server.spaces[NAME].files) == set(plan.sizes)
    assert len(server.data) == 1  # what had arrived is not sent again
    assert sum("repos/create" in line for line in server.asked) == 1


# Afterwards


def test_waiting_tells_each_stage_until_the_page_is_there(server, plan):
    done, reports = published(plan), []
    server.spaces[NAME].stages = ["BUILDING", "BUILDING", "APP_STARTING", "RUNNING"]
    assert follow(done, connect(), reports.append, poll=0).host == server.url
    assert reports == [f"{NAME}: {stage}" for stage in ("BUILDING", "APP_STARTING", "RUNNING")]


def test_a_build_that_fails_says_where_its_log_is(server, plan):
    done = published(plan)
    server.spaces[NAME].stages = ["BUILDING", "BUILD_ERROR"]
    with pytest.raises(UserError) as caught:
        follow(done, connect(), print, poll=0)
    assert "BUILD_ERROR" in sentences(caught.value)
    assert f"space logs {NAME}" in caught.value.advice


@pytest.mark.parametrize(("stage", "kind"), [("BUILD_ERROR", "build"), ("RUNNING", "run")])
def test_the_log_is_that_of_the_build_until_there_is_a_run(stage, kind, server, capsys):
    server.spaces[NAME] = Space("gradio", stages=[stage], log=("first", "\x1b[2Jlast"))
    assert main(["space", "logs", NAME]) == 0
    assert capsys.readouterr().out == f"{kind}: first\n{kind}: \\x1b[2Jlast\n"


@pytest.mark.parametrize(("typed", "gone"), [(f"{NAME}\n", True), ("demo\n", False), ("", False)])
def test_a_space_is_deleted_only_for_who_types_its_name(typed, gone, server, monkeypatch, capsys):
    server.spaces[NAME] = Space("gradio")
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["space", "delete", NAME]) == (0 if gone else 1)
    assert (NAME not in server.spaces) == gone
    assert (server.changes() == []) != gone
    assert "for good" in capsys.readouterr().err


@pytest.mark.usefixtures("server")
def test_a_space_that_is_not_there_cannot_be_deleted(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(NAME))
    assert main(["space", "delete", NAME]) == 1
    assert "knows no such Space" in capsys.readouterr().err


def test_a_static_space_from_the_command_to_the_first_visit(server, capsys):
    assert main(["space", NAME, "--hardware", "static", "--wait"]) == 0
    space = server.spaces[NAME]
    assert (space.sdk, space.hardware, space.variables) == ("static", None, {})
    assert {"index.html", "plotly.min.js", "view/site/site.js"} <= set(space.files)
    told = capsys.readouterr()
    assert f"{server.url}/spaces/{NAME}" in told.out
    assert f"The site is at {server.url}" in told.err
    assert server.visitors == [None]


def test_a_private_site_is_visited_with_the_token_and_one_of_something_else_is_told(server):
    space = SpaceInfo(id=NAME, host=server.url, sdk="static", private=True)
    visit(space, print)
    assert server.visitors == [f"Bearer {GOOD}"]
    server.page = b"Congratulations on your new Space!"
    with pytest.raises(UserError) as caught:
        visit(space, print)
    assert "not this program's site" in sentences(caught.value)


def test_a_visit_waits_for_the_model_and_has_a_prompt_answered(monkeypatch):
    states, reports = ["loading", "loading", "ready"], []
    monkeypatch.setattr(monitor, "_state", lambda _: states.pop(0))
    with served(answer_tokens=64) as client:
        space = SpaceInfo(id=NAME, host=str(client.base_url), sdk="gradio", private=False)
        visit(space, reports.append, poll=0)
    assert not states
    assert reports[0].partition("answers: ")[2]
