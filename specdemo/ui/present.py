"""What the page's lines look like: pure functions from values to the text that the script reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from specdemo.errors import UserError
from specdemo.models.progress import Progress, duration
from specdemo.ui import words

if TYPE_CHECKING:
    from specdemo.scenarios.batch import Answer, Totals
    from specdemo.session.admission import Waiting
    from specdemo.session.menu import MethodInfo


def open_line(
    source: str, key: str, *, title: str = "", waiting: str = "", run: str = ""
) -> str:  # the script starts anew when the first line changes, so `key` must be new for each run
    """First line of a stream. source: live or recorded; waiting: what the run waits for, if it does

    run: a recorded run, which the script fetches by this name
    """
    opening = {"source": source, "key": key, "title": title, "waiting": waiting, "run": run}
    return _line({"type": "open", **opening})


def recorded_line(name: str, title: str, key: str) -> str:
    """A stream that is the recorded run of this name; `key` as in `open_line`."""
    return open_line("recorded", key, title=title, run=name)


def earlier_lines(turns: Sequence[tuple[str, str]]) -> str:
    """Earlier turns of the conversation: (prompt, answer) each."""
    return "".join(
        _line({"type": "earlier", "prompt": prompt, "answer": answer}) for prompt, answer in turns
    )


def notice_line(error: UserError) -> str:
    """An error as a sentence block."""
    return _line(
        {
            "type": "notice",
            "message": error.message,
            "unharmed": error.unharmed,
            "advice": error.advice,
        }
    )


def waiting_line(sentence: str) -> str:
    """What a run waits for."""
    return _line({"type": "waiting", "text": sentence})


def place(waiting: Waiting) -> str:
    """A place in the line as a sentence. Seconds are told as roughly as they are known."""
    if waiting.seconds is None:
        return words.PLACE.format(place=waiting.place, of=waiting.of)
    seconds = max(1, math.ceil(waiting.seconds))
    rough = next(step for least, step in ((60, 10), (10, 5), (0, 1)) if seconds > least)
    return words.PLACE_SECONDS.format(
        place=waiting.place, of=waiting.of, seconds=math.ceil(seconds / rough) * rough
    )


def status(state: str, text: str, done: float | None = None) -> str:
    """Value of the status component. state: loading, ready or failed."""
    return json.dumps({"state": state, "text": text, "done": done})


def loading(progress: Progress) -> str:
    """Value of the status component while a model is loaded."""
    stage = words.LOADING.get(progress.stage, progress.stage)
    sentence = f"{stage} {progress.detail}".strip()
    if progress.seconds_left is not None:
        sentence += ", " + words.TIME_LEFT.format(time=duration(progress.seconds_left))
    return status("loading", sentence, progress.done)


def visible(method: MethodInfo, option: str) -> bool | Literal["hidden"]:
    """Visibility of a setting: one that the method does not read keeps its value out of sight."""
    return True if option in method.options else "hidden"


def method_choices(methods: Sequence[MethodInfo]) -> list[tuple[str, str]]:
    """Entries of the menu of methods, (label, name) each; none is left out, what is amiss is said."""
    choices = []
    for method in methods:
        marks = [words.LOSSY] if method.lossy else []
        marks += [] if method.available else [words.UNAVAILABLE]
        label = f"{method.title} ({', '.join(marks)})" if marks else method.title
        choices.append((label, method.name))
    return choices


def method_note(method: MethodInfo) -> str:
    """Value of the note under the menu: what the method is, what it needs, and whether that is there."""
    note = [("summary", method.summary)]
    note += [("needs", words.NEEDS.format(need=need)) for need in method.needs]
    if method.lossy:
        note.append(("lossy", words.LOSSY_NOTE))
    if not method.available:
        note.append(("missing", words.NOT_HERE.format(why_not=method.why_not)))
    return json.dumps(note)


def training_card(method: MethodInfo, card: Mapping[str, object] | None) -> str:
    """Value of the view of a training card: the card, or a sentence on why there is none."""
    if card:
        return json.dumps({"card": card})
    if not method.available:
        sentence = words.NOT_HERE.format(why_not=method.why_not)
    elif method.needs:
        sentence = words.CARD_UNKNOWN.format(need=", ".join(method.needs))
    else:
        sentence = words.CARD_NOTHING.format(title=method.title)
    return json.dumps({"none": sentence})


def batch(
    answers: Sequence[Answer],
    *,
    totals: Totals | None = None,
    waiting: str = "",
    error: UserError | None = None,
) -> str:
    """Value of the batch view. waiting, error: what all of them wait for, or why none was begun"""
    together = totals and {
        "prompts": totals.prompts,
        "tokens": totals.new_tokens,
        "rate": totals.tokens_per_second,
    }
    rows = [
        {
            "prompt": answer.prompt,
            "state": answer.state,
            "text": answer.text,
            "rate": answer.tokens_per_second,
            "error": _parts(answer.error),
        }
        for answer in answers
    ]
    return json.dumps({"rows": rows, "total": together, "waiting": waiting, "error": _parts(error)})


def _parts(error: UserError | None) -> list[str]:
    """What an error says, part by part, so that each can be translated."""
    parts = (error.message, error.unharmed, error.advice) if error else ()
    return [part for part in parts if part]


def _line(data: dict[str, object]) -> str:
    return json.dumps(data, ensure_ascii=False) + "\n"
