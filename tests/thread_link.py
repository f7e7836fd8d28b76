"""A link to engines in this process. As with those of other processes, all values are pickled."""

import pickle

from letters import letters_studio, tiny_pair
from programs import until

from specdemo.config.settings import AppSettings, RunSettings
from specdemo.session.remote.client import Link, Lost
from specdemo.session.remote.server import Engine

SETTINGS = AppSettings(target="tiny", draft="none")
PLAIN = RunSettings(method="nothing", max_new_tokens=20, memory=False)


class ThreadLink(Link):
    """Engines in this process, called with copies. lost_after: of the next streams, answers after which each ends with Lost"""

    def __init__(self, *engines):
        self.engines, self.count = list(engines), len(engines)
        self.lost_after, self.calls, self.left = [], 0, []

    def about(self):
        return copied(self.engines[0].about())

    def stream(self, call, ended):
        self.calls += 1
        lost_after = self.lost_after.pop(0) if self.lost_after else None
        engine = self.engines[0]
        if lost_after is not None:
            self.engines.append(self.engines.pop(0))  # the next run goes to another
        for number, answer in enumerate(engine.perform(copied(call), ended)):
            if number == lost_after:
                ended.set()
                raise Lost
            yield copied([answer])
        if lost_after == 0:
            raise Lost

    def leave(self, visitor):
        self.left.append(visitor)

    def replicas(self):
        return self.count


def copied(value):
    return pickle.loads(pickle.dumps(value))


def engine(draft_weights):
    return Engine(letters_studio(tiny_pair(draft_weights)))


def assert_idle(studio):
    """The runs of an engine end within a moment."""
    until(lambda: not studio.runner.going_on, "a run goes on")
