"""The one call that the page offers to other programs: a prompt is answered, with the run's figures and its trace."""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any, TypeAlias

import gradio as gr
from gradio.context import LocalContext
from gradio.events import api

from specdemo.config.errors import Phrase, UserError
from specdemo.config.settings import RunSettings, Setting, field, fields
from specdemo.config.strings import Json, strings
from specdemo.session.door import EngineClient
from specdemo.session.runs import failure
from specdemo.trace.codec import encode
from specdemo.trace.events import Event, RunFailed, Trace
from specdemo.trace.metrics import ComparedRun
from specdemo.ui.checks import asked_settings, asked_system, asked_text
from specdemo.ui.run_tab import YIELD_SECONDS, LatestRun, Shown, stream
from specdemo.ui.visits import tell

words = strings("limits")

ENDPOINT_NAME = "answer"
JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
Reply: TypeAlias = tuple[str, Json, list[Json]]


def create_endpoint(page: gr.Blocks, studio: EngineClient) -> None:
    """Offer the call. Called inside the page."""

    def answer(
        prompt: str,
        method: str = "auto",
        settings: Json | None = None,
        system: str = "",
        trace: bool = True,  # noqa: FBT001, FBT002 - Gradio's clients name it
    ) -> Iterator[Reply]:
        """Answer a prompt by speculative decoding, with the figures and the trace of the run.

        Parameters:
            prompt: the prompt; each call is a conversation of its own
            method: how tokens are drafted; "nothing" is plain decoding
            settings: settings of the run by name, as {"max_new_tokens": 64, "baseline": false}
            system: system prompt
            trace: whether to return the events of the run too; they are long
        Returns:
            text: the answer so far
            metrics: figures of the run, at its end: tokens_per_second, speedup over plain decoding and others;
                no speedup but a note if other programs were busy meanwhile
            trace: the events of the run, at its end; each is a line of a saved trace
        """
        # A client may send values of any type.
        studio.start()
        asked = _asked(studio, method, settings)
        text, system_text = asked_text(prompt), asked_system(system)
        task = LatestRun(_caller())
        shown = _Reply(task, with_trace=trace is not False)
        tell(studio, task.visitor)  # a call names no model, so any model is right
        work = shown.work(studio, text, asked, system_text)
        with closing(stream(studio, work, shown)) as going_on:
            for _ in going_on:
                yield shown.value()
        if shown.error:
            raise shown.error
        yield shown.whole()

    # Gradio reads the yielded type from the return annotation.
    answer.__annotations__["return"] = tuple[str, Json, list[Json]]
    api(answer, api_name=ENDPOINT_NAME, concurrency_limit=None)
    event: Any = page.fns[max(page.fns)]
    event.inputs[1]._api_info = schema(field("method"))
    rows = {row.name: schema(row) for row in fields(RunSettings) if row.name != "method"}
    group = {"type": "object", "properties": rows}
    event.inputs[2]._api_info = {"oneOf": [{"type": "null"}, group]}
    for part, label in zip(event.outputs, ("text", "metrics", "trace"), strict=True):
        part.label = label


class _Reply(Shown):
    """The answer of a call as it grows."""

    def __init__(self, task: LatestRun, *, with_trace: bool) -> None:
        super().__init__(task)
        self.events: list[Event] = []
        self._with_trace = with_trace

    def work(
        self, studio: EngineClient, prompt: str, settings: RunSettings, system: str
    ) -> Generator[None, None, None]:
        """Answer the prompt in a conversation of its own."""
        with closing(studio.open(self.task.visitor)) as conversation:
            for event in conversation.run(
                prompt, settings, system=system, cancel=self.task.cancel, every=YIELD_SECONDS
            ):
                self.events.append(event)
                yield

    def value(self) -> Reply:
        return ComparedRun(Trace(tuple(self.events))).text, {}, []

    def whole(self) -> Reply:
        """Return the answer, its figures and the events. Raises UserError for a run that broke."""
        for event in self.events:
            if isinstance(event, RunFailed):
                raise failure(event)
        run = ComparedRun(Trace(tuple(self.events)))
        again = run.repeats_itself
        notes = [words.NOT_COMPARABLE] * (not run.comparable) + [words.REPEATS_ITSELF] * again
        note = {"repeats_itself": again} | ({"note": "; ".join(notes)} if notes else {})
        lines = [json.loads(encode(event)) for event in self.events if self._with_trace]
        return run.text, {"speedup": run.speedup, **note, **run.metrics.values()}, lines


def _asked(studio: EngineClient, method: object, settings: object) -> RunSettings:
    """Return checked settings of a run. Raises UserError."""
    names = [one.name for one in studio.methods()]
    if method not in names:
        wanted = Phrase("page.one_of", names=", ".join(names))
        raise UserError("page.wrong_value", name="method", range=wanted)
    if not isinstance(settings, Mapping | None):
        raise UserError("page.wrong_value", name="settings", range=Phrase("page.group"))
    longest = min(field("max_new_tokens").default, studio.settings.answer_tokens)
    given = {"max_new_tokens": longest, **(settings or {}), "method": method}
    return asked_settings(given, studio.settings)


def _caller() -> str:
    """Return an id of the client: its address, since a program may open a new session with each call."""
    request = LocalContext.request.get(None)
    client = getattr(request, "client", None)
    return f"address {client.host}" if client else uuid.uuid4().hex


def schema(row: Setting) -> Json:
    """Return the JSON schema of one setting."""
    known = {"minimum": row.low, "maximum": row.high, "enum": list(row.choices) or None}
    return {
        "type": JSON_TYPES[row.kind],
        "description": row.help,
        "default": row.default,
        **{name: value for name, value in known.items() if value is not None},
    }
