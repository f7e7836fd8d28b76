"""What showing a run costs it: the same runs without a page, and streamed to a client as the page gets them.

    python -m specdemo.bench.streaming [--repeat 5] [--method auto] [--json streaming.json]

This process runs without a page, and asks one that a process of its own serves, in turn; it asks as a browser
does, and looks at what came when all has come. So this is what the server does for a run; what a browser on the
same cores takes to read and draw it is not in it (`bench.page_speed` looks at the drawing).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from specdemo.bench.page_speed import served
from specdemo.bench.visit import Outline, Visit, last_value
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings, widget_order
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.studio import Studio
from specdemo.trace.codec import decode
from specdemo.trace.events import EVENTS, Event, RunFinished
from specdemo.trace.metrics import measure

DETAIL = 5  # as the page asks for
ASKED = 0.05  # what streaming may take of the tokens a second
PROMPTS = (
    "Explain photosynthesis to a child.",
    "Write a short story about a dog who learns to swim.",
    "How does a car engine work?",
)


@dataclass(frozen=True, slots=True)
class Streaming:
    """Tokens a second of the drafting lane, by its own clock and by the wall; medians, and the ratio's quartiles."""

    headless: float
    streamed: float
    headless_wall: float
    streamed_wall: float
    cost: float
    cost_quartiles: tuple[float, float]


def compare(studio: Studio, page: Outline, settings: RunSettings, repeat: int) -> Streaming:
    """Each prompt without the page and streamed, in turn; the first round does not count."""
    pairs = []
    for number in range(repeat + 1):
        for prompt in PROMPTS:
            both = (_headless(studio, prompt, settings), _streamed(page, prompt, settings))
            if number:
                pairs.append(both)
    plain, shown = ([pair[side] for pair in pairs] for side in (0, 1))
    costs = [1 - streamed[0] / headless[0] for headless, streamed in pairs]
    quartiles = statistics.quantiles(costs, n=4)
    return Streaming(
        *(statistics.median(rates[0] for rates in side) for side in (plain, shown)),
        *(statistics.median(rates[1] for rates in side) for side in (plain, shown)),
        cost=statistics.median(costs),
        cost_quartiles=(quartiles[0], quartiles[-1]),
    )


def rates(events: Sequence[Event], seconds: float) -> tuple[float, float]:
    """Tokens a second of a run's last lane by its own clock, and of all lanes by the wall."""
    ends = [event for event in events if isinstance(event, RunFinished)]
    last = [event for event in events if getattr(event, "lane", None) == ends[-1].lane]
    return measure(last).tokens_per_second, sum(end.new_tokens for end in ends) / seconds


def table(found: Streaming) -> str:
    """The figures as lines of text."""
    low, high = found.cost_quartiles
    rows = (
        ("tokens/s without the page", f"{found.headless:.0f}"),
        ("tokens/s streamed", f"{found.streamed:.0f}"),
        ("the same by the wall", f"{found.headless_wall:.0f} and {found.streamed_wall:.0f}"),
        ("cost of streaming", f"{found.cost:.1%} (quartiles {low:.1%} to {high:.1%})"),
    )
    return "\n".join(f"{name:<28}{value}" for name, value in rows)


def inputs(settings: RunSettings) -> list[object]:
    """The values of the page's settings, in its order."""
    return [settings.value(name) for name in widget_order()]


def _headless(studio: Studio, prompt: str, settings: RunSettings) -> tuple[float, float]:
    conversation = studio.open()
    begun = time.perf_counter()
    events = list(conversation.run(prompt, settings, every=LOOK_SECONDS))
    seconds = time.perf_counter() - begun
    conversation.close()
    return rates(events, seconds)


def _streamed(page: Outline, prompt: str, settings: RunSettings) -> tuple[float, float]:
    visit = Visit(page)  # a new visitor, who remembers nothing
    visit.open()
    begin = page.call("sd-run")
    answer = page.after(begin)
    _state, _prompt, _system, *fields = answer["inputs"]
    visit.set("sd-prompt", prompt)
    for part, value in zip(fields, inputs(settings), strict=True):
        visit.enter(part, value)
    begun = time.perf_counter()
    visit.ask(begin)
    came = b"".join(visit.stream(answer))
    seconds = time.perf_counter() - begun
    visit.leave()
    lines = [line for line in last_value(came).splitlines() if line]
    return rates([decode(line) for line in lines if json.loads(line)["type"] in EVENTS], seconds)


def main() -> int:
    """returns: 0 when streaming costs no more than is asked for, else 1"""
    parser = argparse.ArgumentParser(description="Measure what streaming to the page costs.")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--method", default=RunSettings().method)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    settings = RunSettings(method=options.method, detail=DETAIL)
    studio = Studio(AppSettings.from_environment())
    try:
        studio.load()
        with served() as server:
            found = compare(studio, Outline(server.url), settings, options.repeat)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(table(found) + "\n")
    if options.json:
        options.json.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    return int(found.cost > ASKED)


if __name__ == "__main__":
    raise SystemExit(main())
