"""Options that several commands share, made from the tables of settings; and the settings that options mean."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specdemo.config.errors import UserError
from specdemo.config.settings import (
    DRAWN,
    OWN,
    AppSettings,
    RunSettings,
    Setting,
    field,
    fields,
)

TITLES = {
    "drafting": "drafting",
    "sampling": "sampling",
    "answer": "the answer",
    "model": "the models",
    "files": "files",
    "page": "the page",
    "visitors": "what visitors may do",
    "cluster": "the cluster",
}
LONGEST_RANGE = 1_000_000  # a range that ends beyond says nothing to a reader


def add_option(
    parser: argparse._ActionsContainer,
    *names: str,
    about: str,
    earlier: tuple[str, ...] = (),
    **known: Any,
) -> None:
    """An option whose help names its default. earlier: names that it had, still taken and not shown"""
    default = known.get("default")
    if default not in (None, "", []) and default is not False:
        about = f"{about} (default: {_plain(default)})"
    added = parser.add_argument(*names, help=about.replace("%", "%%"), **known)
    if earlier:
        hidden = {**known, "default": argparse.SUPPRESS, "dest": added.dest, "required": False}
        parser.add_argument(*earlier, help=argparse.SUPPRESS, **hidden)


def add_settings(
    parser: argparse.ArgumentParser,
    settings: type,
    *,
    without: tuple[str, ...] = (),
    groups: tuple[str, ...] = tuple(TITLES),
    defaults: Mapping[str, object] | None = None,
) -> None:
    """The flags of a table of settings.

    without: names that the command asks for in a way of its own; defaults: the command's own, by name, for the help
    """
    titled: dict[str, argparse._ArgumentGroup] = {}
    for setting in fields(settings):
        if setting.flag and setting.group in groups and setting.name not in without:
            group = titled.get(setting.group) or parser.add_argument_group(TITLES[setting.group])
            titled[setting.group] = group
            default = (defaults or {}).get(setting.name, setting.default)
            _add_setting(group, replace(setting, default=default))


def _add_setting(group: argparse._ArgumentGroup, setting: Setting) -> None:
    known: dict[str, Any] = {"dest": setting.name}
    if setting.kind is bool:
        known |= {"action": argparse.BooleanOptionalAction}
    else:
        known |= {"type": setting.kind, "choices": setting.choices or None}
        known |= {"metavar": {int: "N", float: "X"}.get(setting.kind, setting.name.upper())}
    # The default is told here and set by `run_settings` and `AppSettings.from_environment`.
    group.add_argument(setting.flag, help=_help(setting).replace("%", "%%"), default=None, **known)
    if setting.aliases:
        known["default"] = argparse.SUPPRESS
        group.add_argument(*setting.aliases, help=argparse.SUPPRESS, **known)


def _help(setting: Setting) -> str:
    facts = [f"default: {_plain(setting.default)}"]
    if setting.public is not None:
        facts.append(f"on a public page: {_plain(setting.public)}")
    if setting.low is not None and setting.high is not None and setting.high < LONGEST_RANGE:
        facts.insert(0, f"{setting.low:g} to {setting.high:g}")
    if setting.variable:
        facts.append(f"variable: {setting.variable}")
    choices = f": {', '.join(setting.choices)}" if setting.choices else ""
    return f"{setting.help}{choices} ({', '.join(facts)})"


def _plain(default: object) -> str:
    """A default as a reader says it."""
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default:g}" if isinstance(default, float) else str(default)


def add_models(parser: argparse.ArgumentParser) -> None:
    """Which models a command loads, and how."""
    add_settings(parser, AppSettings, groups=("model",))


def add_suite(parser: argparse.ArgumentParser) -> None:
    """The prompts that a command measures."""
    add_option(
        parser,
        "--suite",
        type=Path,
        metavar="FILE",
        about="prompts as JSON lines; the bundled examples by default",
    )
    add_option(
        parser,
        "--limit",
        type=int,
        metavar="N",
        about="prompts of each task, at most; all by default",
    )


def add_run_settings(
    parser: argparse.ArgumentParser, *, without: tuple[str, ...] = (), preset: str = OWN
) -> None:
    """The settings of a run, and the system prompt. preset: of sampling, where no value of it is named"""
    add_option(
        parser, "--system", default="", metavar="TEXT", about="system prompt; none by default"
    )
    add_settings(parser, RunSettings, without=without, defaults={"preset": preset})
    parser.set_defaults(usual_preset=preset)


def app_settings(options: argparse.Namespace) -> AppSettings:
    """Settings of the program from options, then environment, then defaults. Raises UserError."""
    return AppSettings.from_environment(**_given(options, AppSettings))


def run_settings(options: argparse.Namespace, method: str | None = None) -> RunSettings:
    """Settings of a run from options. method: in place of what the options say. Raises UserError."""
    given = _given(options, RunSettings)
    if method is not None:
        given["method"] = method
    named = [field(name).flag for name in DRAWN if name in given]
    if not named:
        given.setdefault("preset", getattr(options, "usual_preset", OWN))
    if named and given.get("preset", OWN) != OWN:
        raise UserError("cli.sampling_conflict", preset=given["preset"], names=", ".join(named))
    return RunSettings.from_values(given)


def _given(options: argparse.Namespace, settings: type) -> dict[str, Any]:
    named = {setting.name: getattr(options, setting.name, None) for setting in fields(settings)}
    return {name: value for name, value in named.items() if value is not None}


def lane_settings(options: argparse.Namespace, lane: str) -> RunSettings:
    """Settings of a lane written METHOD[:POLICY[:LOOKAHEAD[:VERIFICATION]]]; what it leaves out comes from the options."""
    method, _, rest = lane.partition(":")
    policy, _, rest = rest.partition(":")
    lookahead, _, verification = rest.partition(":")
    settings = run_settings(options, method)
    if lookahead and not lookahead.isdigit():
        raise UserError("cli.lane_format", lane=lane)
    return replace(
        settings,
        policy=policy or settings.policy,
        lookahead=int(lookahead) if lookahead else settings.lookahead,
        verification=verification or settings.verification,
    ).checked()


def check_folders(*files: Path | None) -> None:
    """Raises UserError for a file to be written that is a folder, or into a folder that is not there."""
    for path in filter(None, files):
        if path.is_dir():
            raise UserError("cli.path_is_folder", path=path)
        if not path.absolute().parent.is_dir():
            raise UserError("cli.folder_missing", path=path)
