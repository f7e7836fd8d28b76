"""A Space from one command: the hub's real client against a hub on loopback."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.space.stand_in import GOOD, NAME, Hub, Space, refusal
from huggingface_hub import SpaceInfo, constants
from huggingface_hub.utils import _http, _xet
from loopback import serving
from programs import ROOT
from ui.served import served

from specdemo.cli.commands.space import ZERO, SpacePlan, connect, follow, publish, visit
from specdemo.cli.parser import main

README = "---\ntitle: specdemo\nsdk: gradio\ntags:\n- specdemo\n---\n"


@pytest.fixture
def server(monkeypatch, tmp_path):
    """An empty hub and a valid token. The uploader is local to this test and repeats nothing; the
    client's repeated requests follow each other without a pause.
    """
    for name, value in {
        "HF_TOKEN": GOOD,
        "HF_XET_CACHE": str(tmp_path / "xet"),
        "HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "0",
        "HF_XET_TELEMETRY_ENABLED": "0",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_xet, "_GLOBAL_XET_HOLDER", _xet.XetSessionHolder())
    monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    server = Hub()
    with serving(server) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
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
    """Return a plan for the files of a folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    variables = {"GRADIO_SSR_MODE": "false", "SPECDEMO_TARGET": "tiny"}
    given = {"private": False, "variables": variables, **changes}
    return SpacePlan(NAME, hardware, folder=folder, sizes=sizes, **given)


def published(plan: SpacePlan, reports: list[str] | None = None):
    return publish(plan, connect(), (reports if reports is not None else []).append)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("demo", "whose Space"),
        ("me/de--mo", "no name"),
        ("a/b/c", "no name"),
        ("me/demo --hardware abacus", "no hardware 'abacus'"),
        ("me/demo --target README.md", "file or folder of this machine"),
        ("me/demo --target smolm2", "no model called 'smolm2'"),
    ],
)
def test_an_impossible_space_is_refused_without_a_request(words, said, server, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["space", *words.split()]) == 1
    assert said in capsys.readouterr().err
    assert not server.asked


def test_a_dry_run_prints_the_whole_plan_and_sends_no_request(server, capsys):
    assert main(["space", NAME, "--private", "--dry-run"]) == 0
    printed = capsys.readouterr()
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
        assert part in printed.out, part
    assert "Nothing was uploaded" in printed.err
    assert not server.asked


# On the hub


def test_a_space_is_made_once_and_then_brought_up_to_date(server, plan):
    first, reports = published(plan), []
    space = server.spaces[NAME]
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
    assert third != first
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
def test_a_refusal_of_the_hub_is_explained_without_a_commit(request_end, fault, said, server, plan):
    server.faults[request_end] = fault
    assert said in refusal(published, plan).message
    space = server.spaces.get(NAME)
    assert space is None or space.commits == 1


def test_without_a_token_the_command_says_how_to_get_one(server, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    assert main(["space", NAME]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()[0][:17]) == ("", "There is no token")
    assert "hf auth login" in printed.err
    assert not server.asked


def test_a_read_only_token_is_refused_before_anything_is_created(server, plan):
    server.role = "read"
    assert "only read" in refusal(published, plan).message
    assert server.changes() == []


def test_a_space_of_something_else_is_left_alone(server, plan):
    server.spaces[NAME] = Space("gradio", files={"app.py": b"mine"}, commits=2)
    assert "not one of this program" in refusal(published, plan).message
    assert server.changes() == []


@pytest.mark.parametrize("cut", ["commit/main", "POST /cas/v1/xorbs/*"])
def test_an_upload_that_was_cut_goes_on(cut, server, plan):
    server.faults[cut] = None
    error = refusal(published, plan)
    assert "broke" in error.message
    assert "same command again" in error.advice
    assert server.spaces[NAME].commits == 1

    server.faults.clear()
    published(plan)
    assert set(server.spaces[NAME].files) == set(plan.sizes)
    assert len(server.data) == 1  # complete files are not sent again
    assert sum("repos/create" in line for line in server.asked) == 1


# Afterwards


def test_waiting_reports_each_stage_until_the_page_is_up(server, plan):
    done, reports = published(plan), []
    server.spaces[NAME].stages = ["BUILDING", "BUILDING", "APP_STARTING", "RUNNING"]
    assert follow(NAME, done, connect(), reports.append, poll=0).host == server.url
    assert reports == [f"{NAME}: {stage}" for stage in ("BUILDING", "APP_STARTING", "RUNNING")]


def test_a_build_that_fails_says_where_its_log_is(server, plan):
    done = published(plan)
    server.spaces[NAME].stages = ["BUILDING", "BUILD_ERROR"]
    error = refusal(follow, NAME, done, connect(), print, poll=0)
    assert "BUILD_ERROR" in error.message
    assert f"hf spaces logs {NAME}" in error.advice


@pytest.mark.usefixtures("server")
def test_a_space_that_is_not_there_is_not_waited_for():
    error = refusal(follow, NAME, "", connect(), print, poll=0)
    assert "knows no such Space" in error.message


def test_a_static_space_from_the_command_to_the_first_visit(server, capsys):
    assert main(["space", NAME, "--hardware", "static", "--wait"]) == 0
    space = server.spaces[NAME]
    assert (space.sdk, space.hardware, space.variables) == ("static", None, {})
    assert {"index.html", "plotly.min.js", "view/site/site.js"} <= set(space.files)
    printed = capsys.readouterr()
    assert f"{server.url}/spaces/{NAME}" in printed.out
    assert f"The site is at {server.url}" in printed.err
    assert server.visitors == [None]


def test_a_private_site_is_visited_with_the_token_and_a_foreign_page_is_noticed(server):
    space = SpaceInfo(id=NAME, host=server.url, sdk="static", private=True)
    visit(space, print)
    assert server.visitors == [f"Bearer {GOOD}"]
    server.page = b"Congratulations on your new Space!"
    assert "not this program's site" in refusal(visit, space, print).message


def test_a_visit_waits_for_the_model_and_has_a_prompt_answered(monkeypatch):
    states, reports = ["loading", "loading", "ready"], []
    monkeypatch.setattr("specdemo.ui.serving._state", lambda _: states.pop(0))
    with served(answer_tokens=64) as client:
        space = SpaceInfo(id=NAME, host=str(client.base_url), sdk="gradio", private=False)
        visit(space, reports.append, poll=0)
    assert not states
    assert reports[0].partition("answers: ")[2]
