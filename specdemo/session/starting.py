"""What is loaded once, in a thread of its own, and whose failure is kept where a view can show it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from specdemo.config.errors import UserError
from specdemo.files.progress import Progress, ProgressCallback


class Starting:
    """Loads in the background. A subclass says what `bring` does, and when it is `ready`.

    error: why loading failed, or why there is nothing to load
    """

    thread_name: ClassVar[str]
    failed: ClassVar[str]  # a sentence's begin, for an error that nobody has foreseen
    advice: ClassVar[str] = ""

    def __init__(self, error: UserError | None = None) -> None:
        self.error = error
        self._progress = Progress("start", None, "")
        self._lock = threading.Lock()
        self._started = False

    @property
    def ready(self) -> bool:
        """Whether runs are possible."""
        raise NotImplementedError

    def bring(self, report: ProgressCallback) -> None:
        """Load, and wait for it. Raises any error."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to load in a thread of its own; returns at once, and does nothing the second time."""
        with self._lock:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self.load, name=self.thread_name, daemon=True).start()

    def load(self, report: Callable[[Progress], None] | None = None) -> None:
        """Load and wait for it. A failure is kept in `error`, and `start` does nothing any more."""
        self._started = True
        try:
            self.bring(report or self._report)
        except UserError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - the thread must not die without a word
            self.error = UserError(self.failed, error=error)

    def progress(self) -> Progress | None:
        """What loading is doing; None when runs are possible or loading has failed."""
        return None if self.ready or self.error else self._progress

    def _report(self, progress: Progress) -> None:
        self._progress = progress
