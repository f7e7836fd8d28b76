"""Outcomes of scripted steps, from which drafters and costs learn, and answers at a given rate."""

from specdemo.bench.lanes import LaneResult
from specdemo.engine.clock import ALONE
from specdemo.engine.types import Outcome, Proposal, Verdict
from specdemo.trace.events import Status
from specdemo.trace.metrics import Metrics


def judged(proposal, kept, draft_seconds=0.0, verify_seconds=0.01, sharing=ALONE):
    """A step that accepts so many tokens of a chain, or all of fewer, and rejects the next one."""
    kept = min(kept, len(proposal))
    chances = [1.0] * kept + [0.0] * (kept < len(proposal))
    chances += [None] * (len(proposal) - len(chances))
    verdict = Verdict(tuple(range(kept)), 99, Status.BONUS, tuple(chances))
    new_ids = (*proposal.token_ids[:kept], 99)
    return Outcome(new_ids, proposal, verdict, draft_seconds, verify_seconds, sharing)


def chain(confidences, kept, draft_seconds=0.0, verify_seconds=0.01, sharing=ALONE):
    """The same of a chain with these confidences."""
    proposal = Proposal.chain(range(len(confidences)), confidences=tuple(confidences))
    return judged(proposal, kept, draft_seconds, verify_seconds, sharing)


def answered(lane, rate, *, repeats=False, **draws):
    """An answer of two tokens at so many tokens per second. draws: of its metrics"""
    metrics = Metrics(2, 2, 0, 0, 0, 0, 0.0, 2 / rate, 0.0, 2 / rate, 0.0, **draws)
    return LaneResult(lane, metrics, (1, 2), repeats=repeats)
