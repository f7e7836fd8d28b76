"""The one loop that streams: it waits, shows less often than work grows, and ends however the visitor leaves."""

from __future__ import annotations

import json
from types import SimpleNamespace

import gradio as gr
import pytest

from specdemo.errors import UserError
from specdemo.ui import streaming
from specdemo.ui.streaming import Lines, Task, stream

READY = SimpleNamespace(ready=True, error=None)


class Work:
    """Work of some steps, each a line; tells whether it was begun and closed, and what it was told to do then."""

    def __init__(self, task, shown, steps=3, error=None):
        self.task, self.shown, self.steps, self.error = task, shown, steps, error
        self.done = 0
        self.closed_after_cancel = None

    def run(self):
        try:
            while self.done < self.steps and not self.task.cancel.is_set():
                self.done += 1
                self.shown.add(f"{self.done}\n")
                yield
            if self.error:
                raise self.error
        finally:
            self.closed_after_cancel = self.task.cancel.is_set()


def streamed(studio=READY, seconds=0.0, **options):
    task, shown = Task(), Lines("open\n")
    work = Work(task, shown, **options)
    return task, work, stream(studio, task, work.run(), shown, waiting="wait", seconds=seconds)


def test_what_is_shown_grows_and_the_task_is_over_at_the_end():
    task, _, values = streamed()
    assert list(values) == ["open\n1\n", "open\n1\n2\n", *["open\n1\n2\n3\n"] * 2]
    assert task.cancel.is_set()
    assert not task.replaced


def test_values_are_as_far_apart_as_is_asked_for(monkeypatch):
    now = iter(range(10**6))
    monkeypatch.setattr(streaming.time, "monotonic", lambda: next(now) / 100)
    _, _, values = streamed(steps=100, seconds=0.1)
    shown = list(values)
    assert 5 < len(shown) <= 12
    assert shown[-1].endswith("100\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("Happened.", unharmed="Unharmed.", advice="Do."), "Happened."),
        (RuntimeError("boom"), "boom"),
    ],
)
def test_an_error_is_a_notice_after_what_was_there(error, message):
    task, _, values = streamed(error=error)
    *_, last = values
    *before, notice = last.splitlines()
    assert before == ["open", "1", "2", "3"]
    notice = json.loads(notice)
    assert notice["type"] == "notice"
    assert message in notice["message"]
    assert notice["advice"]
    assert task.cancel.is_set()


def test_a_caller_may_say_what_is_unexpected_in_its_own_words():
    task, shown = Task(), Lines()
    work = Work(task, shown, error=ValueError("oh")).run()
    own = stream(READY, task, work, shown, unexpected=lambda error: UserError(f"Own: {error}"))
    *_, last = own
    assert json.loads(last.splitlines()[-1])["message"] == "Own: oh"


def test_a_closed_browser_stops_the_task_before_the_work_is_closed():
    task, work, values = streamed(steps=10**9)
    next(values)
    values.close()  # what Gradio does when the tab is closed
    assert task.cancel.is_set()
    assert work.closed_after_cancel is True
    assert work.done == 1


def test_stop_ends_the_work_within_a_step_and_shows_what_there_is():
    task, work, values = streamed(steps=10**9)
    next(values)
    task.stop()
    assert list(values) == ["open\n1\n"]
    assert work.done == 1


def test_what_was_replaced_shows_nothing_more():
    task, work, values = streamed(steps=10**9)
    next(values)
    following = task.replace()
    assert list(values) == []
    assert work.closed_after_cancel is True
    assert not following.cancel.is_set()


def test_an_error_of_what_was_replaced_is_not_shown():
    task, shown = Task(), Lines()

    def work():
        task.replace()
        yield
        raise RuntimeError("boom")

    assert list(stream(READY, task, work(), shown, seconds=0)) == []


def test_what_was_replaced_before_its_turn_never_begins():
    task, work, values = streamed()
    task.replace()
    assert list(values) == [gr.skip()]  # Gradio blanks a component whose handler yields nothing
    assert work.done == 0


def test_work_waits_for_the_model_and_begins_by_itself(monkeypatch):
    monkeypatch.setattr(streaming, "LOADING_SECONDS", 0.01)
    studio = SimpleNamespace(ready=False, error=None)
    _, work, values = streamed(studio)
    assert next(values) == next(values) == "wait"
    assert work.done == 0
    studio.ready = True
    assert list(values)[-1] == "open\n1\n2\n3\n"


def test_a_browser_that_is_closed_while_the_model_loads_stops_the_task(monkeypatch):
    monkeypatch.setattr(streaming, "LOADING_SECONDS", 0.01)
    task, work, values = streamed(SimpleNamespace(ready=False, error=None))
    next(values)
    values.close()
    assert task.cancel.is_set()
    assert work.done == 0


def test_a_model_that_could_not_be_loaded_is_not_waited_for():
    """The work itself then says what is wrong."""
    _, work, values = streamed(SimpleNamespace(ready=False, error=UserError("No model.")))
    assert "wait" not in list(values)
    assert work.done == 3


def test_work_that_needs_no_model_does_not_wait():
    _, work, values = streamed(None)
    assert "wait" not in list(values)
    assert work.done == 3
