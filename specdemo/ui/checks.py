"""Checks of all values that visitors send to any tab; every failure becomes an error message."""

from __future__ import annotations

import logging
import math
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from itertools import compress
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.blocks import Block
from gradio.components.api_component import Api

from specdemo.config.errors import Phrase, UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.config.strings import strings
from specdemo.ui.visits import Visits

words = strings("limits")

_LOG = logging.getLogger(__name__)

MOST_CHARACTERS = 1_000_000  # characters of any text, at most
MOST_NUMBER = 2**63
SPACES = "\t\n\r"
# Names of the public endpoints, for other programs. All other events are private to the page.
PUBLIC = frozenset({"answer"})


PROMPT_NAME = Phrase("page.prompt")
SYSTEM_PROMPT = Phrase("page.system_prompt")


class Page(gr.Blocks):
    """The page as Gradio serves it. The events of all tabs and their answers pass through this class."""

    def __init__(self, settings: AppSettings, **options: Any) -> None:
        super().__init__(**options)
        self.visits = Visits(settings.runs_a_minute)

    def __exit__(self, *failed: Any) -> None:
        """Complete the page: make its own events private, and let Gradio pass their values on as they came."""
        super().__exit__(*failed)
        for event in self.fns.values():
            event.preprocess = False
            event.api_visibility = "public" if event.api_name in PUBLIC else "private"
        if self.exited:
            self.config = self.get_config_file()

    async def preprocess_data(
        self, block_fn: Any, inputs: list[object], *given: Any, **named: Any
    ) -> list[object]:
        """Check the values of an event. Raises gr.Error, which the page shows as a message without traceback."""
        try:
            check_values(block_fn.inputs, inputs)
            values: list[object] = await super().preprocess_data(block_fn, inputs, *given, **named)
            states = [isinstance(block, gr.State) for block in block_fn.inputs]
            if block_fn.trigger_after is not None and None in compress(values, states):
                raise UserError("page.not_begun")
        except Exception as error:  # noqa: BLE001 - whatever Gradio finds wrong with a value
            raise _sentence(error, block_fn) from None
        return values

    async def call_function(self, block_fn: Any, *given: Any, **named: Any) -> Any:
        """Call the handler of an event. Raises gr.Error, which the page shows as a message without traceback."""
        try:
            return await super().call_function(block_fn, *given, **named)
        except Exception as error:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            raise _sentence(error, block_fn) from None


def _sentence(error: Exception, event: BlockFunction) -> gr.Error:
    if not isinstance(error, UserError | gr.Error):
        _LOG.warning("%s in %s", type(error).__name__, event.api_name)
        _LOG.debug("what broke", exc_info=error)
    told = str(error) if isinstance(error, UserError) else words.BROKEN
    return gr.Error(escape(told, quote=False), title=words.ERROR, print_exception=False)


def check_values(blocks: Sequence[Block], values: Sequence[object]) -> None:
    """Check values that anyone may have sent. Raises UserError for the first that the page cannot send."""
    if len(values) != len(blocks):
        raise UserError("page.wrong_count", wanted=len(blocks), given=len(values))
    for block, value in zip(blocks, values, strict=True):
        if (wanted := _wanted(block, value)) is not None:
            name = getattr(block, "label", None) or block.elem_id or type(block).__name__
            raise UserError("page.wrong_value", name=name, range=wanted)


def _wanted(block: Block, value: object) -> Phrase | None:
    """Return the allowed values of a component, or None if `value` is allowed."""
    match block:
        case gr.State():
            return None  # state of the server: the sent value is ignored
        case Api():
            return None  # the endpoint for other programs checks its own values
        case gr.Checkbox():
            return None if isinstance(value, bool) else Phrase("page.switch")
        case gr.Number() | gr.Slider():
            return None if value is None or _is_number(value) else Phrase("page.number")
        case gr.Radio() | gr.Dropdown() if not getattr(block, "allow_custom_value", False):
            choices = [choice for _, choice in block.choices]
            plain = isinstance(value, str | int | float) and not isinstance(value, bool)
            return None if value is None or (plain and value in choices) else Phrase("page.choice")
        case _:
            return None if _is_text(value) else _text_range()


def _text_range() -> Phrase:
    return Phrase("page.text", most=f"{MOST_CHARACTERS:,}")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= MOST_NUMBER


def _is_text(value: object) -> bool:
    """Return whether a value is None, or text that can be written: half of a surrogate pair cannot."""
    if value is None:
        return True
    if not isinstance(value, str) or len(value) > MOST_CHARACTERS:
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def asked_settings(values: Mapping[str, object], limits: AppSettings) -> RunSettings:
    """Return checked settings of a run. Raises UserError for values that this page does not allow."""
    settings = RunSettings.from_values(values)
    if settings.max_new_tokens > limits.answer_tokens:
        raise UserError(
            "page.long_answer", most=limits.answer_tokens, given=settings.max_new_tokens
        )
    return settings


def asked_text(text: object, name: Phrase = PROMPT_NAME) -> str:
    """Return a checked text for a model, "" for None. Raises UserError.

    name: of the text in an error
    """
    if not _is_text(text):
        raise UserError("page.wrong_value", name=name, range=_text_range())
    text = str(text or "")
    for character in text:
        if unicodedata.category(character) == "Cc" and character not in SPACES:
            raise UserError("page.control_character", name=name, code=f"U+{ord(character):04X}")
    return text


def asked_system(text: object) -> str:
    return asked_text(text, SYSTEM_PROMPT)
