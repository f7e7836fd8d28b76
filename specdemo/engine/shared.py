"""Several runs on one device: whoever computes has the turn, and passes that are asked for together run as one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

from specdemo.engine.decoder import Answer, Decoder, Pass

PATIENCE = 0.004  # seconds that a pass waits for runs that are neither computing nor about to


class _Ask:
    """One run's passes, until they are answered."""

    def __init__(self, passes: Sequence[Pass]) -> None:
        self.passes = list(passes)
        self.answers: list[Answer] | None = None
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        return self.answers is not None or self.error is not None


class SharedDecoder:
    """A decoder for runs in several threads; implements `Decoder`. Keeps nothing of any run.

    Two runs that compute at the same time would fight for the same cores, so one at a time does. A run
    that needs the target gives its turn away and waits. When every run waits, or the others are held up
    elsewhere, one of them answers all: each step of a run is one pass, whoever else is there.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.config: Any = decoder.config
        self._decoder = decoder
        self._state = threading.Condition()
        self._holder: int | None = None  # the thread that has the turn
        self._wanting = 0  # threads that wait for the turn
        self._runs = 0
        self._asks: list[_Ask] = []

    @contextmanager
    def joining(self) -> Iterator[None]:
        """While a run goes on: others wait a moment for its passes."""
        with self._state:
            self._runs += 1
        try:
            yield
        finally:
            with self._state:
                self._runs -= 1
                self._state.notify_all()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Compute alone. Never held over a yield to somebody who may take his time."""
        with self._state:
            self._take()
        try:
            yield
        finally:
            with self._state:
                self._release()

    def run(self, passes: Sequence[Pass]) -> list[Answer]:
        """Answer passes, together with those that other runs ask for at the same time."""
        if self._holder != threading.get_ident():
            with self.turn():
                return self.run(passes)
        ask = _Ask(passes)
        with self._state:
            self._asks.append(ask)
            self._release()
            together = self._wait(ask)
        if together:
            self._answer(together)
        if ask.error is not None:
            raise ask.error
        assert ask.answers is not None
        return ask.answers

    def _wait(self, ask: _Ask) -> list[_Ask]:
        """Until the passes are answered or it falls to this thread to answer all; it has the turn again then."""
        while not ask.done:
            idle = self._holder is None and not self._wanting
            if idle and len(self._asks) >= self._runs:
                break
            if (
                not self._state.wait(PATIENCE)
                and idle
                and self._holder is None
                and not self._wanting
            ):
                break
        if ask.done:
            self._take()
            return []
        self._holder = threading.get_ident()
        together, self._asks = self._asks, []
        return together

    def _answer(self, together: list[_Ask]) -> None:
        """Run what was asked for; passes of the same depth are one."""
        asked = sorted(together, key=_depth)
        for _, group in groupby(asked, key=_depth):
            asks = list(group)
            try:
                answers = iter(self._decoder.run([one for ask in asks for one in ask.passes]))
                for ask in asks:
                    ask.answers = [replace(next(answers), runs=len(asks)) for _ in ask.passes]
            except BaseException as error:  # noqa: BLE001 - handed to each of the runs
                for ask in asks:
                    ask.error = error
        with self._state:
            self._state.notify_all()

    def _take(self) -> None:
        self._wanting += 1
        while self._holder is not None:
            self._state.wait()
        self._wanting -= 1
        self._holder = threading.get_ident()

    def _release(self) -> None:
        self._holder = None
        self._state.notify_all()


def _depth(ask: _Ask) -> int:
    return ask.passes[0].depth or 0
