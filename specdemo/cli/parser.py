"""The command line: `commands.toml` lists the commands and their options, `commands/` has the functions that run them."""

from __future__ import annotations

import argparse
import codecs
import io
import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from specdemo import __version__
from specdemo.cli.interrupts import INTERRUPTED
from specdemo.cli.options import add_command_options, check_needs
from specdemo.config.errors import UserError, system_error
from specdemo.config.strings import Json

COMMANDS: dict[str, Json] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
)
# Titles of the lists in the help, by `group` in `commands.toml`.
HELP_LISTS = {"": "commands:", "servers": "commands for servers of other programs:"}
EARLIER_NAMES = {
    "class-pack": "export class-pack",
    "counterexample": "audit counterexample",
    "datastore": "train datastore",
    "export-draft": "export draft",
    "export-drafter": "export drafter",
    "export-site": "export site",
    "gpu": "bench gpu",
    "pairs": "bench pairs",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. returns: 0, 1 for an error that was reported, 130 when interrupted"""
    _accept_every_character()
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        command = COMMANDS[options.command]
        foreign = "run_server" in command and options.url
        module, _, function = command["run_server" if foreign else "run"].partition(".")
        run: Callable[[argparse.Namespace], int]
        run = getattr(import_module(f"specdemo.cli.commands.{module}"), function)
        return run(options)
    except UserError as error:
        return _report(error)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers"):
            raise
        # An installation for recorded runs, see requirements-replay.txt, has neither of them.
        return _report(UserError("engine.no_library", names=error.name))
    except BrokenPipeError:  # the reader of the output has closed it
        sys.stderr.close()
        return 0
    except OSError as error:
        return _report(system_error(error))
    except KeyboardInterrupt:
        return INTERRUPTED


def _report(error: UserError) -> int:
    print(*error.sentences, sep="\n", file=sys.stderr)
    return 1


def _accept_every_character() -> None:
    """Write characters that the output's encoding lacks as escapes of JSON, which are valid inside of JSON too."""
    codecs.register_error("specdemo", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="specdemo")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line, with the command's name. Exits for --help, --version and wrong words.

    Raises UserError for paths and combinations that are refused.
    """
    words = list(words)
    if words and (now := EARLIER_NAMES.get(words[0])):
        print(f"`{words[0]}` is an earlier name of `{now}`.", file=sys.stderr)
        words[:1] = now.split()
    name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), "")
    if not name:
        top = _top_parser()
        top.parse_args(words[:1] if words and words[0].startswith("-") else [])
        top.error(f"there is no command {words[0]!r}" if words else "a command is needed")
    given = words[len(name.split()) :]
    method = ""
    if {"--help", "-h"} & set(given):  # for one method, if it is named
        method = next((after for word, after in pairwise(given) if word == "--method"), "")
    parser = command_parser(name, method)
    options = parser.parse_args(given, argparse.Namespace(command=name))
    check_needs(parser, COMMANDS[name], options)
    return options


def command_parser(name: str, method: str = "") -> argparse.ArgumentParser:
    """Return the parser of one command. method: see `add_command_options`"""
    known = COMMANDS[name]
    summary = known["summary"]
    below = [other for other in COMMANDS if other.startswith(f"{name} ")]
    parser = argparse.ArgumentParser(
        prog=f"specdemo {name}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=_listed("commands below it:", below) if below else None,
        formatter_class=_Formatter,
    )
    add_command_options(parser, known, method)
    return parser


def _top_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdemo",
        usage="specdemo [--help] [--version] COMMAND ...",
        description="Speculative decoding, visible, provable and fast.",
        epilog="\n\n".join(
            _listed(title, [name for name in COMMANDS if " " not in name and _group(name) == group])
            for group, title in HELP_LISTS.items()
        ),
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="version", version=f"specdemo {__version__}")
    return parser


def _group(name: str) -> str:
    return str(COMMANDS[name].get("group", ""))


def _listed(title: str, names: Sequence[str]) -> str:
    width = max(map(len, names)) + 2
    return "\n".join([title, *(f"  {name:<{width}}{COMMANDS[name]['summary']}" for name in names)])


class _Formatter(argparse.HelpFormatter):
    """Wraps the description and leaves the list of commands as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)
