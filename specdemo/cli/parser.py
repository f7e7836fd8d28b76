"""Lists the commands, reads the arguments and runs the command that they name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from specdemo import __version__
from specdemo.config.errors import UserError

COMMANDS = {
    "app": "serve the page, where runs can be watched, compared and explored",
    "run": "answer a prompt and show by colour what became of each drafted token",
    "compare": "compare methods with plain decoding on one prompt, as a table",
    "bench": "measure methods on a suite of prompts, against plain decoding and other programs",
    "pairs": "measure auto beside single methods on several pairs, and what the best choice would give",
    "audit": "prove on this machine that methods do not change what the target says",
    "gpu": "measure a graphics card within minutes: what a pass costs by its rows, whether words stay the same, speed and memory",
    "counterexample": "show with two words why a drafter may stop early but must not drop tokens that it has drawn",
    "methods": "list every drafting method and what it needs",
    "models": "list the catalogue of models: memory, licence and what each suits",
    "doctor": "report what this machine can do, with advice on what is missing",
    "replay": "show a saved trace; needs no model and no torch",
    "export": "write a saved trace as a table or as one HTML file that plays it; needs no torch",
    "export-site": "write recorded runs, lab and lessons as static files for any web server",
    "class-pack": "write what a teacher takes home: worksheets, answers, questions for an LMS, figures, SCORM",
    "export-draft": "write a compact draft model as an ordinary transformers model",
    "export-drafter": "write a drafter that `train` made in a published layout, for other engines",
    "record": "record the runs that the page plays, as listed in assets/runs/index.json",
    "datastore": "build a datastore for `retrieval` from text files, saved runs or the target's own answers",
    "train": "train a drafter for a target",
    "space": "make a Hugging Face Space of this program, or bring it up to date",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. returns: 0, 1 for an error that was reported, 130 when interrupted"""
    words = sys.argv[1:] if arguments is None else list(arguments)
    words = (
        words[1:] if words[:2] == ["bench", "gpu"] else words
    )  # the same command by another name
    named = next((word for word in words if word in COMMANDS), "")
    options = build_parser(named).parse_args(words)
    try:
        status: int = module(named).run(options)
    except UserError as error:
        parts = (error.message, error.unaffected, error.advice)
        print(*filter(None, parts), sep="\n", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    return status


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """All commands and their options. only: the one whose options are wanted; each costs the import of its file"""
    parser = argparse.ArgumentParser(
        prog="specdemo", description="Speculative decoding, visible, provable and fast."
    )
    parser.add_argument("--version", action="version", version=f"specdemo {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        about = f"{summary[0].upper()}{summary[1:]}."
        command = subparsers.add_parser(name, help=summary, description=about)
        if only is None or name == only:
            module(name).add_arguments(command)
    return parser


def module(name: str) -> ModuleType:
    """The file of a command."""
    return import_module(f"specdemo.cli.commands.{name.replace('-', '_')}")
