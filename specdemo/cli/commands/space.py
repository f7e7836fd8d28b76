"""Create or update a Hugging Face Space of this program, show its log, or delete it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from specdemo.cli import console
from specdemo.cli.options import app_settings
from specdemo.config.errors import UserError

ACTIONS = ("logs", "delete")


def run(options: argparse.Namespace) -> int:
    """returns: 0; failures are raised as UserError"""
    from specdemo.cli.space import check_name

    if not options.action and options.name in ACTIONS:
        raise UserError("cli.space_unnamed", command=options.name)
    check_name(options.name)
    if options.action == "logs":
        _logs(options.name)
    elif options.action == "delete":
        _delete(options.name)
    else:
        _publish(options)
    return 0


def _publish(options: argparse.Namespace) -> None:
    from specdemo.cli.space import connect, describe, follow, make_plan, publish, visit

    api = None if options.dry_run else connect()  # without a token there is no need to plan
    with TemporaryDirectory(prefix="specdemo-space-") as folder:
        plan = make_plan(
            options.name,
            options.hardware,
            Path(folder),
            target=app_settings(options).target,
            private=options.private,
        )
        console.write(describe(plan))
        if api is None:
            console.note(
                "Nothing was uploaded. Whether the hub takes name and token was not asked."
            )
            return
        published = publish(plan, api, console.note)
    console.write(published.address)
    if options.wait:
        visit(follow(published, api, console.note), console.note)


def _logs(name: str) -> None:
    from specdemo.cli.space import connect, log_lines

    for line in log_lines(name, connect()):
        console.write(console.printable(line.rstrip("\n")))


def _delete(name: str) -> None:
    from specdemo.cli.space import connect, delete

    api = connect()
    console.note(
        f"This deletes the Space {name} with its history for good. Type its name to go on:"
    )
    if sys.stdin.readline().strip() != name:
        raise UserError("cli.space_name_differs")
    delete(name, api)
    console.note(f"{name} is deleted.")
