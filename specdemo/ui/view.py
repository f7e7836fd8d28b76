"""HTML components with a static template. Their content arrives as text and is drawn by scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import gradio as gr

from specdemo.config.strings import ASSETS
from specdemo.session.door import EngineClient
from specdemo.ui import tabs as tab_modules
from specdemo.ui import words
from specdemo.ui.checks import asked_text
from specdemo.ui.files import address


@dataclass(frozen=True, slots=True)
class Tab:
    """One tab of the page and of the static site.

    order: its position among the tabs
    create: makes its components, inside the tab
    site: its content on the static site, from a folder of recorded runs: `words`, and a `value` or the `choices` of a menu; None if it is empty
    """

    order: int
    name: str
    label: str
    create: Callable[[EngineClient], object]
    site: Callable[[EngineClient, Path], dict[str, object] | None]


def find_tabs() -> list[Tab]:
    """Return the `TAB` of each module in `ui/tabs`, in their order."""
    names = (f"{tab_modules.__name__}.{found.name}" for found in iter_modules(tab_modules.__path__))
    return sorted((import_module(name).TAB for name in names), key=lambda tab: tab.order)


# The script is an ES module: it is imported once by the browser and mounted by each component.
_MOUNT = (ASSETS / "cards/mount.js.txt").read_text(encoding="utf-8")


def mounted(
    value: str,
    file: str,
    function: str,
    elem_id: str,
    *,
    own_words: dict[str, object] | None = None,
    answers: Sequence[Callable[[str], object]] = (),
) -> gr.HTML:
    """Create an element that a script of `assets/view` fills; the script reads the component's value, a text.

    A value that the script sends becomes the component's value and fires its event `sent`.
    own_words: strings of the part; default: all of the view's
    answers: functions that the script may call by name, each with one text
    """
    given = {
        "path": json.dumps(address(f"view/{file}")),
        "language": json.dumps(address("view/page/language.js")),
        "mount": function,
        "words": json.dumps(words.VIEW if own_words is None else own_words, ensure_ascii=True),
        "languages": json.dumps(["en", *words.languages()]),
    }
    return gr.HTML(
        value=value,
        html_template='<div class="sd-mount"></div>',
        js_on_load=_MOUNT % given,
        elem_id=elem_id,
        apply_default_css=False,
        server_functions=[_plain(answer) for answer in answers],
    )


def note_view(value: str, elem_id: str = "sd-note") -> gr.HTML:
    """Create a note on a choice, by default of a method: a JSON list of [kind, sentence]."""
    return mounted(value, "page/status.js", "mountNote", elem_id, own_words=only())


def only(*names: str) -> dict[str, object]:
    """Return these parts of the view's strings."""
    return {name: words.VIEW[name] for name in names}


def script(file: str, function: str, given: str = "values") -> str:
    """Return JavaScript for an event that calls a function of a script. given: an expression, by default the values of the event's inputs"""
    root = '((window.gradio_config || {}).root || "")'
    called = f"module.{function}({given})"
    path = json.dumps(address(f"view/{file}"))
    return f'(...values) => import({root} + "/" + {path}).then((module) => {{ {called}; }})'


def _plain(answer: Callable[[str], object]) -> Callable[[str], object]:
    """Return the same as a function of its own: Gradio sets an attribute on it, which a method cannot have."""

    @wraps(answer)
    def plain(asked: str) -> object:
        return answer(asked_text(asked))

    return plain
