"""Several concurrent prompts, folded below the first tab's run."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import ClassVar

import gradio as gr

from specdemo.config.errors import UserError
from specdemo.session.door import Changed, EngineClient
from specdemo.session.work.batch import Batch, BatchAnswer, BatchTotals, State
from specdemo.ui import present, words
from specdemo.ui.checks import asked_settings, asked_system, asked_text
from specdemo.ui.run_tab import LatestRun, RunTab, Shown, TabState, create_state
from specdemo.ui.settings_panel import SettingsPanel
from specdemo.ui.view import mounted, only
from specdemo.ui.visits import tell


class BatchTable(Shown):
    """The prompts, their answers so far, the totals and the error of a batch."""

    def __init__(self, task: LatestRun) -> None:
        super().__init__(task)
        self.rows: list[BatchAnswer] = []
        self.totals: BatchTotals | None = None

    def value(self) -> str:
        return present.batch(self.rows, totals=self.totals, waiting=self.line(), error=self.error)

    def line(self) -> str:
        """Return the queue position of the first prompt, until one has started."""
        waiting = [row.waiting for row in self.rows if row.waiting]
        if not waiting or any(row.state is not State.WAITING for row in self.rows):
            return ""
        return present.place(min(waiting, key=lambda one: one.place))


class BatchHandlers(RunTab[TabState]):
    """Handlers of several prompts; each visitor has one batch at a time."""

    kind: ClassVar[str | None] = None

    def opening(self, visitor: TabState, waiting: str, *asked: object) -> str:
        return present.batch(_rows(prompt_lines(*asked)), waiting=waiting)

    def shown(self, visitor: TabState) -> BatchTable:
        return BatchTable(visitor.task)

    def work(
        self,
        visitor: TabState,
        table: BatchTable,
        text: str | None,
        system: str | None,
        values: Mapping[str, object],
    ) -> Generator[None, None, None]:
        """Answer all prompts of a text concurrently."""
        task = table.task
        prompts = [asked_text(one) for one in prompt_lines(text)]
        count, most = len(prompts), self.studio.settings.batch_prompts
        if not prompts:
            raise UserError("batch.empty")
        if count > most:
            raise UserError("batch.too_many", count=count, most=most)
        table.rows = _rows(prompts)
        settings = asked_settings(values, self.studio.settings)
        system = asked_system(system)
        line = partial(self.studio.admission.turn, task.visitor, cancel=task.cancel)
        batch = Batch(
            self.studio, prompts, settings, system=system, cancel=task.cancel, turn=line
        ).answers()
        with closing(batch):
            for item in batch:
                if isinstance(item, BatchTotals):
                    table.totals = item
                else:
                    table.rows[item.number] = item
                    if isinstance(item.error, Changed):
                        tell(self.studio)
                yield


def create_batch(studio: EngineClient, settings: SettingsPanel) -> None:
    """Create the box of several prompts. settings: of the runs"""
    handlers = BatchHandlers(studio)
    task = create_state()
    with gr.Accordion(words.BATCH, open=False, elem_id="sd-batch-box"):
        prompts = gr.Textbox(
            "\n".join(words.BATCH_EXAMPLES),
            label=words.BATCH_PROMPTS,
            info=words.BATCH_HINT.format(most=studio.settings.batch_prompts),
            lines=4,
            max_lines=studio.settings.batch_prompts,
            elem_id="sd-batch-prompts",
        )
        with gr.Row(elem_id="sd-batch-buttons"):
            run = gr.Button(
                words.BATCH_RUN, variant="primary", scale=0, interactive=not studio.replay_only
            )
            stop = gr.Button(words.BATCH_STOP, scale=0)
        answers = mounted("{}", "play/batch.js", "mountBatch", "sd-batch", own_words=only("batch"))

    inputs = [prompts, settings.system]
    handlers.connect([run.click], stop, task, answers, inputs, settings.fields, asked=[prompts])


def prompt_lines(text: object) -> list[str]:
    """Return the prompts of the box: its lines that are not empty. text: None if the browser has never sent it"""
    return [line.strip() for line in str(text or "").splitlines() if line.strip()]


def _rows(prompts: Sequence[str]) -> list[BatchAnswer]:
    return [BatchAnswer(number, prompt) for number, prompt in enumerate(prompts)]
