"""Show the speculative decoding of another program's server."""

from __future__ import annotations

import argparse
import os
import threading
from contextlib import closing, suppress

from specdemo.attach.client import KEY_VARIABLE
from specdemo.attach.events import with_log
from specdemo.attach.pasted import counters, read_file
from specdemo.attach.records import markdown
from specdemo.cli import console
from specdemo.cli.interrupts import keep_results
from specdemo.cli.options import run_settings
from specdemo.cli.show import TokenPrinter, show_metrics
from specdemo.config.errors import UserError
from specdemo.trace.codec import dumps, encode
from specdemo.trace.events import SPECULATIVE, Event, Trace


def run(options: argparse.Namespace) -> int:
    """Answer a prompt by a server and show what became of its drafts. returns: 1 if the answer broke off"""
    from specdemo.attach.servers import attach
    from specdemo.session.remote.attached import answer

    key = options.key or os.environ.get(KEY_VARIABLE, "")
    server = attach(options.url, key)
    plain = attach(options.plain, key) if options.plain else None
    request = {
        "messages": [],
        "prompt": options.prompt,
        "system": options.system,
        "settings": run_settings(options).to_dict(),
    }
    events: list[Event] = []
    printer, broken, cancel = TokenPrinter(), None, threading.Event()
    try:
        with keep_results() as kept, closing(answer(server, plain, request, cancel)) as running:
            for event in running:
                events.append(event)
                if options.json:
                    console.write(encode(event))
                elif event.lane == SPECULATIVE:
                    printer.show(event)
    except UserError as error:
        broken = error
    finally:
        if options.log:
            records = read_file(options.log).records
            events = with_log(events, [one.generation for one in records if one.generation])
        if options.save and events:
            options.save.write_text(dumps(events), encoding="utf-8")
    if not options.json and events:
        console.out.print()
        show_metrics(Trace(tuple(events)), "measured by the server")
        with suppress(UserError):  # the answer is complete without its metrics
            if totals := counters(server.client.get("/metrics").text):
                console.write(markdown([totals]))
    if broken:
        raise broken
    return kept.status
