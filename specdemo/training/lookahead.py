"""Trains the learned lookahead from recorded runs, and replays those runs to say what a policy would have reached.

Record with a long constant lookahead: a policy can only be judged on drafted tokens that were seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from specdemo.config.errors import UserError
from specdemo.drafters.policies.learned import FEATURES, DraftFeatures, Learned, LookaheadWeights
from specdemo.drafters.policies.lookahead import Constant, Lookahead
from specdemo.engine.cost import CostProfile
from specdemo.engine.types import Outcome, Proposal, Verdict
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.trace.events import Node, RunStarted, Status, Trace, Verified
from specdemo.trace.replay import read

HELD_OUT = 0.25  # share of the prompts
FEWEST_PROMPTS = 8
SEEN_WITH = (
    3,
    6,
)  # lookaheads whose replays give the training rows, so that histories are realistic
DECAY = 1e-3  # L2 on the weights of standardised features
THRESHOLDS = tuple(step / 50 for step in range(1, 46))
BINS = 10

Row = tuple[tuple[float, ...], float]  # values of FEATURES, and the chance that the token was kept


@dataclass(frozen=True, slots=True)
class Chain:
    """One recorded draft.

    confidences: of each drafted token; accepted: how many were kept
    chances: of each tested token to be kept (0 or 1 when greedy); at most one more than were kept
    """

    confidences: tuple[float, ...]
    chances: tuple[float, ...]
    accepted: int


@dataclass(frozen=True, slots=True)
class Run:
    """The drafts of one recorded lane, in order. pair: names of target and draft"""

    prompt: str
    greedy: bool
    chains: tuple[Chain, ...]
    pair: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Modelled:
    """What a policy would have reached on recorded runs: tokens, drafted tokens, steps and modelled seconds."""

    tokens: int
    drafted: int
    steps: int
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds if self.seconds else 0.0


def recorded_runs(traces: Iterable[Trace]) -> list[Run]:
    """The lanes that hold chains with the drafter's own probabilities; everything else is passed over."""
    runs = []
    for trace in traces:
        for name in trace.lanes:
            events = trace.lane(name).events
            header = events[0]
            chains = tuple(
                chain
                for event in events
                if isinstance(event, Verified) and (chain := _chain(event)) is not None
            )
            if chains and isinstance(header, RunStarted):
                pair = (header.target.name, header.draft.name if header.draft else "")
                runs.append(Run(header.prompt, _greedy(header), chains, pair))
    return runs


def _chain(event: Verified) -> Chain | None:
    nodes: Sequence[Node] = event.nodes
    if event.next is None:  # the run ended inside the draft: what came after it was not looked at
        nodes = nodes[: len(event.path)]
    in_line = all(node.parent == place - 1 for place, node in enumerate(nodes))
    if not nodes or not in_line or any(node.confidence is None for node in nodes):
        return None
    tested = nodes[: len(event.path) + 1]
    return Chain(
        tuple(float(node.confidence or 0) for node in nodes),
        tuple(float(node.accept_prob or 0) for node in tested),
        len(event.path),
    )


def _greedy(header: RunStarted) -> bool:
    sampling = header.settings.get("sampling")
    return not (isinstance(sampling, dict) and sampling.get("temperature"))


def steps(run: Run, policy: Lookahead) -> Iterator[tuple[Chain, int]]:
    """Replay a run under another policy. returns: what was left of a recorded draft, and how much of it is drafted.

    A policy that stops earlier takes more steps over the same text. What it drafts in them was recorded too,
    for the draft model was asked after the very same words:

        recorded       a b c d e X      five kept, X refused
        lookahead 2    a b | d e        c is the first step's bonus, the target's own word for X the second's

    The replay of a draft ends where the recorded one does, for every policy alike.
    """
    for chain in run.chains:
        start, end = 0, chain.accepted
        while start <= end and start < len(chain.confidences):
            left = Chain(chain.confidences[start:], chain.chances[start:], end - start)
            allowed = min(len(left.confidences), policy.allowed(()))
            drafted = 0
            while drafted < allowed:
                drafted += 1
                if not policy.go_on(left.confidences[drafted - 1]):
                    break
            yield left, drafted
            policy.observe(_outcome(left, drafted))
            start += min(drafted, left.accepted) + 1


def _outcome(chain: Chain, drafted: int) -> Outcome:
    """What the loop would have told the policy."""
    kept = min(chain.accepted, drafted)
    tested = chain.chances[:drafted]
    proposal = Proposal.chain((0,) * drafted, confidences=chain.confidences[:drafted])
    verdict = Verdict(
        tuple(range(kept)),
        0,
        Status.BONUS if kept == drafted else Status.CORRECTION,
        (*tested, *(None,) * (drafted - len(tested))),
    )
    return Outcome((0,) * (kept + 1), proposal, verdict, 0.0, 0.0)


def model_policy(
    runs: Iterable[Run], make_policy: Callable[[Run], Lookahead], costs: CostProfile
) -> Modelled:
    """Replay runs under a policy and add up measured costs."""
    tokens = drafted = count = 0
    seconds = 0.0
    for run in runs:
        for chain, length in steps(run, make_policy(run)):
            tokens += min(length, chain.accepted) + 1
            drafted += length
            count += 1
            seconds += costs.verify_seconds(1 + length) + length * (costs.draft_step or 0.0)
    return Modelled(tokens, drafted, count, seconds)


def best_constant(runs: Sequence[Run], costs: CostProfile, most: int) -> tuple[int, Modelled]:
    """The constant lookahead that is fastest on these very runs, known only afterwards: the honest baseline."""
    tried = {
        length: model_policy(runs, lambda _, length=length: Constant(length), costs)
        for length in range(1, most + 1)
    }
    best = max(tried, key=lambda length: tried[length].rate)
    return best, tried[best]


def rows_of(runs: Iterable[Run]) -> list[Row]:
    """A row for each tested token of every step, also past where the replayed policy stops."""
    rows: list[Row] = []
    for lookahead in SEEN_WITH:
        for run in runs:
            features = DraftFeatures(greedy=run.greedy)
            for chain, drafted in steps(run, Constant(lookahead)):
                features.begin()
                for confidence, chance in zip(chain.confidences, chain.chances, strict=False):
                    rows.append((features.add(confidence), chance))
                features.end(min(chain.accepted, drafted), drafted)
    return rows


def fit(rows: Sequence[Row]) -> LookaheadWeights:
    """Logistic regression with L2 on standardised features; its threshold is not chosen yet."""
    values, chances = _tensors(rows)
    mean, scale = values.mean(dim=0), values.std(dim=0, correction=0)
    scale[scale < 1e-6] = 1.0  # a feature that never changes, such as `greedy` when all runs are
    inputs = (values - mean) / scale
    weights = torch.zeros(len(FEATURES), dtype=torch.float64, requires_grad=True)
    bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = binary_cross_entropy_with_logits(inputs @ weights + bias, chances)
        value = value + DECAY * weights.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return LookaheadWeights(
        tuple(mean.tolist()),
        tuple(scale.tolist()),
        tuple(weights.tolist()),
        bias.item(),
        threshold=0.0,
    )


def best_threshold(
    runs: Sequence[Run], weights: LookaheadWeights, costs: CostProfile, most: int
) -> float:
    """The survival to stop below that makes these runs fastest."""

    def rate(threshold: float) -> float:
        return model_policy(runs, _learned(replace(weights, threshold=threshold), most), costs).rate

    return max(THRESHOLDS, key=rate)


def train_lookahead(
    traces: Iterable[Trace],
    costs: CostProfile,
    *,
    seed: int = 0,
    progress: ProgressCallback = silent,
) -> tuple[LookaheadWeights, dict[str, Any]]:
    """Learn from recorded runs. returns: the weights, and how they do on prompts that they never saw."""
    runs = recorded_runs(traces)
    training, held = split(runs, seed)
    target, draft = _pair(runs)
    most = max(len(chain.confidences) for run in runs for chain in run.chains)
    rows = rows_of(training)
    progress(Progress("train", None, f"{len(rows)} drafted tokens of {len(training)} runs"))
    weights = fit(rows)
    progress(Progress("train", None, "choosing the threshold"))
    weights = replace(weights, threshold=best_threshold(training, weights, costs, most))
    progress(Progress("evaluate", None, f"{len(held)} runs held out"))
    report = {
        "runs": len(training),
        "rows": len(rows),
        "held_out_runs": len(held),
        "threshold": weights.threshold,
        **judge(rows_of(held), weights, base_rate=fmean(chance for _, chance in rows)),
        "modelled": {
            name: compare(part, weights, costs, most)
            for name, part in (
                ("all", held),
                ("greedy", [run for run in held if run.greedy]),
                ("sampled", [run for run in held if not run.greedy]),
            )
            if part
        },
    }
    facts = {"target": target, "draft": draft, "costs": asdict(costs), "seed": seed, **report}
    return replace(weights, trained_on=facts), report


def _pair(runs: Iterable[Run]) -> tuple[str, str]:
    pairs = {run.pair for run in runs}
    if len(pairs) > 1:
        names = "; ".join(sorted(f"{target} with {draft or 'no draft'}" for target, draft in pairs))
        raise UserError("training.several_pairs", names=names)
    return pairs.pop()


def split(runs: Sequence[Run], seed: int) -> tuple[list[Run], list[Run]]:
    """Training and held-out runs; runs of the same prompt stay together."""
    prompts = sorted({run.prompt for run in runs})
    if len(prompts) < FEWEST_PROMPTS:
        raise UserError("training.few_traces", count=len(prompts), needed=FEWEST_PROMPTS)
    random.Random(seed).shuffle(prompts)
    apart = set(prompts[: max(1, round(HELD_OUT * len(prompts)))])
    return (
        [run for run in runs if run.prompt not in apart],
        [run for run in runs if run.prompt in apart],
    )


def judge(rows: Sequence[Row], weights: LookaheadWeights, base_rate: float) -> dict[str, float]:
    """Log loss, that of always saying the base rate, and the calibration error in equally full bins."""
    values, chances = _tensors(rows)
    mean, scale, slopes = (
        torch.tensor(row, dtype=torch.float64)
        for row in (weights.mean, weights.scale, weights.weights)
    )
    logits = ((values - mean) / scale) @ slopes + weights.bias
    base = torch.full_like(chances, base_rate).logit()
    said, order = logits.sigmoid(), logits.argsort()
    gaps = [
        abs(float(said[part].mean() - chances[part].mean())) * len(part) / len(rows)
        for part in order.tensor_split(BINS)
        if len(part)
    ]
    return {
        "log_loss": float(binary_cross_entropy_with_logits(logits, chances)),
        "base_log_loss": float(binary_cross_entropy_with_logits(base, chances)),
        "calibration_error": sum(gaps),
    }


def compare(
    runs: Sequence[Run], weights: LookaheadWeights, costs: CostProfile, most: int
) -> dict[str, float]:
    """Modelled tokens a second of the learned policy, of the best constant one and of plain decoding."""
    learned = model_policy(runs, _learned(weights, most), costs)
    constant, fastest = best_constant(runs, costs, most)
    return {
        "learned": learned.rate,
        "learned_drafted": learned.drafted / learned.steps,
        "constant": constant,
        "best_constant": fastest.rate,
        "gain": learned.rate / fastest.rate - 1,
        "plain": 1 / costs.verify_seconds(1),
    }


def run_training(
    trace_files: Sequence[str | Path],
    costs: CostProfile | None,
    out: str | Path,
    report: ProgressCallback = silent,
) -> dict[str, Any]:
    """Train from saved traces and write the weights. returns: the held-out numbers.

    costs: None takes the medians of what the traces say was measured when they were recorded
    """
    traces = []
    for number, path in enumerate(trace_files):
        report(Progress("read", number / len(trace_files), str(path)))
        traces.append(read(path).trace)
    weights, numbers = train_lookahead(traces, costs or recorded_costs(traces), progress=report)
    weights.write(out)
    report(Progress("evaluate", 1.0, f"written to {out}"))
    return numbers


def recorded_costs(traces: Iterable[Trace]) -> CostProfile:
    """Medians of the costs in the traces' headers; UserError when none has any."""
    headers = [
        event
        for trace in traces
        for event in trace.events
        if isinstance(event, RunStarted) and event.verify_costs and event.draft_cost is not None
    ]
    if not headers:
        raise UserError("training.no_costs")
    seconds: dict[int, list[float]] = {}
    for header in headers:
        for rows, spent in header.verify_costs:
            seconds.setdefault(rows, []).append(spent)
    verify = sorted((rows, median(spent)) for rows, spent in seconds.items())
    return CostProfile(tuple(verify), median(header.draft_cost or 0.0 for header in headers))


def _learned(weights: LookaheadWeights, most: int) -> Callable[[Run], Lookahead]:
    return lambda run: Learned(weights, most, greedy=run.greedy)


def _tensors(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """returns: (rows, features) and (rows,) float64"""
    values = torch.tensor([values for values, _ in rows], dtype=torch.float64)
    return values, torch.tensor([chance for _, chance in rows], dtype=torch.float64)
