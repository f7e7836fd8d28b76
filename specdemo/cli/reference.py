"""The reference of commands, options and variables, made from the parser and the tables of settings."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from specdemo.config.settings import AppSettings, RunSettings, Setting, fields
from specdemo.drafters.methods import METHODS

_SHARED = {setting.name for table in (RunSettings, AppSettings) for setting in fields(table)}


def commands_reference(parser: argparse.ArgumentParser) -> str:
    """A section for each command: its summary and the options that are its own."""
    return "\n\n".join(
        block
        for name, (command, summary) in _subcommands(parser).items()
        for block in _command(name, command, summary)
    )


def settings_reference() -> str:
    """A table of the settings of a run and one of the program's, with flags and variables."""
    return "\n\n".join(
        [
            "### Settings of a run",
            _table(
                ["option", "in links", "range", "default", "meaning", "read by"],
                map(_run_row, fields(RunSettings)),
            ),
            "### Settings of the program",
            _table(
                ["variable", "option", "default", "meaning"], map(_app_row, fields(AppSettings))
            ),
        ]
    )


def _subcommands(
    parser: argparse.ArgumentParser,
) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return {
                name: (command, helps.get(name, "")) for name, command in action.choices.items()
            }
    return {}


def _command(name: str, parser: argparse.ArgumentParser, summary: str) -> Iterator[str]:
    yield f"### `{name}`"
    shared = any(action.dest in _SHARED for action in parser._actions)
    yield _sentence(summary) + (" Also takes settings from the tables below." if shared else "")
    kinds = _subcommands(parser)
    if kinds:
        rows = ([f"`{name} {kind}`", _sentence(about)] for kind, (_, about) in kinds.items())
        yield _table(["command", "meaning"], rows)
        parser = next(iter(kinds.values()))[0]
        yield f"Options of `{name} {next(iter(kinds))}`; `--help` lists those of the others:"
    own = [
        action
        for action in parser._actions
        if action.dest not in _SHARED
        and action.help != argparse.SUPPRESS
        and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    if own:
        yield _table(["argument", "meaning"], ([_argument(one), _help(one)] for one in own))


def _argument(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    value = ""
    if action.nargs != 0:
        value = f" {action.metavar or action.dest.upper()}"
    return f"`{action.option_strings[0]}{value}`"


def _help(action: argparse.Action) -> str:
    return _cell(_sentence((action.help or "").replace("%%", "%")))


def _run_row(setting: Setting) -> list[str]:
    flag = f"`{setting.flag}`" if setting.flag else f"none (`{setting.name}`)"
    link = f"`{setting.link}`" if setting.link else "-"
    meaning = _cell(_sentence(setting.help))
    return [flag, link, str(setting.range), _default(setting), meaning, _readers(setting.name)]


def _readers(name: str) -> str:
    """The methods that read a setting, the shorter way round."""
    drafting = {key: method for key, method in METHODS.items() if method.options}
    readers = [key for key, method in drafting.items() if name in method.options]
    others = [key for key in drafting if key not in readers]
    if not readers:
        return "every run"
    if len(readers) <= len(others):
        return ", ".join(f"`{key}`" for key in readers)
    rest = ", ".join(f"`{key}`" for key in others)
    return f"all that draft but {rest}" if others else "all that draft"


def _app_row(setting: Setting) -> list[str]:
    flag = f"`{setting.flag}`" if setting.flag else "-"
    choices = f": {', '.join(setting.choices)}" if setting.choices else ""
    meaning = _cell(_sentence(setting.help + choices))
    return [f"`{setting.variable}`", flag, _default(setting), meaning]


def _default(setting: Setting) -> str:
    if setting.public is None:
        return _value(setting.default)
    return f"{_value(setting.default)}, public {_value(setting.public)}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, Path) and value.is_relative_to(Path.home()):
        value = Path("~") / value.relative_to(Path.home())
    if value == "":
        return "none"
    return f"`{value.as_posix() if isinstance(value, Path) else value}`"


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:].rstrip('.')}." if clause else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(heads: list[str], rows: Iterator[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
