"""The Dockerfile: the files that it copies exist, hadolint finds nothing, and the commands that it runs exist. No image is built."""

import ast
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from programs import ROOT, run

from specdemo.cli.parser import parse
from specdemo.config.settings import AppSettings, fields

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str]]:
    """Return (name, arguments) of each instruction, with continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", TEXT, flags=re.M))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def all_of(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def environment() -> dict[str, str]:
    words = [word for line in all_of("ENV") for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words)


def test_the_base_image_has_a_tag_whose_python_the_project_takes() -> None:
    (base,) = all_of("FROM")
    assert base == "python:${PYTHON_VERSION}-slim-bookworm"
    version = next(rest for rest in all_of("ARG") if rest.startswith("PYTHON_VERSION="))
    assert version.partition("=")[2] in ("3.11", "3.12", "3.13")


def test_each_copied_path_exists_and_reaches_the_builder() -> None:
    let_in = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = {word for line in all_of("COPY") for word in line.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    assert not {name for name in copied if name.startswith("tests")}


def test_requirements_are_installed_before_the_code_and_nothing_is_left_behind() -> None:
    names = [(name, rest) for name, rest in instructions() if name in ("COPY", "RUN")]
    install = next(i for i, (_, rest) in enumerate(names) if "pip install" in rest)
    code = next(i for i, (_, rest) in enumerate(names) if "specdemo ./specdemo" in rest)
    assert install < code
    assert environment()["PIP_NO_CACHE_DIR"] == "1"
    assert not re.search(r"\bADD\b|\bsudo\b|apt-get|:latest|\|", "\n".join(all_of("RUN")))
    assert not all_of("ADD")
    assert not all_of("MAINTAINER")


def test_the_container_runs_as_a_user_who_may_write_only_to_the_volume() -> None:
    names = [name for name, _ in instructions()]
    (user,) = all_of("USER")
    assert int(user) > 0  # a number: an orchestrator sees that it is not root
    assert f"--uid {user} " in next(rest for rest in all_of("RUN") if "useradd" in rest)
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "RUN" not in names[names.index("USER") :]
    (volume,) = all_of("VOLUME")
    written = ("HOME", "SPECDEMO_CACHE", "HF_HOME", "NUMBA_CACHE_DIR")
    assert all(Path(environment()[name]).is_relative_to(volume) for name in written)


def test_the_container_serves_a_page_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = all_of("ENTRYPOINT")
    python, script, *options = json.loads(entry)
    assert (python, script) == ("python", "app.py")
    parse(["app", *options])
    known = {setting.variable for setting in fields(AppSettings)}
    ours = {name: value for name, value in environment().items() if name.startswith("SPECDEMO_")}
    assert ours.keys() <= known
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    settings = AppSettings.from_environment()
    assert settings.public
    assert all_of("EXPOSE") == [str(settings.port)]


def test_hadolint_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.is_file():
        pytest.skip("no hadolint for this platform")
    assert run(linter, ROOT / "Dockerfile") == ""


def test_the_health_check_uses_the_path_of_the_page() -> None:
    from specdemo.session.studio import Studio
    from specdemo.ui.serving import monitor_routes

    (check,) = all_of("HEALTHCHECK")
    options, command = check.split("CMD ")
    assert {"--interval", "--timeout", "--start-period"} <= {
        one.split("=")[0] for one in options.split()
    }
    python, flag, code = json.loads(command)
    assert (python, flag) == ("python", "-c")
    ast.parse(code)
    (path,) = re.findall(r"\}(/\w+)'", code)
    assert path in [route.path for route in monitor_routes(Studio(AppSettings(replay=True)))]
