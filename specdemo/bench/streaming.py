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
import urllib.request
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradio_client.utils import apply_diff

from specdemo.bench.page_speed import served
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.errors import UserError
from specdemo.session.studio import Studio
from specdemo.settings import AppSettings, RunSettings, widget_order
from specdemo.trace.codec import decode
from specdemo.trace.events import Event, RunFinished
from specdemo.trace.metrics import measure
from specdemo.trace.shapes import EVENTS

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


def compare(studio: Studio, page: Page, settings: RunSettings, repeat: int) -> Streaming:
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


def _streamed(page: Page, prompt: str, settings: RunSettings) -> tuple[float, float]:
    page.ask("arrive")  # a new visitor, who remembers nothing
    begun = time.perf_counter()
    page.ask("begin_answer")
    came = page.ask("answer", prompt, "", *inputs(settings))
    seconds = time.perf_counter() - begun
    lines = [line for line in last_value(came).splitlines() if line]
    return rates([decode(line) for line in lines if json.loads(line)["type"] in EVENTS], seconds)


class Page:
    """One browser's way to ask a served page. Gradio's own client reads along, which takes more of a core than serving."""

    def __init__(self, url: str) -> None:
        config = json.loads(_fetched(f"{url}/config"))
        self._queue, self._session = f"{url}{config['api_prefix']}/queue", uuid.uuid4().hex
        self._kinds = {part["id"]: part["type"] for part in config["components"]}
        self._calls = {call["api_name"]: call for call in config["dependencies"]}

    def ask(self, name: str, *values: object) -> bytes:
        """Call a handler. returns: what the server sent until the handler ended"""
        call, given = self._calls[name], iter(values)
        kinds = [self._kinds[part] for part in call["inputs"]]
        data = [None if kind == "state" else next(given) for kind in kinds]
        asked = {"data": data, "fn_index": call["id"], "session_hash": self._session}
        _fetched(f"{self._queue}/join", json.dumps(asked).encode())
        return _fetched(f"{self._queue}/data?session_hash={self._session}")


def _fetched(url: str, body: bytes | None = None) -> bytes:
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - our own server
    with urllib.request.urlopen(asked) as answer:  # noqa: S310 - our own server
        return bytes(answer.read())


def last_value(sent: bytes) -> str:
    """The only output of a handler after all that was sent: a whole value first, then what each yield changed.

    Raises UserError when the handler failed.
    """
    value: Any = None
    for line in sent.decode().splitlines():
        message = json.loads(line.removeprefix("data: ")) if line else {}
        if message.get("msg") == "process_generating":
            (new,) = message["output"]["data"]
            value = new if value is None else apply_diff(value, new)
        elif message.get("msg") == "process_completed" and not message["success"]:
            raise UserError("The page could not answer.", advice="See what it wrote.")
    return str(value)


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
        with served() as url:
            found = compare(studio, Page(url), settings, options.repeat)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(table(found) + "\n")
    if options.json:
        options.json.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    return int(found.cost > ASKED)


if __name__ == "__main__":
    raise SystemExit(main())
