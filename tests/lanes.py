"""Concurrent runs of tiny models on one runner."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from conftest import steps_of

from specdemo.drafters.base import Plain
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

PROMPTS = [[3, 14, 15, 9], [26, 5, 35], [8, 9, 7, 9, 3], [2, 3, 8]]
WAIT = 30.0


def lane(decoder, drafter, prompt, new_tokens=24, **options):
    return steps_of(CachedModel(decoder), drafter, prompt, new_tokens, **options)


class Watched:
    """A decoder that calls a function with the inputs of each pass before it runs. chunk: rows of its chunks"""

    def __init__(self, decoder, before, chunk=0):
        self.decoder, self.before = decoder, before
        self.config, self.chunk = decoder.config, chunk or decoder.chunk

    def run(self, passes):
        self.before(passes)
        return self.decoder.run(passes)


def together(runner, lanes):
    """Consume every run in a separate thread; all start before the first step. Returns events, or the error, of each."""
    seen, free = threading.Event(), threading.Event()

    def hold():
        seen.set()
        assert free.wait(WAIT)

    views = [runner.run(steps) for steps in lanes]
    pool = ThreadPoolExecutor(len(lanes) + 1)
    pool.submit(runner.call, hold)
    assert seen.wait(WAIT)
    results = [pool.submit(list, view) for view in views]
    while runner._inbox.qsize() < len(lanes):
        pass
    free.set()
    # A run that waits for ever fails here.
    found = [result.exception(WAIT) or result.result() for result in results]
    pool.shutdown()
    return found


class Slow(Plain):
    """A drafter that proposes nothing after a delay, and records its outcomes."""

    def __init__(self, seconds=0.0):
        self.seconds, self.outcomes = seconds, []

    def propose(self, committed, budget):
        time.sleep(self.seconds)
        return Proposal()

    def observe(self, outcome):
        self.outcomes.append(outcome)


class Scripted(Drafter):
    """Proposes the result of a function of the committed text and the budget."""

    def __init__(self, script: Callable[[Sequence[int], int], Proposal]) -> None:
        self.script = script

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        return self.script(committed, budget)


class Always(Scripted):
    """Drafts these tokens at every position. prompts, texts: that it has read and continued; outcomes: of its drafts"""

    def __init__(self, token_ids: Sequence[int], confidence: float, **fields: object) -> None:
        fields = {"lookahead": len(token_ids), "reasons": (Reason("script"),), **fields}
        sure = (confidence,) * len(token_ids)
        self.prompts, self.texts, self.outcomes = [], [], []

        def script(text: Sequence[int], budget: int) -> Proposal:
            self.texts.append(text)
            return Proposal.chain(token_ids[:budget], confidences=sure[:budget], **fields)

        super().__init__(script)

    def start(self, prompt_ids: Sequence[int]) -> None:
        self.prompts.append(prompt_ids)

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
