"""Pure functions from values to the texts that the page's scripts read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TypeAlias

from specdemo.config.errors import UserError
from specdemo.config.settings import GREEDY, OWN, PRESET_NAMES, PROJECT, Recommended, Sampling
from specdemo.config.strings import Json
from specdemo.files.catalogue import Pair
from specdemo.files.progress import Progress, duration, megabytes
from specdemo.session.admission import Waiting
from specdemo.session.door import MethodInfo
from specdemo.session.studio import Offer, Outlook
from specdemo.session.work.batch import BatchAnswer, BatchTotals
from specdemo.trace.events import ModelInfo
from specdemo.ui import words

Part: TypeAlias = tuple[str, str]  # kind and sentence of a part of a note


def open_line(
    source: str, key: str, *, title: str = "", waiting: str = "", run: str = ""
) -> str:  # the script restarts when the first line changes, so `key` must be new for each run
    """Return the first line of a stream.

    source: live or recorded; waiting: reason why the run waits, if it does
    run: name of a recorded run, which the script fetches
    """
    opening = {"source": source, "key": key, "title": title, "waiting": waiting, "run": run}
    return line("open", **opening)


def recorded_line(name: str, title: str, key: str) -> str:
    """Return the stream of the recorded run of this name. key: see `open_line`"""
    return open_line("recorded", key, title=title, run=name)


def place(waiting: Waiting) -> str:
    """Return the position in the queue as a sentence. Seconds are rounded, since they are only an estimate."""
    if waiting.seconds is None:
        return str(words.PLACE.format(place=waiting.place, of=waiting.of))
    seconds = max(1, math.ceil(waiting.seconds))
    rough = next(step for least, step in ((60, 10), (10, 5), (0, 1)) if seconds > least)
    return str(
        words.PLACE_SECONDS.format(
            place=waiting.place, of=waiting.of, seconds=math.ceil(seconds / rough) * rough
        )
    )


def status(state: str, text: str, done: float | None = None, more: Sequence[str] = ()) -> str:
    """Return the value of the status component. state: loading, ready or failed; more: notes after the text"""
    return json.dumps(
        {"state": state, "text": text, "done": done, "more": list(filter(None, more))}
    )


def loading(progress: Progress) -> str:
    """Return the value of the status component while a model is loaded."""
    text, left = words.LOADING.get(progress.stage, progress.stage), ""
    if progress.seconds_left is not None:
        left = words.TIME_LEFT.format(time=duration(progress.seconds_left))
    return status("loading", text, progress.done, (progress.detail, left))


def ready(target: ModelInfo, remark: str) -> str:
    """Return the value of the status component for a loaded target. remark: see `About`"""
    text = words.READY.format(target=target.name, precision=target.precision)
    return status("ready", text, more=(words.REMARKS.get(remark, ""),))


def pair_choices(
    pairs: Sequence[Pair], outlooks: Mapping[str, Outlook], loaded: str, *, named: bool
) -> list[tuple[str, str]]:
    """Return the entries of the menu of models as (label, target). A label names a missing or too large model.

    loaded: the target of the settings; named: whether the menu lists it even if the catalogue does not: a file or a
        folder by its name alone
    """
    choices = []
    for pair in pairs:
        found = outlooks.get(pair.name)
        pattern = "{title}"
        if found and pair.name != loaded and not found.fits:
            pattern = words.TOO_LARGE
        elif found and found.download:
            pattern = words.TO_DOWNLOAD
        size = megabytes(found.download).replace(" ", "\u00a0") if found else ""
        choices.append((pattern.format(title=pair.target.title, size=size), pair.name))
    if named and loaded not in (pair.name for pair in pairs):
        choices.append((PurePath(loaded).name or loaded, loaded))
    return choices


def pair_note(pair: Pair | None, found: Outlook | None, *, loaded: bool) -> list[Part]:
    """Return the note under the menu of models: the needs of the chosen pair on this machine."""
    if pair is None or found is None:
        return []
    drafts = words.PAIR_DRAFT.format(draft=pair.draft.title) if pair.draft else words.NO_DRAFT
    note = [("summary", drafts)]
    sizes = {"needed": megabytes(found.needed), "free": megabytes(found.free)}
    if loaded:
        note.append(("here", words.LOADED.format(**sizes)))
    elif not found.fits:
        note.append(("missing", words.NO_ROOM.format(**sizes)))
    else:
        note.append(("needs", words.ROOM.format(**sizes)))
    if found.download:
        note.append(("needs", words.DOWNLOAD_SIZE.format(size=megabytes(found.download))))
    elif not loaded:
        note.append(("here", words.ON_DISK))
    return [*note, *_speed(found), ("licence", words.LICENCE.format(licence=pair.licence))]


def _speed(found: Outlook) -> list[Part]:
    """Return the expected speed, and its source."""
    if found.plain is None:
        return [("rate", words.RATE_UNKNOWN)]
    made_from = ("basis", words.BY_PASSES if found.measured else words.BY_SIZE)
    if found.drafted is None:
        return [("rate", words.RATE_PLAIN.format(plain=_rate(found.plain))), made_from]
    rates = words.RATE.format(plain=_rate(found.plain), drafted=_rate(found.drafted))
    kept = words.KEPT_RECORDED if found.recorded else words.KEPT_ASSUMED
    said = kept.format(kept=round(100 * found.kept), precision=found.recorded)
    return [("rate", rates), made_from, ("basis", said)]


def _rate(rate: float) -> str:
    """Format a modelled rate with two digits, no more than it is worth."""
    return f"{float(f'{rate:.2g}'):g}"


def download_question(title: str, size: int | None, drafter: Offer | None) -> list[Part]:
    """Return the note on a necessary download. size: bytes, 0 for none, None if only the hub has the number"""
    away = drafter if drafter and not drafter.here else None
    asked = [(title, size)] * (size != 0) + ([(away.name, away.size)] if away else [])
    parts = []
    for name, each in asked:
        pattern = words.ASK_UNKNOWN if each is None else words.ASK
        parts.append(("missing", pattern.format(title=name, size=megabytes(each or 0))))
    return [*parts, ("licence", _licence(away))] if away else parts


def drafter_choices(offers: Sequence[Offer], loaded: str) -> list[tuple[str, str]]:
    """Return the entries of the menu of published drafters as (label, name). loaded: listed even if not in the catalogue"""
    choices = [(words.NO_DRAFTER, "none")]
    for one in offers:
        pattern = words.DRAFTER_HERE if one.here else words.DRAFTER_AWAY
        size = megabytes(one.size or 0).replace(" ", "\u00a0")
        choices.append((pattern.format(name=one.name, family=one.family, size=size), one.name))
    if loaded not in (name for _, name in choices):
        choices.append((PurePath(loaded).name or loaded, loaded))
    return choices


def drafter_note(drafter: Offer | None) -> list[Part]:
    """Return the facts of the chosen drafter."""
    if drafter is None:
        return []
    name = PurePath(drafter.name).name if drafter.here and not drafter.family else drafter.name
    said = [("summary", words.DRAFTER_CHOSEN.format(name=name))]
    if drafter.here:
        size = megabytes(drafter.size or 0)
        said += [("here", words.DRAFTER_ON_DISK.format(size=size)), ("licence", _licence(drafter))]
    else:
        said.append(("needs", words.DRAFTER_ASKED))
    return said


def _licence(drafter: Offer) -> str:
    if not drafter.licence:
        return str(words.DRAFTER_UNNAMED)
    return str(words.DRAFTER_LICENCE.format(licence=drafter.licence))


def option_update(method: MethodInfo, option: str, policy: str | None = None) -> Json:
    """Return the changes of a setting's component for a method: hidden with its value if the method does not read it.

    policy: the chosen one, which is replaced if the method does not implement it
    """
    if option not in method.options:
        return {"visible": "hidden"}
    if option != "policy" or not method.policies:
        return {"visible": True}
    choices = [(words.POLICIES[name], name) for name in method.policies]
    replaced = policy is not None and policy not in method.policies
    value = {"value": method.policies[-1]} if replaced else {}
    return {"visible": True, "choices": choices, **value}


def exact_hint(method: MethodInfo) -> str:
    """Return the description of the exact mode, or the reason why the method has none."""
    return method.no_exact or words.SETTING_HINTS["exact"]


def drawing(preset: str, recommended: Recommended) -> str:
    """Describe the values of sampling of a preset; "" for own values."""
    if preset == OWN:
        return ""
    sampling, neutral = recommended.sampling, Sampling()
    if preset == GREEDY:
        return str(words.DRAWN_GREEDY)
    if not recommended.origin:
        return str(words.DRAWN_NOTHING)
    shown = {name: f"{getattr(sampling, name):g}" for name in PRESET_NAMES}
    off = {name for name in PRESET_NAMES[1:] if getattr(sampling, name) == getattr(neutral, name)}
    values = words.DRAWN.format(**{**shown, **dict.fromkeys(off, words.OFF)})
    return str(
        words.DRAWN_PROJECT.format(values=values) if recommended.origin == PROJECT else values
    )


def method_choices(methods: Sequence[MethodInfo]) -> list[tuple[str, str]]:
    """Return the entries of the menu of methods as (label, name), with marks for lossy and unavailable ones."""
    choices = []
    for method in methods:
        marks = [words.LOSSY] if method.lossy else []
        marks += [] if method.available else [words.UNAVAILABLE]
        label = f"{method.title} ({', '.join(marks)})" if marks else method.title
        choices.append((label, method.name))
    return choices


def method_note(method: MethodInfo) -> str:
    """Return the note under the menu of methods: summary, needs, and why the method is unavailable."""
    note = [("summary", method.summary)]
    note += [("needs", words.NEEDS.format(need=need)) for need in method.needs]
    if method.lossy:
        note.append(("lossy", words.LOSSY_NOTE))
    if not method.available:
        note.append(("missing", words.NOT_HERE.format(why_not=method.why_not)))
    return json.dumps(note)


def training_card(method: MethodInfo, card: Mapping[str, object] | None) -> str:
    """Return the value of the view of a training card: the card, or a sentence on why there is none."""
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
    answers: Sequence[BatchAnswer],
    *,
    totals: BatchTotals | None = None,
    waiting: str = "",
    error: UserError | None = None,
) -> str:
    """Return the value of the batch view. waiting, error: of the whole batch"""
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
            "error": answer.error.sentences if answer.error else [],
        }
        for answer in answers
    ]
    # The sentences of an error are apart, so that each can be translated.
    parts = error.sentences if error else []
    return json.dumps({"rows": rows, "total": together, "waiting": waiting, "error": parts})


def line(kind: str, **data: object) -> str:
    """Return a line of a stream that is no event of a trace."""
    return json.dumps({"type": kind, **data}, ensure_ascii=False) + "\n"
