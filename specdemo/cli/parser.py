"""The command line: `commands.toml` lists the commands and their options, `commands/` has the functions that run them."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from specdemo import __version__
from specdemo.cli.options import add_command_options
from specdemo.config.errors import UserError
from specdemo.config.strings import Json

COMMANDS: dict[str, Json] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
)
EARLIER_NAMES = {
    "class-pack": "export class-pack",
    "counterexample": "audit counterexample",
    "datastore": "train datastore",
    "export-draft": "export draft",
    "export-drafter": "export drafter",
    "export-site": "export site",
    "gpu": "bench gpu",
    "pairs": "bench pairs",
    "record": "bench record",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. returns: 0, 1 for an error that was reported, 130 when interrupted"""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    module, _, function = COMMANDS[options.command]["run"].partition(".")
    try:
        run: Callable[[argparse.Namespace], int]
        run = getattr(import_module(f"specdemo.cli.commands.{module}"), function)
        return run(options)
    except UserError as error:
        parts = (error.message, error.unaffected, error.advice)
        print(*filter(None, parts), sep="\n", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of the output has closed it
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line, with the command's name. Exits for --help, --version and wrong words."""
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
    return command_parser(name).parse_args(given, argparse.Namespace(command=name))


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    known = COMMANDS[name]
    summary = known["summary"]
    below = [other for other in COMMANDS if other.startswith(f"{name} ")]
    parser = argparse.ArgumentParser(
        prog=f"specdemo {name}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=_listed("commands below it:", below) if below else None,
        formatter_class=_Formatter,
    )
    add_command_options(parser, known)
    return parser


def _top_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdemo",
        usage="specdemo [--help] [--version] COMMAND ...",
        description="Speculative decoding, visible, provable and fast.",
        epilog=_listed("commands:", [name for name in COMMANDS if " " not in name]),
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="version", version=f"specdemo {__version__}")
    return parser


def _listed(title: str, names: Sequence[str]) -> str:
    width = max(map(len, names)) + 2
    return "\n".join([title, *(f"  {name:<{width}}{COMMANDS[name]['summary']}" for name in names)])


class _Formatter(argparse.HelpFormatter):
    """Wraps the description and leaves the list of commands as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)
