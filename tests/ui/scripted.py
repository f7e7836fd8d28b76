"""Studios whose methods and answers are given, for tests of handlers and of the page."""

import json
from dataclasses import asdict, replace
from functools import partial
from threading import Event

from errors import reported
from scripted_run import TINY, CountingStudio, run_events

from specdemo.config.settings import AUTHORS, Recommended, RunSettings, Sampling, widget_order
from specdemo.files.catalogue import Entry, Pair
from specdemo.session.door import About, MethodInfo
from specdemo.session.studio import Studio
from specdemo.trace.events import Drafted, Node, Status, Verified

VALUES = {name: RunSettings(max_new_tokens=64).value(name) for name in widget_order()}
CHAIN = ("policy", "lookahead", "threshold")
METHODS = [
    MethodInfo("draft_model", "Draft model", "Guesses.", CHAIN, True, "", ("D",)),
    MethodInfo("tree", "Tree", "Branches.", ("nodes",), False, "<b>There is</b> no draft.", ("D",)),
    MethodInfo("look_back", "Look back", "Wrong on purpose.", ("memory",), True, lossy=True),
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

    def events(self, prompt, settings, **options):
        return self.run(prompt, settings, **options)

    def reset(self):
        pass

    def forget(self):
        self.forgotten = True

    def close(self):
        self.closed = True


class ScriptedStudio(CountingStudio):
    """A studio of scripted conversations, which it does not count."""

    loading = None
    about = About(TINY, METHODS)
    recommended = Recommended(Sampling(0.7, 20, 0.8, 1.1), AUTHORS)

    def methods(self):
        return METHODS

    def pairs(self):
        return []

    def loaded_about(self):
        return self.about

    def progress(self):
        return self.loading

    def open(self, visitor=""):
        return ScriptedConversation()


class IdleStudio(Studio):
    """A real studio that loads nothing and says that it is ready."""

    ready, replay_only, about = True, None, About(TINY, METHODS)

    def start(self) -> None:
        pass


HOSTILE = [
    "<img src=x onerror=1>",
    "${6*7}",
    "C:\\users",
    "\u202eevil",
    "\N{WOMAN}\u200d\N{PERSONAL COMPUTER}",
    "<script>window.hacked=1</script>",
]


class HostileConversation(ScriptedConversation):
    """Real events with the worst token texts that a model could write."""

    def run(self, prompt, settings, *, system="", cancel, every=0.0):
        if prompt == "fail":
            raise reported("It happened.", unaffected="All is well.", advice="Try again.")
        told = asdict(settings) if prompt == "drawn" else {}
        steps = 10_000 if prompt in ("forever", "slow") else 8
        for lane in ("plain", "speculative") if settings.baseline else ("speculative",):
            method = "draft_model" if lane == "speculative" else "nothing"
            step = partial(self.step, lane, prompt, settings, cancel)
            lossy = {"lossy": prompt == "lossy"}
            yield from run_events(lane, method, prompt, steps, cancel, step, told=told, **lossy)
            if cancel.is_set():
                return

    def step(self, lane, prompt, settings, cancel, step):
        if prompt == "tree" and lane == "speculative":
            yield from self.branching(step)
        elif prompt == "drawn":
            chance = settings.sampling.temperature
            text = f"{settings.verification} at {chance} from {settings.sampling.seed};"
            yield from self.checked(lane, step, text)
        elif prompt == "shared":
            for event in self.checked(lane, step, "a"):
                crowd = {"runs": 2 + step % 2} if isinstance(event, Verified) else {}
                yield replace(event, **crowd)
        else:
            yield from self.checked(lane, step, HOSTILE[step % len(HOSTILE)])
        if prompt in ("forever", "slow") and cancel.wait(0.01):
            Event().wait(prompt == "slow")  # a second: the last step of a large model

    def checked(self, lane, step, text):
        if lane == "plain":
            own = Node(step, text, status=Status.PLAIN, target_prob=0.5)
            yield Verified(lane, step, (), (), own, 0, 0.1, 0, 0.1 * (step + 1))
            return
        statuses = (
            (Status.ACCEPTED, Status.REJECTED, Status.UNREACHED) if step % 2 else (Status.ACCEPTED,)
        )
        nodes = tuple(
            Node(place, text, place - 1, status, 0.5, 0.25, 0.5, 0.25)
            for place, status in enumerate(statuses)
        )
        own = Node(9, text, status=Status.CORRECTION if step % 2 else Status.BONUS, target_prob=0.5)
        yield Drafted(lane, step, 3, "<b>constant</b>", nodes, 0.01)
        yield Verified(lane, step, nodes, (0,), own, 0.01, 0.1, 0.001, 0.111 * (step + 1))

    def branching(self, step):
        """Siblings: the first is rejected, the second accepted, one child of it rejected; the last is never tested."""
        accepted, rejected, unreached = Status.ACCEPTED, Status.REJECTED, Status.UNREACHED
        fates = ((-1, rejected), (-1, accepted), (0, unreached), (1, rejected), (3, unreached))
        nodes = tuple(
            Node(place, HOSTILE[place], parent, status, 0.5, 0.125, 0.5, 0.25)
            for place, (parent, status) in enumerate(fates)
        )
        own = Node(9, f" own{step}", status=Status.CORRECTION, target_prob=0.75)
        foreseen = {"expected_tokens": 3.0, "expected_seconds": 0.1}
        ahead = {"hit": step % 2 == 0, "saved_seconds": 0.01}
        yield Drafted(
            "speculative", step, 3, "a tree", nodes, 0.01, source="tree", **foreseen, **ahead
        )
        yield Verified("speculative", step, nodes, (1,), own, 0.01, 0.1, 0.001, 0.111 * (step + 1))


CURVE = {"losses": [[10, 4.0], [20, 2.0], [30, 1.5]], "checks": [[20, 2.1], [30, 1.6]]}
CARD = {"kind": "feature", "target": "tiny", "data": [HOSTILE[0]], "seed": 7, **CURVE}


class ReadyStudio(IdleStudio):
    about = replace(IdleStudio.about, cards={"draft_model": CARD})

    def last_audit(self):
        greedy = {"outputs": 4, "equal": 3, "same_share": 0.9, "median_margin": 0.01}
        row = {"name": "tree", "title": HOSTILE[0], "available": True, "greedy": greedy}
        return {"machine": "here", "model": "tiny", "limit": 0.001, "methods": [row]}

    def pairs(self):
        return [Pair(Entry("smollm2-135m-instruct", "tiny", "", 1, ""), None)]

    def open(self, _visitor=""):
        return HostileConversation()


def lines(stream):
    return [json.loads(line) for line in stream.splitlines()]
