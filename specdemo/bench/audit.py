"""Proves on the loaded model that a method says what plain decoding would: greedy, token by token; sampling, by test."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from specdemo.bench.audit_result import (
    CONDITIONS,
    LEVEL,
    AuditResult,
    MethodAudit,
    SamplingAudit,
    save_last,
)
from specdemo.bench.lanes import run_once
from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.session.conversation import Conversation
from specdemo.session.loaded import machine_name
from specdemo.session.studio import Studio
from specdemo.session.work.judges import judge_greedy, judge_sampling

if TYPE_CHECKING:
    pass

CONTROL = "nothing"  # plain decoding, audited as every method is
TESTS = 3  # a method and condition
TOKENS, RUNS = 24, 24
PROMPTS = (
    "Tell me a short story about a lighthouse keeper.",
    "Why is the sky blue?",
    "Write a Python function that reverses a list.",
    "Count from one to forty in words.",
    "List ten tips for learning a new language.",
    "Write a polite e-mail to a landlord about a broken heater.",
)


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
        raise UserError("bench.audit_short")
    infos = {info.name: info for info in studio.methods()}
    unknown = set(methods or ()) - set(infos)
    if unknown:
        raise UserError("method.unknown", method=min(unknown), names=", ".join(infos))
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
        drafter=_published(studio),
    )


def _published(studio: Studio) -> str:
    """The published drafter of the loaded pair, as its files are called; "" for none."""
    if studio.settings.drafter in ("", "none"):
        return ""
    # It alone has a name and no card: `train` writes one into the config of every drafter.
    infos = [one.info for one in studio.pair.trained.values() if not one.card]
    return " and ".join(
        dict.fromkeys(" ".join(filter(None, (one.name, one.revision[:12]))) for one in infos)
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
            answers = list(self._greedy(row.name))
            greedy = judge_greedy(
                self.reader, self.prompt_ids, self.plain, answers, required=self.exact
            )
            sampling = tuple(
                self._sampling(row, number, report) for number in range(len(CONDITIONS))
            )
        except UserError as error:
            return replace(row, available=False, why_not=error.message)
        except Exception as error:  # noqa: BLE001 - a method that breaks is a finding, not the audit's end
            return replace(row, problem=f"{type(error).__name__}: {error}")
        return replace(row, greedy=greedy, sampling=sampling)

    def _sampling(self, row: MethodAudit, number: int, report: ProgressCallback) -> SamplingAudit:
        condition, sampling = list(CONDITIONS.items())[number]

        def answers() -> Iterator[tuple[list[int], Sequence[int]]]:
            with closing(self.studio.open()) as conversation:
                for run in range(self.runs):
                    done = (number + run / self.runs) / len(CONDITIONS)
                    report(Progress("audit", done, f"{row.title}, {condition}"))
                    # Each run has a seed of its own, also on another prompt: equal draws would not be independent.
                    settings = replace(
                        self.settings, method=row.name, sampling=replace(sampling, seed=run)
                    )
                    prompt = run * len(self.prompts) // self.runs
                    yield self.prompt_ids[prompt], self._say(conversation, prompt, settings)

        return judge_sampling(self.reader, self.draft, condition, sampling, answers(), self.limit)

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


def _part(report: ProgressCallback, number: int, parts: int) -> ProgressCallback:
    """Reports of one part of several, as parts of the whole."""
    return lambda progress: report(
        replace(progress, done=(number + (progress.done or 0.0)) / parts)
    )
