"""A link to engines in this process, which are called with JSON values as those of other processes are."""

from __future__ import annotations

import json
import threading
import time

from conftest import loaded
from letters import tiny_pair

from specdemo.config.settings import AppSettings
from specdemo.session.remote.client import Lost
from specdemo.session.remote.server import Engine
from specdemo.session.studio import Studio

SETTINGS = AppSettings(target="tiny", draft="none")
WAIT = 30.0


class ThreadStream:
    """The answer of an engine in this process. lost_after: number of lines after which it ends with Lost"""

    def __init__(self, lines, cancel, lost_after):
        self.lines, self.ended, self.lost_after = lines, cancel, lost_after

    def __iter__(self):
        for number, line in enumerate(self.lines(self.ended)):
            if number == self.lost_after:
                self.ended.set()
                raise Lost
            yield f"{line}\n"
        if self.lost_after == 0:
            raise Lost

    def cancel(self):
        self.ended.set()


class ThreadLink:
    """Engines in this process, called with JSON values. lost_after: `lost_after` of the next streams"""

    whole = False

    def __init__(self, *engines):
        self.engines, self.count = list(engines), len(engines)
        self.lost_after, self.streams, self.left = [], [], []

    def about(self):
        return json.loads(json.dumps(self.engines[0].about()))

    def stream(self, method, visitor, request):
        request = json.loads(json.dumps(request))
        assert request["visitor"] == visitor
        lost_after = self.lost_after.pop(0) if self.lost_after else None
        engine = self.engines[0]
        if lost_after is not None:
            self.engines.append(self.engines.pop(0))  # the next run goes to another
        stream = ThreadStream(
            lambda cancel: getattr(engine, method)(request, cancel), threading.Event(), lost_after
        )
        self.streams.append(stream)
        return stream

    def leave(self, visitor):
        self.left.append(visitor)

    def replicas(self):
        return self.count


def engine(draft_weights):
    studio = Studio(SETTINGS)
    studio.use(loaded(tiny_pair(draft_weights)))
    return Engine(studio)


def assert_idle(studio):
    """The runs of an engine end within a moment."""
    end = time.monotonic() + WAIT
    while studio.runner.going_on and time.monotonic() < end:
        time.sleep(0.01)
    assert not studio.runner.going_on
