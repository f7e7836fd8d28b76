"""Show a run on the console: its tokens coloured by status, and its figures in sentences."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence

from rich.text import Text

from specdemo.cli import console
from specdemo.cli.interrupts import keep_results
from specdemo.config.errors import UserError, system_error
from specdemo.config.strings import ASSETS, load
from specdemo.files.store import write_file
from specdemo.trace.codec import dumps, encode
from specdemo.trace.events import (
    PLAIN,
    SPECULATIVE,
    Event,
    FinishReason,
    Node,
    RunFailed,
    RunFinished,
    RunStarted,
    Status,
    Trace,
    Verified,
)
from specdemo.trace.metrics import ComparedRun, Metrics, dropped, measure

ROUNDED = (
    "This is not the compiled pass: passes of several rows round differently, so greedy text may differ from plain "
    "decoding's from a near tie on. Either is the target's."
)
# The page's design tokens of a light background; they can be read on a dark one too.
_LIGHT, *_ = (ASSETS / "view/css/view.css").read_text(encoding="utf-8").split(".dark ")
TOKEN_COLOURS = dict(re.findall(r"--sd-(\w+): (#[0-9a-f]{6})", _LIGHT))
STYLES = {
    Status.ACCEPTED: TOKEN_COLOURS["accepted"],
    Status.REJECTED: f"strike {TOKEN_COLOURS['rejected']}",
    Status.CORRECTION: f"bold {TOKEN_COLOURS['correction']}",
    Status.BONUS: f"bold {TOKEN_COLOURS['bonus']}",
    Status.PLAIN: "",
}


class TokenPrinter:
    """Prints the tokens of a run in colour; a terminal shows rejected tokens struck through, a file does not show them.

    The newest token is delayed until the next event: one that ends the answer is not part of its text.
    """

    def __init__(self) -> None:
        self._newest: list[Node] = []

    def show(self, event: Event) -> None:
        """Print the tokens of a step, or the message of a run that failed."""
        if isinstance(event, Verified):
            struck = [node for node in event.nodes if node.status is Status.REJECTED]
            refused = struck if console.out.is_terminal else []
            path = len(event.path)
            nodes = [*self._newest, *event.committed[:path], *refused, *event.committed[path:]]
            self._newest = [nodes.pop()] if nodes else []
            self._print(nodes)
        elif isinstance(event, RunFinished):
            self._print([] if event.reason is FinishReason.STOP else self._newest)
            self._newest = []
        elif isinstance(event, RunFailed):
            console.note(f"{event.message} {event.unharmed} {event.advice}", style="red")

    def _print(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            unknown = node.token_id is None and not node.text and node.status is Status.REJECTED
            text = "?" if unknown else console.printable(node.text)
            console.out.print(Text(text, style=STYLES[node.status]), end="")


def show_run(
    running: Iterable[Event],
    options: argparse.Namespace,
    label: str,
    lanes: Sequence[str] = (SPECULATIVE,),
) -> int:
    """Print a run as it comes, as text or JSON lines, save its trace, and print its figures. returns: the exit status

    label: see `show_metrics`; lanes: those whose text is printed
    A UserError that ends the run is raised after the figures so far.
    """
    events: list[Event] = []
    printer, broken = TokenPrinter(), None
    try:
        with keep_results() as kept:
            for event in running:
                events.append(event)
                if options.json:
                    console.write(encode(event))
                elif event.lane in lanes:
                    printer.show(event)
    except UserError as error:
        broken = error
    finally:  # also if the reader of the output has closed it
        if options.save and events:
            try:
                write_file(options.save, dumps(events))
            except OSError as error:
                broken = system_error(error)
    if not options.json and events:
        console.out.print()
        show_metrics(Trace(tuple(events)), label)
    if broken:
        raise broken
    return kept.status or int(any(isinstance(event, RunFailed) for event in events))


def show_metrics(trace: Trace, label: str) -> None:
    """Print the figures of each run to standard error. label: measured or recorded"""
    err = console.err
    every = {lane: measure(trace.lane(lane)) for lane in trace.lanes}
    lanes = {lane: metrics for lane, metrics in every.items() if metrics.new_tokens}
    for event in trace.events:
        if isinstance(event, RunStarted) and event.lane == trace.lanes[-1]:
            err.print(_source(event), style="dim", markup=False, soft_wrap=True)
            if event.may_split:
                err.print(ROUNDED, style="dim", markup=False)
    for lane, metrics in lanes.items():
        err.print(f"{lane}: {_sentence(metrics)} ({label})", markup=False)
    run = ComparedRun(trace)
    if PLAIN in lanes and SPECULATIVE in lanes:
        if not run.comparable:
            err.print("speedup: other programs were busy: not comparable", style="bold")
        elif ratio := run.speedup:
            little = "; the answer repeats itself: this says little" * run.repeats_itself
            err.print(f"speedup: {ratio:.2f}x ({label}){little}", style="bold", markup=False)
    if error := dropped(trace):
        note_dropped(error)
    ended = [event for event in trace.events if isinstance(event, RunFinished)]
    if ended:
        err.print(f"ended: {ended[-1].reason.value}", style="dim", markup=False)


def note_dropped(error: str) -> None:
    """Print that a drafter failed, and the run went on without it, in the page's words."""
    console.note(load("page")["VIEW"]["dropped"].format(error=error), style="yellow")


def _source(header: RunStarted) -> str:
    """Return where a run was computed, and of another program's server how much of its rounds is known."""
    if header.knowledge:
        known = load("page")["VIEW"]["knowledge"][header.knowledge.value]
        return f"{header.target.name}; {header.server}: {known}"
    return f"{header.target.name}, {header.target.kernel}; {header.machine}"


def _sentence(metrics: Metrics) -> str:
    parts = [f"{metrics.new_tokens} tokens", f"{metrics.tokens_per_second or 0:.0f} tokens/s"]
    if metrics.drafted:
        parts.append(f"{percent(metrics.drafted_accept_rate)} of drafts accepted")
        parts.append(f"{metrics.tokens_per_step or 0:.2f} tokens a step")
    if metrics.chances:
        hidden = f"{metrics.saved_seconds:.2f} s of drafting hidden"
        parts.append(f"{percent(metrics.hit_rate)} of prepared drafts used, {hidden}")
    return ", ".join(parts)


def percent(value: float | None) -> str:
    """Return a ratio in percent; a dash for None."""
    return "-" if value is None else f"{100 * value:.0f} %"
