"""Lookahead policies against the honest baseline, the best constant, and against the oracle's modelled bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean

from specdemo.bench.lanes import LaneResult
from specdemo.bench.report import aligned
from specdemo.engine.cost import CostProfile
from specdemo.trace.events import Verified

CONSTANT = ":constant:"


class Oracle:
    """What a policy that knows how many drafts will be kept would reach: modelled, never run.

    It follows the lane of the longest constant lookahead: at each step it drafts just what was kept there, so
    it says the same and pays for nothing refused. Costs are the measured profile, scaled by what this very
    prompt's plain steps took. Where that lane's draft was kept whole it might have gone further: the bound
    is a little low there.
    """

    def __init__(self, costs: CostProfile) -> None:
        self.costs = costs
        self._sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 4)

    def add(self, task: str, results: Sequence[LaneResult]) -> None:
        """Count one prompt; `results` hold plain decoding and, if the oracle is to say anything, constant lanes."""
        # A lane that is judged as a block says something else.
        constants = [one for one in results if one.name.partition(CONSTANT)[2].isdigit()]
        plain = next((result for result in results if result.name == "nothing"), None)
        if not constants or plain is None or not plain.metrics.steps:
            return
        longest = max(constants, key=lambda result: int(result.name.rpartition(":")[2]))
        per_pass = plain.metrics.verify_seconds / plain.metrics.steps
        scale = per_pass / self.costs.verify_seconds(1)
        # The first draft of a step reads what was committed, too: what a draft token took in the run is the fair cost.
        per_draft = longest.metrics.draft_seconds / max(1, longest.metrics.drafted)
        seconds = 0.0
        for event in longest.events:
            if isinstance(event, Verified):
                kept = len(event.path)
                seconds += scale * self.costs.verify_seconds(1 + kept) + kept * per_draft
        sums = self._sums[task]
        for number, value in enumerate(
            (
                longest.metrics.new_tokens,
                seconds,
                plain.metrics.new_tokens,
                plain.metrics.elapsed_seconds,
            )
        ):
            sums[number] += value

    def speedup(self) -> float | None:
        """Mean over tasks of its tokens a second over plain decoding's; None when nothing was counted."""
        rates = [
            (tokens / seconds) / (plain_tokens / plain_seconds)
            for tokens, seconds, plain_tokens, plain_seconds in self._sums.values()
        ]
        return mean(rates) if rates else None


def regret_table(rows: list[dict[str, object]], oracle: float | None) -> str:
    """Markdown: each policy's mean speedup against the best constant's, and its distance to the oracle's.

    rows: a bench report's; empty text when there is no constant lane to compare with
    The best constant is chosen on these very prompts, which flatters it and not the policies.
    """
    rates = {
        str(row["lane"]): float(row["speedup"])  # type: ignore[arg-type]
        for row in rows
        if row["task"] == "mean" and row["speedup"] is not None
    }
    constants = {lane: rate for lane, rate in rates.items() if CONSTANT in lane}
    others = {lane: rate for lane, rate in rates.items() if ":" in lane and lane not in constants}
    if not constants or not others:
        return ""
    best = max(constants, key=lambda lane: constants[lane])
    shown = {f"{best} (best constant)": constants[best], **others}
    if oracle:
        shown["oracle (modelled)"] = oracle
    head = ["policy", "speedup", "against the best constant", "of the oracle's", "regret"]
    body = [
        [
            lane,
            f"{rate:.2f}x",
            f"{100 * (rate / constants[best] - 1):+.1f} %",
            f"{100 * rate / oracle:.0f} %" if oracle else "-",
            f"{oracle - rate:.2f}x" if oracle else "-",
        ]
        for lane, rate in shown.items()
    ]
    return aligned(head, body)
