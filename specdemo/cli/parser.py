"""Lists the commands, reads the arguments and runs the command that they name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from specdemo import __version__
from specdemo.cli.commands import (
    app,
    audit,
    bench,
    compare,
    counterexample,
    datastore,
    doctor,
    export,
    export_draft,
    export_site,
    methods,
    models,
    record,
    replay,
    run,
    train,
)
from specdemo.errors import UserError

COMMANDS = {
    "app": app,
    "run": run,
    "compare": compare,
    "bench": bench,
    "audit": audit,
    "counterexample": counterexample,
    "methods": methods,
    "models": models,
    "doctor": doctor,
    "replay": replay,
    "export": export,
    "export-site": export_site,
    "export-draft": export_draft,
    "record": record,
    "datastore": datastore,
    "train": train,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. returns: 0, 1 for an error that was reported, 130 when interrupted"""
    options = build_parser().parse_args(arguments)
    try:
        status: int = COMMANDS[options.command].run(options)
    except UserError as error:
        parts = (error.message, error.unharmed, error.advice)
        print(*filter(None, parts), sep="\n", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    return status


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="specdemo", description="Speculative decoding, visible, provable and fast."
    )
    parser.add_argument("--version", action="version", version=f"specdemo {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        about = f"{command.SUMMARY[0].upper()}{command.SUMMARY[1:]}."
        command.add_arguments(subparsers.add_parser(name, help=command.SUMMARY, description=about))
    return parser
