"""Lookahead policies against the honest baseline, the best constant, and against the oracle's bound."""

from __future__ import annotations

from specdemo.bench.report import aligned
from specdemo.settings import ORACLE


def regret_table(rows: list[dict[str, object]]) -> str:
    """Markdown: each policy's mean tokens a second over the best constant's, and its distance to the oracle's.

    rows: a bench report's; empty text when there is no constant lane to compare with
    The best constant is chosen on these very prompts, which flatters it and not the policies.
    """
    rates = {
        str(row["lane"]): float(row["speedup"])  # type: ignore[arg-type]
        for row in rows
        if row["task"] == "mean" and row["speedup"] is not None
    }
    constants = {lane: rate for lane, rate in rates.items() if ":constant:" in lane}
    others = {lane: rate for lane, rate in rates.items() if ":" in lane and lane not in constants}
    if not constants or not others:
        return ""
    best = max(constants, key=lambda lane: constants[lane])
    bound = next((rate for lane, rate in rates.items() if lane.endswith(f":{ORACLE}")), None)
    head = ["policy", "speedup", "against the best constant", "of the oracle's", "regret"]
    body = [
        [
            f"{lane} (best constant)" if lane == best else lane,
            f"{rate:.2f}x",
            f"{100 * (rate / constants[best] - 1):+.1f} %",
            f"{100 * rate / bound:.0f} %" if bound else "-",
            f"{bound - rate:.2f}x" if bound else "-",
        ]
        for lane, rate in {best: constants[best], **others}.items()
    ]
    return aligned(head, body)
