"""Limits the memory that sessions occupy between two runs; the longest idle session is freed first."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol


class Holder(Protocol):
    """An owner of memory that can be created again. visitor: its user; held_bytes: that it occupies now"""

    visitor: str

    @property
    def held_bytes(self) -> int: ...

    def give_back(self) -> bool:
        """Free the memory unless a run is active. returns: whether it was freed"""


class Keeper:
    """Records the last run of each owner, and frees idle or excess memory. Thread-safe.

    most_bytes: limit for all owners
    idle_seconds: time without a run after which an owner is freed
    clock: seconds
    """

    def __init__(
        self, most_bytes: int, idle_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_bytes, self._idle_seconds, self._clock = most_bytes, idle_seconds, clock
        self._lock = threading.RLock()
        self._used: weakref.WeakKeyDictionary[Holder, float] = weakref.WeakKeyDictionary()
        self._left: weakref.WeakSet[Holder] = weakref.WeakSet()
        self._timer: threading.Timer | None = None

    @property
    def held_bytes(self) -> int:
        with self._lock:
            return sum(holder.held_bytes for holder in list(self._used))

    def begin(self, holder: Holder) -> None:
        with self._lock:
            self._left.discard(holder)
            self._used.pop(holder, None)  # move to the end
            self._used[holder] = self._clock()

    def keep(self, holder: Holder) -> None:
        with self._lock:
            left = holder in self._left
            self.begin(holder)
            if left or not holder.held_bytes:
                self._take(holder)
        self.look()

    def leave(self, visitor: str | None) -> None:
        """Free the memory of a user who left, or of all users for None, immediately or at the end of the active run."""
        with self._lock:
            for holder in list(self._used):
                if visitor in (None, holder.visitor) and not self._take(holder):
                    self._left.add(holder)
            self._watch()

    def look(self) -> None:
        """Free idle owners, then the oldest ones until the limit is met."""
        with self._lock:
            longest = self._clock() - self._idle_seconds
            for holder, used in list(self._used.items()):
                if used <= longest:
                    self._take(holder)
            total = self.held_bytes
            for holder in list(self._used):
                if total <= self._most_bytes:
                    break
                held = holder.held_bytes
                total -= held if self._take(holder) else 0
            self._watch()

    def _take(self, holder: Holder) -> bool:
        if given := holder.give_back():
            self._used.pop(holder, None)
        return given

    def _watch(self) -> None:
        """Schedule the next check for the time when the next owner becomes idle."""
        if self._timer and not self._used:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and (used := next(iter(self._used.values()), None)) is not None:
            seconds = max(1.0, used + self._idle_seconds - self._clock())
            self._timer = threading.Timer(seconds, self._check_later)
            self._timer.daemon = True
            self._timer.start()

    def _check_later(self) -> None:
        with self._lock:
            self._timer = None
        self.look()
