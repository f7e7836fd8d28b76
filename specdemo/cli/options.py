"""Options of the command line, from `commands.toml` and the tables of settings, and the settings that they mean."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.config.settings import (
    OWN,
    PRESET_NAMES,
    REPLACED,
    AppSettings,
    RunSettings,
    Setting,
    field,
    fields,
    replacement,
)
from specdemo.config.strings import ASSETS, ENGLISH, Json, JsonView, languages, load
from specdemo.files.folder import trained_facts

if TYPE_CHECKING:
    from specdemo.drafters.base import Method

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
MOST_CONVERSATIONS = 256  # largest number of --concurrent
LONGEST_RANGE = 1_000_000  # upper end, above which a range is not shown


def add_command_options(
    parser: argparse.ArgumentParser, command: JsonView, method: str = ""
) -> None:
    """Add the options of a command, as `commands.toml` describes it.

    method: only settings and policies that it honours are shown in the help
    """
    for option in command_options(command):
        _add_option(parser, option)
    if (wanted := command.get("run_settings")) is not None:
        _add_option(parser, SYSTEM)
        without = wanted.get("without", ())
        usual = {name: value for name, value in wanted.items() if name != "without"}
        add_settings(parser, RunSettings, without=without, usual=usual, method=method)
        parser.set_defaults(usual=usual)
    if (wanted := command.get("app_settings")) is not None:
        add_settings(parser, AppSettings, **wanted)


def command_options(command: JsonView) -> list[JsonView]:
    """Return the command's own options, without those of the tables of settings."""
    return [*command.get("options", ()), *(SUITE if "suite" in command else ())]


def _add_option(parser: argparse.ArgumentParser, option: JsonView) -> None:
    """Add one option; its help ends with its default. Earlier names are accepted and not shown."""
    known = {
        key: option[key]
        for key in option.keys() - {"names", "help", "earlier", "needs", "type", "range"}
    }
    if "type" in option:
        known["type"] = TYPES[option["type"]]
        if "range" in option:
            known["type"] = partial(_number, known["type"], option["range"])
    elif option["names"].startswith("--") and not known.keys() & {"metavar", "choices"}:
        known["action"] = "store_true"
    about, default = option["help"], known.get("default")
    if isinstance(known.get("choices"), str):
        known["choices"] = choices = CHOICES[known["choices"]]()
        about = "; ".join(
            [about, *(f"{name}: {choices[name]}" for name in choices if choices[name])]
        )
    if default not in (None, "", []):
        about = f"{about} (default: {_plain(default)})"
    added = parser.add_argument(option["names"], help=about.replace("%", "%%"), **known)
    if earlier := option.get("earlier"):
        hidden = {**known, "default": argparse.SUPPRESS, "dest": added.dest, "required": False}
        parser.add_argument(*earlier, help=argparse.SUPPRESS, **hidden)


def check_needs(
    parser: argparse.ArgumentParser, command: JsonView, given: argparse.Namespace
) -> None:
    """Raise UserError for an option that does nothing without another one, which is missing."""
    for option in command_options(command):
        if not (needed := option.get("needs")) or getattr(given, _dest(needed)):
            continue
        name = _dest(option["names"])
        if getattr(given, name) != parser.get_default(name):
            raise UserError("cli.option_alone", option=option["names"], needed=needed)


def _dest(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def _number(kind: Callable[[str], float], limits: Sequence[float], text: str) -> float:
    low, high = limits
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if low <= value <= high:  # NaN is outside
        return value
    wanted = "a whole number" if kind is int else "a number"
    raise argparse.ArgumentTypeError(f"{wanted} from {low:,} to {high:,} is expected, not {text!r}")


def counts(text: str) -> tuple[int, ...]:
    """Return whole numbers that are separated by commas."""
    numbers = (int(_number(int, (0, MOST_CONVERSATIONS), part)) for part in text.split(","))
    return tuple(number for number in numbers if number)


def prompt(text: str) -> str:
    """Return a prompt that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the prompt is empty")
    return text


def suite(text: str) -> Path:
    """Return the file of a bundled suite by its name, or of any other by its path."""
    bundled = ASSETS / "suites" / f"{text}.jsonl"
    return bundled if bundled.is_file() else _path(_check_input, text)


def _path(check: Callable[[Path], None], text: str) -> Path:
    """Return a path that was checked. check: raises UserError"""
    path = Path(text)
    check(path)
    return path


# Choices that other modules define, with an explanation each.
CHOICES: dict[str, Callable[[], dict[str, str]]] = {
    "languages": lambda: dict.fromkeys([ENGLISH, *languages()], ""),
    "trained": lambda: load("page")["VIEW"]["card"]["kinds"],
}
SUITE = (
    {"names": "--suite", "type": "suite", "metavar": "FILE", "help": "prompts as JSON lines, or `examples` for bundled prompts of the page's twelve kinds, six a kind; by default the page's own twelve"},
    {"names": "--limit", "type": "int", "range": [1, 1_000_000], "metavar": "N", "help": "prompts of each task, at most; all by default"},
)  # fmt: skip
SYSTEM = {
    "names": "--system",
    "default": "",
    "metavar": "TEXT",
    "help": "system prompt; none by default",
}


def add_settings(
    parser: argparse.ArgumentParser,
    settings: type,
    *,
    without: Sequence[str] = (),
    groups: Sequence[str] = tuple(TITLES),
    usual: JsonView = MappingProxyType({}),
    method: str = "",
) -> None:
    """Add the flags of a table of settings.

    without: settings that the command has no option for; usual: the command's own defaults, named in the help
    method: see `add_command_options`
    """
    titled: dict[str, argparse._ArgumentGroup] = {}
    for setting in fields(settings):
        if setting.flag and setting.group in groups and setting.name not in without:
            group = titled.get(setting.group) or parser.add_argument_group(TITLES[setting.group])
            titled[setting.group] = group
            default = usual.get(setting.name, setting.default)
            _add_setting(group, _honoured(replace(setting, default=default), method))


def _honoured(setting: Setting, method: str) -> Setting:
    """Return a setting as one method honours it: with its policies, and without help if the method does not read it."""
    from specdemo.drafters.methods import METHODS

    known = METHODS.get(method)
    if known is None or setting.name in ("method", "baseline") or setting.group != "drafting":
        return setting
    if setting.name not in known.options:
        return replace(setting, help="")
    return replace(setting, choices=known.policies) if setting.name == "policy" else setting


def _add_setting(group: argparse._ArgumentGroup, setting: Setting) -> None:
    known: Json = {"dest": setting.name}
    if setting.kind is bool:
        known |= {"action": argparse.BooleanOptionalAction}
    else:
        earlier = [value for name, value in REPLACED if name == setting.name]
        known |= {"type": setting.kind}
        known |= {"choices": [*setting.choices, *earlier]} if setting.choices else {}
        known |= {"metavar": {int: "N", float: "X"}.get(setting.kind, setting.name.upper())}
    about = _help(setting).replace("%", "%%") if setting.help else argparse.SUPPRESS
    # The help shows the default; `run_settings` and `AppSettings.from_environment` set it.
    group.add_argument(setting.flag, help=about, default=None, **known)


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
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default:g}" if isinstance(default, float) else str(default)


def app_settings(options: argparse.Namespace) -> AppSettings:
    """Return settings of the program from options, else environment, else defaults. Raises UserError."""
    return AppSettings.from_environment(**given_values(options, fields(AppSettings)))


def run_settings(options: argparse.Namespace, method: str | None = None) -> RunSettings:
    """Return the settings of a run. method: replaces the option. Raises UserError."""
    given = given_values(options, fields())
    if method is not None:
        given["method"] = method
    for name, value in given.items():
        if new := replacement(name, value):
            now = ", ".join(f"{key} {text}" for key, text in new.items())
            print(f"{value} is now {now}.", file=sys.stderr)
    named = [field(name).flag for name in PRESET_NAMES if name in given]
    for name, value in getattr(options, "usual", {}).items():
        if not (named and name == "preset"):
            given.setdefault(name, value)
    if named and given.get("preset", OWN) != OWN:
        raise UserError("cli.sampling_conflict", preset=given["preset"], names=", ".join(named))
    settings = RunSettings.from_values(given)
    check_method(settings.method)
    if method is None and "policy" in given:
        _check_policy(settings)
    return settings


def policies_of(method: Method, option: str) -> str:
    """Return the policies that a method implements in brackets, if the option is `policy`."""
    return f" ({', '.join(method.policies)})" if option == "policy" else ""


def check_method(name: str) -> Method:
    """Return the method of this name. Raises UserError if there is none."""
    # The list takes a fifth of a second to load, which commands without methods do not have to wait for.
    from specdemo.drafters.methods import METHODS

    if name not in METHODS:
        raise UserError("method.unknown", method=name, names=", ".join(METHODS))
    return METHODS[name]


def _check_policy(settings: RunSettings) -> None:
    """Raise UserError if the method does not implement the policy that was named for it."""
    method = check_method(settings.method)
    if method.honoured(settings) != settings:
        raise UserError(
            "policy.not_offered",
            method=method.title,
            policy=settings.policy,
            names=", ".join(method.policies),
        )


def given_values(options: argparse.Namespace, rows: Iterable[Setting | Field[Any]]) -> Json:
    """Return the values of the options with the names of these rows, which are settings or fields of a dataclass; None is left out."""
    named = {row.name: getattr(options, row.name, None) for row in rows}
    return {name: value for name, value in named.items() if value is not None}


def lane_settings(options: argparse.Namespace, lane: str) -> RunSettings:
    """Return the settings of METHOD[:POLICY[:LOOKAHEAD[:VERIFICATION]]]; missing parts come from the options."""
    method, _, rest = lane.partition(":")
    policy, _, rest = rest.partition(":")
    lookahead, _, verification = rest.partition(":")
    settings = run_settings(options, method)
    if lookahead and not lookahead.isdigit():
        raise UserError("cli.lane_format", lane=lane)
    settings = replace(
        settings,
        policy=policy or settings.policy,
        lookahead=int(lookahead) if lookahead else settings.lookahead,
        verification=verification or settings.verification,
    ).checked()
    if policy:
        _check_policy(settings)
    return settings


def _check_input(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise UserError("cli.input_unread", path=path, error=error.strerror) from error


def _check_input_folder(path: Path) -> None:
    if not path.is_dir():
        raise UserError("cli.input_folder_missing", path=path)


def check_output(path: Path) -> None:
    """Raise UserError for a file that cannot be written; a new one is not left behind."""
    if path.is_dir():
        raise UserError("cli.path_is_folder", path=path)
    if not path.absolute().parent.is_dir():
        raise UserError("cli.folder_missing", path=path)
    known = path.exists()
    if known and not path.is_file():  # a device or a pipe
        return
    try:
        path.open("ab").close()
        if not known:
            path.unlink()
    except OSError as error:
        raise UserError("cli.output_refused", path=path, error=error.strerror) from error


def _check_output_folder(path: Path) -> None:
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    try:
        TemporaryFile(dir=there).close()
    except OSError as error:
        raise UserError("cli.output_refused", path=path, error=error.strerror) from error


def _check_empty_folder(path: Path) -> None:
    _check_output_folder(path)
    if path.is_dir() and any(path.iterdir()):
        raise UserError("cli.folder_in_use", folder=path)


def _check_drafter_folder(path: Path) -> None:
    """Raise UserError for a folder with other files than those of an earlier drafter, for example those of a model."""
    if trained_facts(path):
        _check_output_folder(path)
    else:
        _check_empty_folder(path)


# Types of options. A wrong path is a UserError, before a model is loaded.
TYPES: dict[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "counts": counts,
    "prompt": prompt,
    "suite": suite,
    "path": Path,
    "input": partial(_path, _check_input),
    "input folder": partial(_path, _check_input_folder),
    "output": partial(_path, check_output),
    "output folder": partial(_path, _check_output_folder),
    "empty folder": partial(_path, _check_empty_folder),
    "drafter folder": partial(_path, _check_drafter_folder),
}
