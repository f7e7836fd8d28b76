"""Compares every method's texts with plain decoding's for the same seeds, in turn and in passes that runs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from specdemo.bench.lanes import LaneLost, LaneResult, Paired, run_once
from specdemo.bench.pairs import SAME_KEYS, sampling_of
from specdemo.bench.results import (
    ROW_COLUMNS,
    STRINGS,
    BenchAnswers,
    Journal,
    Result,
    Row,
    Table,
    cell,
    totals,
)
from specdemo.config.errors import UserError
from specdemo.config.settings import COUPLED, RunSettings
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.session.studio import Studio
from specdemo.session.text import Item
from specdemo.trace.events import NOTHING

LOOKAHEAD = 4  # drafted tokens of each step, in the methods that have the constant policy
PLAIN_LOST = "bench.plain_lost"
KEYS = ("drafted_accept_rate", "tokens_per_step", *SAME_KEYS)


@dataclass(slots=True)
class SeedComparison:
    """A comparison of texts of the same seeds, and its state while it runs.

    presets: see `sampling_of`; tokens: of each answer; prompts: number of answered ones
    lost: methods that failed, with the reason; they are left out with all their answers
    refused: prompts that the target does not read, with the reason
    """

    studio: Studio
    methods: Sequence[str]
    presets: Sequence[str]
    tokens: int
    prompts: int = 0
    measured: BenchAnswers = field(default_factory=BenchAnswers)
    lost: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def run(
        self, items: Sequence[Item], journal: Journal, progress: ProgressCallback
    ) -> Iterator[Result]:
        """Answer each prompt by each method with each sampling. Raises UserError if plain decoding or every prompt failed.

        journal: of the answers by prompt; yields: the result so far, after each prompt
        """
        for number, item in enumerate(items):
            which = f"prompt {number + 1} of {len(items)}, {item.task}"
            progress(Progress("seeds", number / len(items), which))
            try:
                found = journal.measured(
                    item.name, dict[str, list[Paired]], partial(self._pairs, item, number)
                )
            except UserError as error:
                if error.code == PLAIN_LOST:
                    raise
                self.refused[item.name] = error.message
            else:
                for preset, pairs in found.items():
                    self.measured.add(preset, f"{item.name} {preset}", pairs)
                self.prompts += 1
            if self.prompts:
                yield self.result()
        journal.close()
        if not self.prompts:
            raise UserError("bench.suite_failed")

    def _pairs(self, item: Item, number: int) -> dict[str, list[Paired]]:
        """Return the methods' answers to a prompt by sampling, beside plain decoding's. number: of the prompt, and its seed"""
        settings = [self._settings(preset, number) for preset in self.presets]
        answers = partial(self._answers, item.turns[0], settings)
        methods = [name for name in self.methods if name not in self.lost]
        with ThreadPoolExecutor(len(methods) if number % 2 and methods else 1) as pool:
            plain = answers(NOTHING)
            runs = {name: pool.submit(answers, name) for name in methods}
        found: dict[str, list[Paired]] = {preset: [] for preset in self.presets}
        for name, run in runs.items():
            try:
                for preset, own, one in zip(self.presets, plain, run.result(), strict=True):
                    found[preset].append(Paired(one, own))
            except LaneLost as error:
                self.lost[name] = str(error)
                self.measured.drop(name)
        return found

    def _settings(self, preset: str, seed: int) -> RunSettings:
        settings = sampling_of(preset)  # the conversation replaces a preset by its values
        return replace(
            settings,
            sampling=replace(settings.sampling, seed=seed),
            policy="constant",
            lookahead=LOOKAHEAD,
            max_new_tokens=self.tokens,
            fallback=False,
            verification=COUPLED,
        )

    def _answers(
        self, prompt: str, settings: Sequence[RunSettings], method: str
    ) -> list[LaneResult]:
        """Return a method's answers without their traces. The prompt is read once."""
        found = []
        with closing(self.studio.open()) as conversation:
            try:
                for one in settings:
                    conversation.reset()
                    answer = run_once(conversation, method, prompt, replace(one, method=method))
                    found.append(replace(answer, events=()))
            except LaneLost as error:
                if method == NOTHING:
                    raise UserError(PLAIN_LOST, message=error) from error
                raise
        return found

    @property
    def held(self) -> bool:
        """Whether no method failed, and all texts are equal where a row of a pass has the same bits whatever rows are beside it."""
        rounds = self.studio.pair.target.info.rounds_by_rows
        equal = all(row["same_output_rate"] == 1 for row in self._rows())
        return not self.lost and (rounds or equal)

    def _rows(self) -> list[Row]:
        return totals(self.measured.rows())

    def result(self) -> Result:
        rows, info = self._rows(), self.studio.pair.target.info
        answers = sum(row["answers"] for row in rows)
        equal = sum(round(row["answers"] * row["same_output_rate"]) for row in rows)
        about = STRINGS["seeds"].format(
            model=info.name, precision=info.precision, kernel=info.kernel, prompts=self.prompts,
            tokens=self.tokens, presets=", ".join(self.presets), equal=equal, answers=answers,
        )  # fmt: skip
        heads = ["method", "texts", *(ROW_COLUMNS[key][0] for key in KEYS)]
        body = [[row["lane"], row["answers"], *(cell(row, key) for key in KEYS)] for row in rows]
        values = {"answers": answers, "equal": equal}
        notes = [f"{name} is left out: {why}" for name, why in (self.lost | self.refused).items()]
        return Result(
            "Same seed, same text", about, [Table(heads, body)], notes=notes, values=values
        )
