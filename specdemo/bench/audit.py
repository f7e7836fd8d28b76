"""Test on the loaded model that methods do not change its output: greedy token by token, sampling by statistics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace

from specdemo.bench.lanes import LaneLost, LaneResult, Paired, run_once
from specdemo.bench.results import STRINGS, Result, Table, as_percent, sameness
from specdemo.bench.statistics import SamplingAudit, judge_sampling
from specdemo.bench.wrong_rules import Control, controls
from specdemo.config.errors import UserError
from specdemo.config.settings import TOKEN, RunSettings, Sampling
from specdemo.engine.target import CachedModel, PrefixReader
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.store import write_file
from specdemo.models.pair import COPY, DRAFT
from specdemo.session.studio import AUDIT_FILE, Conversation, Studio
from specdemo.session.text import encode_prompt
from specdemo.trace.events import NOTHING

FALSE_ALARMS = 0.01  # probability that one audit finds a fault in a correct program
TESTS = 3  # statistical tests per method and condition
CONDITIONS = {
    "temperature 1": Sampling(temperature=1.0),
    "top-p 0.9, repetition penalty 1.2": Sampling(
        temperature=1.0, top_p=0.9, repetition_penalty=1.2
    ),
}
PROMPTS: list[str] = STRINGS["audit"]["prompts"]


@dataclass(frozen=True, slots=True)
class GreedyAudit:
    """Comparison of greedy outputs with plain decoding.

    same_share, median_margin: see `results.sameness`
    required: fp32, in which the outputs must be equal; at lower precision a pass of several rows rounds differently
    """

    outputs: int
    equal: int
    same_share: float
    median_margin: float | None
    required: bool

    @classmethod
    def of(cls, answers: Sequence[Paired], *, required: bool) -> GreedyAudit:
        rates = sameness(answers)
        equal = sum(answer.result.ids == answer.plain.ids for answer in answers)
        share, margin = rates["same_prefix_rate"] or 0.0, rates["flip_margin"]
        return cls(len(answers), equal, share, margin, required)

    @property
    def held(self) -> bool:
        """Whether the outputs are equal, where they must be."""
        return self.equal == self.outputs or not self.required


@dataclass(frozen=True, slots=True)
class MethodAudit:
    """Findings about one method. why_not: reason that it was not run; problem: the error that ended it"""

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
        """One of: held, did not hold, lossy by design, not available, broke."""
        if not self.available:
            return "not available"
        if self.problem or self.greedy is None:
            return "broke"
        if self.lossy:
            return "lossy by design"
        held = self.greedy.held and all(row.held for row in self.sampling)
        return "held" if held else "did not hold"

    def cells(self) -> list[str]:
        greedy = ["-"] * 3
        if self.greedy:
            margin = self.greedy.median_margin
            equal = f"{self.greedy.equal} of {self.greedy.outputs}"
            shown = "-" if margin is None else f"{margin:.3f}"
            greedy = [equal, as_percent(self.greedy.same_share), shown]
        sampling: list[str] = []
        for row in self.sampling:
            ps = (row.p_uniform, row.p_independent, row.p_draft)
            sampling += [f"{row.samples} tokens", *("-" if p is None else f"{p:.2g}" for p in ps)]
        return [self.name, *greedy, *(sampling or ["-"] * (4 * len(CONDITIONS))), self.verdict]


@dataclass(frozen=True, slots=True)
class AuditResult:
    """One audit. limit: a p-value below it counts against a method (FALSE_ALARMS divided by the number of tests, Bonferroni).

    drafter: name of a published drafter, with its commit if it has one; "" for none
    """

    model: str
    draft: str
    precision: str
    kernel: str
    runs: int
    tokens: int
    limit: float
    seconds: float = 0.0
    methods: tuple[MethodAudit, ...] = ()
    drafter: str = ""
    controls: tuple[Control, ...] = ()

    @property
    def held(self) -> bool:
        """Whether every method that claims to be lossless ran and held, and the tests found both wrong rules."""
        faults = {"broke", "did not hold"} & {method.verdict for method in self.methods}
        return not faults and all(control.found(self.limit) for control in self.controls)

    def result(self) -> Result:
        """Return the tables, and all values with the verdicts for readers that have the file only."""
        methods = [{**asdict(method), "verdict": method.verdict} for method in self.methods]
        columns = ["method", "greedy = plain", "same until", "tie margin"]
        for condition in CONDITIONS:
            columns += [condition, "p uniform", "p independent", "p draft"]
        drafts = " and ".join(filter(None, (self.draft, self.drafter)))
        pair = f"{self.model} with {drafts}" if drafts else self.model
        rows = [method.cells() for method in self.methods]
        values = {**asdict(self), "held": self.held, "methods": methods}
        found = Result("Audit", notes=self._notes(), values=values)
        about = f"{pair}, {self.precision} ({self.kernel}), {found.machine}, {found.date}, {self.seconds:.0f} s."
        table = Table([*columns, "verdict"], rows, about=about)
        found.tables = [table, controls_table(self.controls, self.limit)]
        return found

    def _notes(self) -> list[str]:
        texts, limits = STRINGS["audit"], {"limit": self.limit, "false_alarms": FALSE_ALARMS}
        notes = [texts["limit"].format(runs=self.runs, tokens=self.tokens, **limits)]
        compared = [method.greedy for method in self.methods if method.greedy]
        if compared and not compared[0].required:
            notes.append(texts["rounding"].format(precision=self.precision))
        for method in self.methods:
            notes += [f"{method.name}: {note}" for note in (method.why_not, method.problem) if note]
            notes += [
                texts["impossible"].format(method=method.name, **asdict(row))
                for row in method.sampling
                if row.impossible
            ]
        return notes


def controls_table(controls: Sequence[Control], limit: float) -> Table:
    """Return a row for each wrong rule that the audit's tests must find."""
    rows = [
        [
            one.name,
            one.samples,
            f"{one.p_uniform:.2g}",
            f"{one.p_draft:.2g}",
            "found" if one.found(limit) else "missed: the tests are broken",
        ]
        for one in controls
    ]
    columns = ["wrong rule on a few tokens", "samples", "p uniform", "p draft", ""]
    return Table(columns, rows, **STRINGS["audit"]["controls"])


def run_audit(
    studio: Studio,
    methods: Sequence[str] | None,
    runs: int,
    tokens: int,
    report: ProgressCallback = silent,
) -> Iterator[AuditResult]:
    """Audit methods on the loaded pair and save the result as the last one. Raises UserError for unknown names.

    methods: all if None; plain decoding is always audited, as the control
    runs: seeded runs for each method and condition, next to one greedy run for each prompt
    tokens: new tokens of a sampled run
    yields: the result so far, after each method
    """
    infos = {info.name: info for info in studio.methods()}
    unknown = set(methods or ()) - set(infos)
    if unknown:
        raise UserError("method.unknown", method=min(unknown), names=", ".join(infos))
    names = [NOTHING, *(name for name in methods or infos if name != NOTHING)]
    runnable = [name for name in names if infos[name].available]
    limit = FALSE_ALARMS / (TESTS * len(CONDITIONS) * len(runnable))
    started = time.perf_counter()
    report(Progress("audit", 0.0, "positive controls"))
    wrong_rules = controls()
    report(Progress("audit", 0.0, "plain decoding, greedy"))
    auditor = _Auditor(studio, tokens, runs, limit)
    model, draft = studio.pair.target.info, studio.pair.draft_info
    found = AuditResult(
        model=model.name,
        draft=draft.name if draft else "",
        precision=model.precision,
        kernel=model.kernel,
        runs=runs,
        tokens=tokens,
        limit=limit,
        drafter=_published_drafter(studio),
        controls=wrong_rules,
    )
    for name in names:
        info = infos[name]
        row = MethodAudit(name, info.title, info.lossy, info.available, info.why_not)
        if info.available:
            row = auditor.audited(row, _part(report, runnable.index(name), len(runnable)))
        seconds = time.perf_counter() - started
        found = replace(found, methods=(*found.methods, row), seconds=seconds)
        yield found
    cache_dir = studio.settings.cache_dir
    with suppress(OSError):  # the page shows the last audit; this one is reported all the same
        cache_dir.mkdir(parents=True, exist_ok=True)
        write_file(cache_dir / AUDIT_FILE, json.dumps(found.result().to_dict(), indent=1) + "\n")


def _published_drafter(studio: Studio) -> str:
    """Return the names in the files of the loaded pair's published drafter; "" for none."""
    if studio.settings.drafter in ("", "none"):
        return ""
    # Only a published drafter has a name and no card: `train` writes a card into the config of every drafter.
    drafts = studio.pair.drafts.items()
    infos = [one.info for need, one in drafts if need not in (DRAFT, COPY) and not one.card]
    names = (" ".join(filter(None, (one.name, one.revision[:12]))) for one in infos)
    return " and ".join(dict.fromkeys(names))


class _Auditor:
    """The loaded target and its prompts. It runs methods through the session and reads their outputs with fresh passes."""

    def __init__(self, studio: Studio, tokens: int, runs: int, limit: float) -> None:
        pair = studio.pair
        self.studio, self.runs, self.limit = studio, runs, limit
        # The rule `coupled` needs no statistics: its texts are compared by `bench.seeds`.
        self.settings = RunSettings(
            fallback=False, baseline=False, max_new_tokens=tokens, verification=TOKEN
        )
        self.exact = pair.target.info.precision == "fp32"
        self.reader = PrefixReader(CachedModel(pair.target.decoder))
        draft = pair.open_draft(DRAFT, pair.open_target()) if pair.draft_info else None
        self.draft = draft if isinstance(draft, PrefixReader) else None
        self.prompt_ids = [
            encode_prompt(pair.tokenizer, prompt, pair.context) for prompt in PROMPTS
        ]
        try:
            self.plain = list(self._greedy(NOTHING))
        except LaneLost as error:
            raise UserError("bench.plain_lost", message=error) from error

    def audited(self, row: MethodAudit, report: ProgressCallback) -> MethodAudit:
        try:
            report(Progress("audit", 0.0, f"{row.title}, greedy"))
            pairs = list(map(Paired, self._greedy(row.name), self.plain))
            greedy = GreedyAudit.of(pairs, required=self.exact)
            numbers = range(len(CONDITIONS))
            sampling = tuple(self._sampling(row, number, report) for number in numbers)
        except UserError as error:
            return replace(row, available=False, why_not=error.message)
        except Exception as error:  # noqa: BLE001 - a method that breaks is a finding and does not end the audit
            return replace(row, problem=f"{type(error).__name__}: {error}")
        return replace(row, greedy=greedy, sampling=sampling)

    def _sampling(self, row: MethodAudit, number: int, report: ProgressCallback) -> SamplingAudit:
        condition, sampling = list(CONDITIONS.items())[number]

        def answers() -> Iterator[tuple[list[int], Sequence[int]]]:
            with closing(self.studio.open()) as conversation:
                for run in range(self.runs):
                    done = (number + run / self.runs) / len(CONDITIONS)
                    report(Progress("audit", done, f"{row.title}, {condition}"))
                    # Each run has its own seed, also on another prompt: equal draws would not be independent.
                    settings = replace(
                        self.settings, method=row.name, sampling=replace(sampling, seed=run)
                    )
                    prompt = run * len(PROMPTS) // self.runs
                    yield self.prompt_ids[prompt], self._answer(conversation, prompt, settings).ids

        return judge_sampling(self.reader, self.draft, condition, sampling, answers(), self.limit)

    def _greedy(self, method: str) -> Iterator[LaneResult]:
        """Yield one output for each prompt, twice as long as the sampled ones."""
        tokens = 2 * self.settings.max_new_tokens
        settings = replace(self.settings, method=method, max_new_tokens=tokens)
        with closing(self.studio.open()) as conversation:
            for prompt in range(len(PROMPTS)):
                yield self._answer(conversation, prompt, settings)

    def _answer(self, conversation: Conversation, prompt: int, settings: RunSettings) -> LaneResult:
        conversation.reset()
        return run_once(conversation, settings.method, PROMPTS[prompt], settings)


def _part(report: ProgressCallback, number: int, parts: int) -> ProgressCallback:
    """Return a callback that reports the progress of one part of several as progress of the whole."""
    return lambda progress: report(
        replace(progress, done=(number + (progress.done or 0.0)) / parts)
    )
