"""Every word of the page, in one place: a module a language, and in it a section a part of the page."""

from __future__ import annotations

from specdemo.ui.words.en import *  # noqa: F403 - English is what the page is built with
