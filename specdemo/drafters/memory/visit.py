"""Results of one session's runs for the next: texts, counts of the target's tokens, a learned head, acceptance."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.strings import Json, JsonView
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.memory.markov import MarkovCounts
from specdemo.drafters.memory.online_head import HeadBias, OnlineHead
from specdemo.models.networks.chain import CompactModel
from specdemo.trace.metrics import Metrics

MOST_RUNS = 50  # runs whose acceptance is stored
CARRIED = 8192  # tokens of the texts that go to another process


class Memory:
    """Belongs to one session; never shared. In this process only, except for a head that the user saves.

    saved_head: file from which a head starts, if it exists
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.texts = SuffixAutomaton()
        self.counts = MarkovCounts()
        self.runs: deque[tuple[str, float]] = deque(maxlen=MOST_RUNS)  # method, accepted share
        self._head: OnlineHead | None = None
        self.saved_head: Path | None = None

    def carried(self) -> Json:
        """Return the state for another process: the newest texts and the acceptance of runs, as JSON values.

        Counts and the head are not included: they start from scratch there.
        """
        texts: list[list[int]] = [[]]
        for token_id in self.texts.text[-CARRIED:]:
            if token_id < 0:
                texts.append([])
            else:
                texts[-1].append(token_id)
        return {"texts": [text for text in texts if text], "runs": [list(run) for run in self.runs]}

    def go_on(self, carried: JsonView) -> None:
        """Start over from another process's state."""
        self.forget()
        for text in carried["texts"]:
            self.texts.begin(text)
        self.runs.extend((method, rate) for method, rate in carried["runs"])

    @property
    def memory_bytes(self) -> int:
        head = self._head.memory_bytes if self._head else 0
        return self.texts.memory_bytes + self.counts.memory_bytes + head

    def head_of(self, model: object) -> OnlineHead | None:
        """The head of this draft model, made when first needed; None for a model whose states are not known."""
        if not isinstance(model, CompactModel):
            return None
        if self._head is None or self._head.weights is not model.weights:
            head = OnlineHead(model.weights)
            if self.saved_head and self.saved_head.exists():
                head.load(self.saved_head)
            self._head = head
        return self._head

    def head_bias(self, model: object) -> HeadBias | None:
        head = self.head_of(model)
        return HeadBias(head, model) if isinstance(model, CompactModel) and head else None

    def save_head(self, path: Path) -> None:
        """Learn from the last run too, and write the head. Raises UserError where no run has used one."""
        if self._head is None:
            raise UserError("cli.nothing_learned")
        self._head.learn()
        self._head.save(path)

    def record(self, method: str, metrics: Metrics) -> None:
        """Record the acceptance of a run; one without drafts has none."""
        if (rate := metrics.drafted_accept_rate) is not None:
            self.runs.append((method, rate))

    def rates(self, method: str) -> tuple[float, ...]:
        """Return the accepted fraction of the drafts of this method's last runs, oldest first."""
        return tuple(rate for name, rate in self.runs if name == method)
