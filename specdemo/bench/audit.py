"""Proves on the loaded model that a method says what plain decoding would: greedy, token by token; sampling, by test."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from specdemo.bench.lanes import run_once, same_prefix
from specdemo.bench.report import aligned
from specdemo.errors import UserError
from specdemo.models.progress import Progress, ProgressCallback, silent
from specdemo.session.conversation import Conversation
from specdemo.session.machine import machine_name
from specdemo.session.studio import Studio
from specdemo.settings import RunSettings, Sampling

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.prefix import PrefixReader

CONTROL = "nothing"  # plain decoding, audited as every method is
LEVEL = 0.01  # of one audit: the chance that it blames any method of a program without fault
TESTS = 3  # a method and condition
TOKENS, RUNS = 24, 24
FILE = "audit.json"
CONDITIONS = {
    "temperature 1": Sampling(temperature=1.0),
    "top-p 0.9, repetition penalty 1.2": Sampling(
        temperature=1.0, top_p=0.9, repetition_penalty=1.2
    ),
}
PROMPTS = (
    "Tell me a short story about a lighthouse keeper.",
    "Why is the sky blue?",
    "Write a Python function that reverses a list.",
    "Count from one to forty in words.",
    "List ten tips for learning a new language.",
    "Write a polite e-mail to a landlord about a broken heater.",
)


@dataclass(frozen=True, slots=True)
class GreedyAudit:
    """How far greedy outputs equal plain decoding's.

    same_share: share of plain decoding's tokens that stand before the outputs part
    median_margin: where they part, the gap between the target's probabilities of the two tokens
    required: fp32, where they must be equal; a pass of several rows rounds differently in less
    """

    outputs: int
    equal: int
    same_share: float
    median_margin: float | None
    required: bool

    @property
    def held(self) -> bool:
        """Whether the outputs are equal, where they must be."""
        return self.equal == self.outputs or not self.required


@dataclass(frozen=True, slots=True)
class SamplingAudit:
    """Whether tokens came from the target's own distributions, each given the tokens before it.

    samples: tokens judged; impossible: those among them that the target, read again, rules out
    p_uniform, p_independent: p-values of the values of `specdemo.bench.statistics.transform`
    p_draft: the same in the order of what the pair's draft overrates, None without a draft
    held: none is below the limit
    """

    condition: str
    samples: int
    impossible: int
    p_uniform: float
    p_independent: float
    p_draft: float | None
    held: bool


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
    """One audit. limit: a p-value below it counts against a method (LEVEL shared among all tests, Bonferroni)."""

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


def run_audit(
    studio: Studio,
    method_names: Sequence[str] | None,
    runs: int = RUNS,
    tokens: int = TOKENS,
    report: ProgressCallback = silent,
) -> AuditResult:
    """The command: audit the named methods, every one when none is named, and keep the result as the last one."""
    result = audit(studio, method_names, runs=runs, tokens=tokens, report=report)
    save_last(result, studio.settings.cache_dir)
    return result


def audit(
    studio: Studio,
    methods: Sequence[str] | None = None,
    *,
    prompts: Sequence[str] = PROMPTS,
    tokens: int = TOKENS,
    runs: int = RUNS,
    report: ProgressCallback = silent,
) -> AuditResult:
    """Audit methods on the loaded pair; plain decoding always, as the control. Raises UserError for unknown names.

    tokens, runs: new tokens a run, and seeded runs a method and condition; greedy runs once a prompt
    """
    if runs < 1 or tokens < 2:
        raise UserError("An audit needs at least one run of two tokens.")
    infos = {info.name: info for info in studio.methods()}
    unknown = set(methods or ()) - set(infos)
    if unknown:
        raise UserError(
            f"There is no drafting method {min(unknown)!r}.",
            advice=f"Choose one of {', '.join(infos)}.",
        )
    names = [CONTROL, *(name for name in methods or infos if name != CONTROL)]
    runnable = [name for name in names if infos[name].available]
    limit = LEVEL / (TESTS * len(CONDITIONS) * len(runnable))
    begun = time.perf_counter()
    report(Progress("audit", 0.0, "plain decoding, greedy"))
    subject = _Subject(studio, prompts, tokens, runs, limit)
    rows: list[MethodAudit] = []
    for name in names:
        info = infos[name]
        row = MethodAudit(name, info.title, info.lossy, info.available, info.why_not)
        if info.available:
            row = subject.audited(row, _part(report, runnable.index(name), len(runnable)))
        rows.append(row)
    model, draft = studio.pair.target.info, studio.pair.draft_info
    return AuditResult(
        machine=machine_name(),
        model=model.name,
        draft=draft.name if draft else "",
        precision=model.precision,
        kernel=model.kernel,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=time.perf_counter() - begun,
        runs=runs,
        tokens=tokens,
        limit=limit,
        methods=tuple(rows),
    )


class _Subject:
    """The loaded target and its prompts: asks methods through the session's door, and reads what they said again."""

    def __init__(
        self, studio: Studio, prompts: Sequence[str], tokens: int, runs: int, limit: float
    ) -> None:
        from specdemo.engine.prefix import PrefixReader
        from specdemo.engine.target import CachedModel
        from specdemo.session.text import encode_conversation

        pair = studio.pair
        self.studio, self.prompts, self.runs, self.limit = studio, prompts, runs, limit
        self.settings = RunSettings(fallback=False, baseline=False, max_new_tokens=tokens)
        self.exact = pair.target.info.precision == "fp32"
        self.reader = PrefixReader(CachedModel(pair.target.decoder))
        self.draft = PrefixReader(pair.open_draft()) if pair.open_draft else None
        self.prompt_ids = [
            encode_conversation(pair.tokenizer, [{"role": "user", "content": prompt}], pair.context)
            for prompt in prompts
        ]
        self.plain = list(self._greedy(CONTROL))

    def audited(self, row: MethodAudit, report: ProgressCallback) -> MethodAudit:
        """The row with what was found."""
        try:
            report(Progress("audit", 0.0, f"{row.title}, greedy"))
            said = list(self._greedy(row.name))
            greedy = judge_greedy(
                self.reader, self.prompt_ids, self.plain, said, required=self.exact
            )
            sampling = tuple(self._sampling(row, place, report) for place in range(len(CONDITIONS)))
        except UserError as error:
            return replace(row, available=False, why_not=error.message)
        except Exception as error:  # noqa: BLE001 - a method that breaks is a finding, not the audit's end
            return replace(row, problem=f"{type(error).__name__}: {error}")
        return replace(row, greedy=greedy, sampling=sampling)

    def _sampling(self, row: MethodAudit, place: int, report: ProgressCallback) -> SamplingAudit:
        condition, sampling = list(CONDITIONS.items())[place]

        def said() -> Iterator[tuple[list[int], Sequence[int]]]:
            with closing(self.studio.open()) as conversation:
                for run in range(self.runs):
                    done = (place + run / self.runs) / len(CONDITIONS)
                    report(Progress("audit", done, f"{row.title}, {condition}"))
                    # Each run has a seed of its own, also on another prompt: equal draws would not be independent.
                    settings = replace(
                        self.settings, method=row.name, sampling=replace(sampling, seed=run)
                    )
                    prompt = run * len(self.prompts) // self.runs
                    yield self.prompt_ids[prompt], self._say(conversation, prompt, settings)

        return judge_sampling(self.reader, self.draft, condition, sampling, said(), self.limit)

    def _greedy(self, method: str) -> Iterator[Sequence[int]]:
        """One output a prompt, twice as long as the sampled ones."""
        settings = replace(
            self.settings, method=method, max_new_tokens=2 * self.settings.max_new_tokens
        )
        with closing(self.studio.open()) as conversation:
            for prompt in range(len(self.prompts)):
                yield self._say(conversation, prompt, settings)

    def _say(self, conversation: Conversation, prompt: int, settings: RunSettings) -> Sequence[int]:
        conversation.reset()
        return run_once(conversation, settings.method, self.prompts[prompt], settings).ids


def judge_greedy(
    reader: PrefixReader,
    prompt_ids: Sequence[Sequence[int]],
    plain: Sequence[Sequence[int]],
    said: Sequence[Sequence[int]],
    *,
    required: bool,
) -> GreedyAudit:
    """Compare greedy outputs with plain decoding's, one of each for each prompt."""
    same = [same_prefix(one, other) for one, other in zip(said, plain, strict=True)]
    margins = []
    for prompt, mine, theirs, place in zip(prompt_ids, said, plain, same, strict=True):
        if place < min(len(mine), len(theirs)):
            probs = reread(reader, prompt, theirs, Sampling(temperature=1.0))[place]
            margins.append(abs(float(probs[mine[place]] - probs[theirs[place]])))
    return GreedyAudit(
        outputs=len(plain),
        equal=sum(tuple(one) == tuple(other) for one, other in zip(said, plain, strict=True)),
        same_share=sum(same) / max(1, sum(map(len, plain))),
        median_margin=median(margins) if margins else None,
        required=required,
    )


def judge_sampling(
    reader: PrefixReader,
    draft: PrefixReader | None,
    condition: str,
    sampling: Sampling,
    said: Iterable[tuple[Sequence[int], Sequence[int]]],
    limit: float,
) -> SamplingAudit:
    """Test sampled outputs against the target's own distributions.

    reader: a fresh one of the target's weights, so that nothing of the engine's own passes is believed
    draft: a fresh one of the pair's draft; a fault of drafting is most likely a lean towards it
    said: prompt ids and new ids of each run
    """
    import torch

    from specdemo.bench.statistics import independence_p, overrated, transform, uniformity_p

    generator = torch.Generator().manual_seed(2**40)  # no run has this seed
    values: list[float] = []
    by_draft: list[float] = []
    impossible = 0
    for prompt_ids, ids in said:
        rows = reread(reader, prompt_ids, ids, sampling)
        for place, (probs, token_id) in enumerate(zip(rows, ids, strict=True)):
            uniforms = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
            values.append(transform(probs, token_id, uniforms[0]))
            if draft is not None:
                guess = draft.probs_after([*prompt_ids, *ids[:place]], len(probs))
                by_draft.append(transform(probs, token_id, uniforms[1], overrated(probs, guess)))
            impossible += not probs[token_id] > 0
    p_uniform, p_independent = uniformity_p(values), independence_p(values)
    p_draft = uniformity_p(by_draft) if draft is not None else None
    held = min(p for p in (p_uniform, p_independent, p_draft) if p is not None) >= limit
    return SamplingAudit(
        condition, len(values), impossible, p_uniform, p_independent, p_draft, held
    )


def reread(
    reader: PrefixReader, prompt_ids: Sequence[int], ids: Sequence[int], sampling: Sampling
) -> Tensor:
    """The distribution that each token of an output should have been drawn from, in one pass over the output.

    reader: of a CachedModel, whose cache keeps what prompts share
    returns: (len(ids), V) float32 — row t follows the prompt and the first t new tokens
    """
    from specdemo.engine.sampling import Shaper
    from specdemo.engine.types import Proposal

    reader.prepare(prompt_ids[:-1])
    output = reader.model.forward(prompt_ids[-1], Proposal.chain(ids[:-1]))  # type: ignore[attr-defined]
    paths = [ids[:place] for place in range(len(ids))]
    return Shaper(sampling).probs(output.logits, prompt_ids, paths).cpu()


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
    pair = f"{result.model} with {result.draft}" if result.draft else result.model
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


def _part(report: ProgressCallback, place: int, parts: int) -> ProgressCallback:
    """Reports of one part of several, as parts of the whole."""
    return lambda progress: report(replace(progress, done=(place + (progress.done or 0.0)) / parts))
