"""What an audit found: its values, its file and its table."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specdemo.bench.report import aligned
from specdemo.config.settings import Sampling
from specdemo.session.work.judges import GreedyAudit, SamplingAudit

LEVEL = 0.01  # chance that one audit blames any method of a correct program
FILE = "audit.json"
CONDITIONS = {
    "temperature 1": Sampling(temperature=1.0),
    "top-p 0.9, repetition penalty 1.2": Sampling(
        temperature=1.0, top_p=0.9, repetition_penalty=1.2
    ),
}


@dataclass(frozen=True, slots=True)
class MethodAudit:
    """What became of one method. why_not: why it was not run; problem: how it broke."""

    name: str
    title: str
    lossy: bool
    available: bool
    why_not: str = ""
    problem: str = ""
    greedy: GreedyAudit | None = None
    sampling: tuple[SamplingAudit, ...] = ()

    @property
    def verdict(self) -> str:
        """In two words: held, did not hold, lossy by design, not available, broke."""
        if not self.available:
            return "not available"
        if self.problem or self.greedy is None:
            return "broke"
        if self.lossy:
            return "lossy by design"
        held = self.greedy.held and all(row.held for row in self.sampling)
        return "held" if held else "did not hold"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MethodAudit:
        """From plain values."""
        data = {name: value for name, value in data.items() if name != "verdict"}
        greedy = data["greedy"] and GreedyAudit(**data["greedy"])
        sampling = tuple(SamplingAudit(**row) for row in data["sampling"])
        return cls(**{**data, "greedy": greedy, "sampling": sampling})


@dataclass(frozen=True, slots=True)
class AuditResult:
    """One audit. limit: a p-value below it counts against a method (LEVEL shared among all tests, Bonferroni).

    drafter: a published one that drafted, with its commit where it has one; "" for none
    """

    machine: str
    model: str
    draft: str
    precision: str
    kernel: str
    date: str  # ISO 8601, UTC
    seconds: float
    runs: int
    tokens: int
    limit: float
    methods: tuple[MethodAudit, ...]
    drafter: str = ""

    @property
    def held(self) -> bool:
        """Whether nothing that should hold did not."""
        return not {"broke", "did not hold"} & {method.verdict for method in self.methods}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; with the verdicts, for readers that know no more than JSON."""
        verdicts = [method.verdict for method in self.methods]
        data = asdict(self)
        methods = [
            {**row, "verdict": verdict}
            for row, verdict in zip(data["methods"], verdicts, strict=True)
        ]
        return {**data, "held": self.held, "methods": methods}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AuditResult:
        """From plain values; verdicts are found anew."""
        data = {name: value for name, value in data.items() if name != "held"}
        methods = tuple(MethodAudit.from_dict(method) for method in data["methods"])
        return cls(**{**data, "methods": methods})


def save_last(result: AuditResult, cache_dir: Path) -> None:
    """Keep a result as the last one; a reader sees the old file or the new one, never half of it."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    part = cache_dir / f"{FILE}.{os.getpid()}.part"
    part.write_text(json.dumps(result.to_dict(), indent=1) + "\n", encoding="utf-8")
    part.replace(cache_dir / FILE)


def load_last(cache_dir: Path) -> AuditResult | None:
    """The last audit; None when there is none or its file cannot be read."""
    try:
        return AuditResult.from_dict(json.loads((cache_dir / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def as_table(result: AuditResult) -> str:
    """The audit as Markdown, also readable in a terminal."""
    heads = ["method", "greedy = plain", "same until", "tie margin"]
    for condition in CONDITIONS:
        heads += [condition, "p uniform", "p independent", "p draft"]
    drafts = " and ".join(filter(None, (result.draft, result.drafter)))
    pair = f"{result.model} with {drafts}" if drafts else result.model
    lines = [
        f"{pair}, {result.precision} ({result.kernel}), {result.machine}, {result.date}, {result.seconds:.0f} s.",
        "",
        aligned([*heads, "verdict"], [_cells(method) for method in result.methods]),
        "",
        f"{result.runs} sampled runs of at most {result.tokens} tokens a method and condition. A p-value below "
        f"{result.limit:.1g} counts against a method: {LEVEL:g} shared among all tests.",
    ]
    judged = [method.greedy for method in result.methods if method.greedy]
    if judged and not judged[0].required:
        lines.append(
            f"Greedy outputs are compared, not judged: in {result.precision} a pass of several rows rounds differently "
            "from a pass of one and near-ties may fall the other way. In fp32 they must be equal."
        )
    for method in result.methods:
        lines += [f"{method.name}: {note}" for note in (method.why_not, method.problem) if note]
        lines += [
            f"{method.name}, {row.condition}: {row.impossible} of {row.samples} tokens are ruled out when read again."
            for row in method.sampling
            if row.impossible
        ]
    return "\n".join(lines)


def _cells(method: MethodAudit) -> list[str]:
    greedy = ["-"] * 3
    if method.greedy:
        margin = method.greedy.median_margin
        greedy = [
            f"{method.greedy.equal} of {method.greedy.outputs}",
            f"{100 * method.greedy.same_share:.0f} %",
            "-" if margin is None else f"{margin:.3f}",
        ]
    sampling: list[str] = []
    for row in method.sampling:
        ps = (row.p_uniform, row.p_independent, row.p_draft)
        sampling += [f"{row.samples} tokens", *("-" if p is None else f"{p:.2g}" for p in ps)]
    sampling = sampling or ["-"] * (4 * len(CONDITIONS))
    return [method.name, *greedy, *sampling, method.verdict]
