"""A studio whose methods and answers are given, for tests of handlers."""

import json

from scripted_run import TINY, run_events

from specdemo.config.settings import AUTHORS, AppSettings, Recommended, RunSettings, Sampling
from specdemo.session.admission import Admission
from specdemo.session.door import About, MethodInfo
from specdemo.session.studio import Studio
from specdemo.trace.events import Node, Status, Verified

VALUES = RunSettings(max_new_tokens=64).values()
del VALUES["detail"]  # settings without a widget
METHODS = [
    MethodInfo("draft_model", "Draft model", "Guesses.", ("policy", "lookahead"), True, "", ("D",)),
    MethodInfo("tree", "Tree", "Branches.", ("nodes",), False, "There is no draft.", ("D",)),
    MethodInfo("look_back", "Look back", "Wrong on purpose.", (), True, lossy=True),
]


class ScriptedConversation:
    """A conversation with given events; it records whether it was closed."""

    def __init__(self, error=None, steps=3):
        self.error = error
        self.steps = steps
        self.closed = False

    def run(self, prompt, settings, *, system="", cancel, every=0.0):
        if self.error:
            raise self.error

        def step(number):
            own = Node(number, f" {prompt}{number}", status=Status.PLAIN)
            yield Verified("speculative", number, (), (), own, 0, 0.1, 0, 0.1 * (number + 1))

        yield from run_events("speculative", settings.method, prompt, self.steps, cancel, step)

    def reset(self):
        pass

    def forget(self):
        self.forgotten = True

    def close(self):
        self.closed = True


class ScriptedStudio:
    admission = Admission(lambda: 8, 8)
    settings = AppSettings()
    ready = True
    error = None
    whole = False
    replay_only = None
    audited = None
    cards: dict[str, dict[str, object]] = {}
    loading = None
    target = TINY
    remark = ""
    recommended = Recommended(Sampling(0.7, 20, 0.8, 1.1), AUTHORS)

    def methods(self):
        return METHODS

    def last_audit(self):
        return self.audited

    def card(self, method):
        return self.cards.get(method)

    def progress(self):
        return self.loading

    def open(self, visitor=""):
        return ScriptedConversation()


class IdleStudio(Studio):
    """A real studio that loads nothing and says that it is ready."""

    ready, replay_only, about = True, None, About(TINY, METHODS)

    def start(self) -> None:
        pass

    def progress(self) -> None:
        return None


def lines(stream):
    return [json.loads(line) for line in stream.splitlines()]
