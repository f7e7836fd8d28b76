"""Experiments on the loaded pair: the value of perfect and of random drafts, and the bias from dropping drawn tokens."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from specdemo.config.settings import RunSettings, Sampling
from specdemo.config.strings import Json
from specdemo.session.conversation import Conversation
from specdemo.session.runs import Caches, failure
from specdemo.session.text import encode_prompt
from specdemo.session.work.judges import reread
from specdemo.trace.events import PLAIN, SPECULATIVE, Event, Reason, RunFailed, RunStarted, Verified
from specdemo.trace.metrics import measure, output_ids, same_prefix

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.types import Drafter
    from specdemo.models.pair import LoadedPair
    from specdemo.session.studio import Studio

LOOKAHEADS = range(1, 9)
RUN_TOKENS = 64  # new tokens of each run
PROMPT = "Explain photosynthesis to a ten-year-old."
CORRECTIONS = 3  # corrections of a perfect draft to the target's choices in passes of its width
TOY_RUNS = 2_000
TEXT_TOKENS = 48  # tokens of the real model's text
SHOWN = 3  # tokens of the position where most is moved


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One measured run of RUN_TOKENS tokens.

    lookahead: 0 for plain decoding; drafted, accepted: tokens
    seconds, verify_seconds: total decoding time, and the part in the target's passes
    same: tokens before the first difference from plain decoding
    retold: whether the perfect draft was corrected by the choices of passes of this width
    runs: largest number of runs that shared one of its passes
    """

    lookahead: int
    steps: int
    tokens: int
    drafted: int
    accepted: int
    seconds: float
    verify_seconds: float
    same: int
    retold: bool
    runs: int


def two_words() -> dict[str, Json]:
    """Run DSpark's counter-example through the real loop: `stop` after an unlikely word, or drop it (`back`).

    returns: of each the measured share of the first of two words, the runs, and p: the probability of such counts under the target
    """
    from specdemo.session.work.wrong_rules import demonstrate

    stop, _, back = demonstrate(TOY_RUNS)
    return {
        name: {"share": row.measured[0], "runs": row.runs, "p": row.p_target}
        for name, row in (("stop", stop), ("back", back))
    }


def perfect_lanes(conversation: Conversation, cancel: threading.Event) -> Iterator[Json]:
    """Run drafts that contain the greedy answer, at each lookahead; plain decoding first and last. yields: each MeasuredRun

    A pass of several rows rounds differently from a pass of one row, so a near tie may refuse a draft. The draft is then
    corrected to the choice at this width, and the run is repeated.
    """
    from specdemo.drafters.base import always_right

    bench = _Bench(conversation.host, cancel, RUN_TOKENS, Sampling())
    yield asdict(bench.lane(0))
    for lookahead in LOOKAHEADS:
        answer = bench.plain
        for attempt in range(CORRECTIONS):
            events = bench.run(always_right([*bench.prompt_ids, *answer], lookahead))
            lane = bench.summed(lookahead, events, retold=attempt > 0)
            if lane.accepted == lane.drafted or cancel.is_set():
                break
            answer = output_ids(events)
        if cancel.is_set():
            return
        yield asdict(lane)
    yield asdict(bench.lane(0))


def random_lanes(conversation: Conversation, cancel: threading.Event) -> Iterator[Json]:
    """Drafts drawn evenly from all words, at each lookahead; plain decoding first and last. yields: each MeasuredRun"""
    bench = _Bench(conversation.host, cancel, RUN_TOKENS, Sampling())
    yield asdict(bench.lane(0))
    for lookahead in LOOKAHEADS:
        lane = bench.lane(lookahead, _evenly(lookahead, bench.pair.vocabulary_size))
        if cancel.is_set():
            return
        yield asdict(lane)
    yield asdict(bench.lane(0))


def places_taken_back(conversation: Conversation, cancel: threading.Event) -> Iterator[Json]:
    """Drop drawn tokens along a text that the target draws at temperature 1. yields: the result, or nothing without a draft model"""
    host = conversation.host
    pair = host.loaded.pair
    if pair.open_draft is None:
        return
    bench = _Bench(host, cancel, TEXT_TOKENS, Sampling(temperature=1.0))
    ids = bench.plain
    if ids and not cancel.is_set():
        yield host.runner.call(lambda: _moved(pair, bench.prompt_ids, ids))


class _Bench:
    """One prompt and caches of its own, in which runs follow one another. plain: ids of plain decoding's answer"""

    def __init__(
        self, host: Studio, cancel: threading.Event, tokens: int, sampling: Sampling
    ) -> None:
        self.host, self.cancel, self.tokens = host, cancel, tokens
        self.pair = host.loaded.pair
        self.settings = RunSettings(method="nothing", memory=False, sampling=sampling)
        self.prompt_ids = encode_prompt(self.pair.tokenizer, PROMPT, self.pair.context)
        self.caches = host.runner.call(lambda: Caches(host.loaded))
        self.plain = output_ids(self.run(None))  # warms up too: not counted

    def run(self, drafter: Drafter | None) -> list[Event]:
        """One run's events; plain decoding without a drafter. Raises UserError when it breaks."""
        from specdemo.engine.types import Limits

        header = RunStarted(
            lane=SPECULATIVE if drafter else PLAIN,
            method="nothing",
            prompt=PROMPT,
            settings={},
            target=self.pair.target.info,
        )
        lane = self.caches.lane(
            self.prompt_ids,
            self.settings,
            header,
            cancelled=self.cancel.is_set,
            limits=Limits(self.tokens),
            drafter=drafter,
        )
        events = list(self.host.runner.run(lane))
        for event in events:
            if isinstance(event, RunFailed):
                raise failure(event)
        return events

    def lane(self, lookahead: int, drafter: Drafter | None = None) -> MeasuredRun:
        return self.summed(lookahead, self.run(drafter))

    def summed(
        self, lookahead: int, events: Sequence[Event], *, retold: bool = False
    ) -> MeasuredRun:
        metrics = measure(events)
        return MeasuredRun(
            lookahead,
            metrics.steps,
            metrics.new_tokens,
            metrics.drafted,
            metrics.accepted,
            metrics.elapsed_seconds,
            metrics.verify_seconds,
            same_prefix(output_ids(events), self.plain),
            retold,
            max((event.runs or 1 for event in events if isinstance(event, Verified)), default=1),
        )


def _evenly(lookahead: int, vocabulary_size: int) -> Drafter:
    from specdemo.drafters.base import Scripted
    from specdemo.engine.types import Proposal

    words = random.Random(lookahead)

    def script(_committed: Sequence[int], budget: int) -> Proposal:
        ids = [words.randrange(vocabulary_size) for _ in range(min(budget, lookahead))]
        return Proposal.chain(ids, lookahead=lookahead, reasons=(Reason("random"),))

    return Scripted(script)


def _moved(pair: LoadedPair, prompt_ids: Sequence[int], ids: Sequence[int]) -> Json:
    """Read the text again with both models, and sum up the effect of dropping a drawn token on the next one at each position.

    returns: exact sums over the vocabulary; `moved` and `most` are the mean and largest total variation from the target's
        distribution, `kept` is the largest if nothing is dropped; `before` is the end of the text at the position of the
        largest, `tokens` are those whose probability changes most there
    """
    import torch

    from specdemo.engine.target import PrefixReader

    threshold = RunSettings().threshold
    target = reread(PrefixReader(pair.open_target()), prompt_ids, ids, Sampling(temperature=1.0))
    assert pair.open_draft is not None  # examined by places_taken_back
    reader = PrefixReader(pair.open_draft())
    ids = ids[: reader.room(len(prompt_ids), len(ids))]
    target, draft = target[: len(ids)], torch.zeros(len(ids), target.shape[1])
    for position in range(len(ids)):
        text = [*prompt_ids, *ids[:position]]
        draft[position] = reader.probs_after(text, target.shape[1])
    taken, kept = next_token(target, draft, threshold), next_token(target, draft, 0.0)
    moved = (taken - target).abs().sum(dim=-1) / 2
    worst = int(moved.argmax())
    changes = (taken[worst] - target[worst]).abs().topk(SHOWN).indices.tolist()
    decode: Callable[..., Any] = pair.tokenizer.decode
    return {
        "positions": len(ids),
        "threshold": threshold,
        "moved": float(moved.mean()),
        "most": float(moved[worst]),
        "kept": float(((kept - target).abs().sum(dim=-1) / 2).max()),
        "before": decode(list(ids[max(0, worst - 8) : worst])),
        "tokens": [
            {
                "text": decode([token]),
                "target": float(target[worst, token]),
                "taken": float(taken[worst, token]),
            }
            for token in changes
        ],
    }


def next_token(target: Tensor, draft: Tensor, threshold: float) -> Tensor:
    """Distribution of the next token if a drafted token is dropped when its draft probability is below the threshold.

    target, draft: (T, V) float32 — one row per position; returns: (T, V)

        target (.7, .3)  draft (.5, .5)  nothing dropped: (.5, .3) + .2 x (1, 0) = (.7, .3)
                         draft (.6, .4), threshold .5  word 1 is dropped: (.6, 0) + .4 x (.7, .3) = (.88, .12)
    """
    shown = draft * (draft >= threshold)
    accepted = shown.minimum(target)
    left = (target - draft).clamp_(min=0)
    left = left / left.sum(dim=-1, keepdim=True).clamp_(min=1e-30)
    refused = (shown - accepted).sum(dim=-1, keepdim=True)
    dropped = (draft - shown).sum(dim=-1, keepdim=True)
    return accepted + refused * left + dropped * target
