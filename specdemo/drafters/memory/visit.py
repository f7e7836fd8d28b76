"""Results of one session's runs for the next: texts, counts of the target's tokens, a learned head, acceptance.

The head learns by gradient steps between runs, from the target's verdicts (OSD, Liu 2310.07177).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.config.strings import Json, JsonView
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.memory.markov import MarkovCounts
from specdemo.models.networks.chain import CompactModel, CompactWeights
from specdemo.trace.metrics import Metrics

RANK = 16
MOST_PAIRS = 4096  # verdicts that are remembered, the newest
FEWEST_PAIRS = 16  # verdicts of each part: fewer are too few to learn from or to validate on
STEPS, BATCH = 16, 256  # steps and batch of one `learn`: about a tenth of a second
# standard errors by which a step must help: chance alone would pass a smaller gain
SURE_ERRORS = 2.0
JUDGED = 256  # most verdicts on which a step is validated
LEARNING_RATE = 1e-3
PULL = 1.0  # towards the draft as it was trained: times how far its states are moved, relative to their size

Verdicts = tuple[Tensor, Tensor]  # states (n, H), words (n,)


class OnlineHead:
    """A low-rank correction h + B A h of a draft's final states. Belongs to one session; it starts as no correction.

    It learns from pairs of a state and the token that the target committed there. The newest run
    is the validation set: a step is accepted only if it lowers the loss there, and a head that raised it is reset.
    """

    def __init__(self, weights: CompactWeights) -> None:
        hidden = weights.config.hidden_size
        self.weights = weights  # the draft's own, shared: never changed
        generator = torch.Generator().manual_seed(0)
        device = weights.embedding.device
        self.down = (torch.randn(RANK, hidden, generator=generator) / hidden**0.5).to(device)
        self.up = torch.zeros(hidden, RANK, device=device)
        # The newest verdicts, of which `_of_run` are of the newest run: a state (H,), and a column of the vocabulary.
        self._verdicts: deque[tuple[Tensor, int]] = deque(maxlen=MOST_PAIRS)
        self._of_run = 0
        self._unread = False
        self._lessons = 0

    @property
    def memory_bytes(self) -> int:
        return sum(
            one.nbytes for one in (self.down, self.up, *(state for state, _ in self._verdicts))
        )

    def adjust(self, states: Tensor) -> Tensor:
        """The states that the draft's output matrix is to see. states: (n, H). returns: the same"""
        return _adjusted(states, self.down.to(states.dtype), self.up.to(states.dtype))

    def begin_run(self) -> None:
        """Start a new run: verdicts stored from here on belong to it."""
        self._of_run = 0

    def remember(self, states: Iterable[Tensor], token_ids: Tensor) -> None:
        """Store verdicts: n states of the draft, (H,) each, unadjusted, and the target's tokens there, (n,).

        A token outside the draft's vocabulary teaches nothing here and is skipped.
        """
        column_of = self.weights.words.column_of
        pairs = zip(states, token_ids.tolist(), strict=True)
        known = [(state, column_of[token]) for state, token in pairs if token in column_of]
        if not known:
            return
        self._unread = True
        self._of_run += len(known)
        self._verdicts += known

    def learn(self) -> bool:
        """Run a few optimiser steps; called between runs. returns: whether any was accepted"""
        if not self._unread:
            return False
        self._unread = False
        self._lessons += 1
        # The newest run validates; the very first one is split into two halves for both.
        count = len(self._verdicts)
        cut = max(0, count - self._of_run) or count // 2
        known, columns = zip(*self._verdicts, strict=True)
        # Outside inference mode, in which the caller may be: gradients are computed through these.
        with torch.inference_mode(mode=False):
            states = torch.stack(known)
            words = torch.tensor(columns, device=states.device)
        taught = (states[:cut], words[:cut])
        judges = (states[cut:][-JUDGED:], words[cut:][-JUDGED:])
        if min(len(taught[1]), len(judges[1])) < FEWEST_PAIRS:
            return False
        with torch.inference_mode(mode=False), torch.enable_grad():
            return self._steps(taught, judges)

    def _steps(self, taught: Verdicts, judges: Verdicts) -> bool:
        matrix = self.weights.embedding[self.weights.words.ids]
        generator = torch.Generator().manual_seed(self._lessons)
        with torch.no_grad():
            self._drop_if_worse(judges, matrix)
            before = best = _surprises(judges, self.down, self.up, matrix)
        down, up = (x.clone().requires_grad_() for x in (self.down, self.up))
        optimiser = torch.optim.AdamW([down, up], lr=LEARNING_RATE, weight_decay=0.0)
        kept = False
        for _ in range(STEPS):
            rows = torch.randint(len(taught[1]), (BATCH,), generator=generator)
            batch = (taught[0][rows], taught[1][rows])
            loss = _surprises(batch, down, up, matrix).mean() + PULL * _moved(batch[0], down, up)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                judged = _surprises(judges, down, up, matrix)
            if judged.mean() >= best.mean():
                break
            best = judged
            if _surely_less(judged, before):
                kept = True
                self.down, self.up = down.detach().clone(), up.detach().clone()
        return kept

    def _drop_if_worse(self, judges: Verdicts, matrix: Tensor) -> None:
        """Validate on the latest run, on which the head was not trained; reset the head if it raised the loss."""
        none = torch.zeros_like(self.up)
        plain = _surprises(judges, self.down, none, matrix)
        if _surprises(judges, self.down, self.up, matrix).mean() > plain.mean():
            self.up = none


class HeadBias:
    """Applies a head before a draft's output matrix for one run, and collects the target's tokens after its states."""

    def __init__(self, head: OnlineHead, model: CompactModel) -> None:
        self.head = head
        self.model = model
        self._committed: list[int] = []
        self._asked: dict[tuple[int, ...], Tensor] = {}  # states, by the drafted tokens before them

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Start a run: learn from earlier ones, and stay in force until the next `attach`."""
        self.head.learn()
        self.head.begin_run()
        self._committed = list(prompt_ids)
        self._asked.clear()

    def note(self, paths: Sequence[Sequence[int]]) -> None:
        """Store the model's latest states, one for each of these drafts."""
        for path, state in zip(paths, self.model.states, strict=True):
            self._asked[tuple(path)] = state

    def follow(self, committed: Sequence[int]) -> None:
        """Store the target's tokens since the last call; may be called twice for a text."""
        added = list(committed[len(self._committed) :])
        verdicts = [
            (self._asked[tuple(added[:position])], token_id)
            for position, token_id in enumerate(added)
            if tuple(added[:position]) in self._asked
        ]
        if verdicts:
            states, token_ids = zip(*verdicts, strict=True)
            self.head.remember(states, torch.tensor(token_ids))
        self._committed += added
        self._asked.clear()


def attach(model: object, bias: HeadBias | None) -> None:
    """Apply this head to a draft's states from now on; None for no head. Models of other kinds do not support it."""
    if isinstance(model, CompactModel):
        model.adjust = bias.head.adjust if bias else None


def _adjusted(states: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return states + F.linear(F.linear(states, down), up)


def _surprises(verdicts: Verdicts, down: Tensor, up: Tensor, matrix: Tensor) -> Tensor:
    """Cross-entropy of each token of the target. matrix: (W, H). returns: (n,)"""
    states, words = verdicts
    moved = _adjusted(states.float(), down, up).to(matrix.dtype)
    return F.cross_entropy(F.linear(moved, matrix).float(), words, reduction="none")


def _surely_less(one: Tensor, other: Tensor) -> bool:
    """Whether one is less than the other in the mean by more than chance would have it, pair by pair."""
    gain = other - one
    return bool(gain.mean() > SURE_ERRORS * gain.std() / len(gain) ** 0.5)


def _moved(states: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Return the mean squared correction of the states, relative to their mean square."""
    states = states.float()
    return (_adjusted(states, down, up) - states).square().mean() / states.square().mean()


MOST_RUNS = 50  # runs whose acceptance is stored
CARRIED = 8192  # tokens of the texts that go to another process


class Memory:
    """Belongs to one session; never shared."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.texts = SuffixAutomaton()
        self.counts = MarkovCounts()
        self.runs: deque[tuple[str, float]] = deque(maxlen=MOST_RUNS)  # method, accepted share
        self._head: OnlineHead | None = None

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
            self._head = OnlineHead(model.weights)
        return self._head

    def head_bias(self, model: object) -> HeadBias | None:
        head = self.head_of(model)
        return HeadBias(head, model) if isinstance(model, CompactModel) and head else None

    def record(self, method: str, metrics: Metrics) -> None:
        """Record the acceptance of a run; one without drafts has none."""
        if (rate := metrics.drafted_accept_rate) is not None:
            self.runs.append((method, rate))

    def rates(self, method: str) -> tuple[float, ...]:
        """Return the accepted fraction of the drafts of this method's last runs, oldest first."""
        return tuple(rate for name, rate in self.runs if name == method)
