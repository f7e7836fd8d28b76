"""The one loop that streams: it waits, shows less often than work grows, and ends however the visitor leaves."""

import json
from types import SimpleNamespace

import gradio as gr
import pytest
from errors import reported

from specdemo.session.admission import Admission, Waiting
from specdemo.trace.events import ModelInfo
from specdemo.ui import present, run_tab
from specdemo.ui.run_tab import LatestRun, Lines, RunTab, TabState, leave, stream

READY = SimpleNamespace(ready=True, error=None, admission=Admission(lambda: 8, 8))


class Work:
    """Work of some steps, each a line; records its steps and whether it was closed after a cancellation."""

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
    task = LatestRun()
    shown = Lines(task, "open\n")
    work = Work(task, shown, **options)
    return task, work, stream(studio, work.run(), shown, seconds=seconds)


def test_the_shown_text_grows_and_the_task_ends_with_it():
    task, _, values = streamed()
    assert list(values) == ["open\n1\n", "open\n1\n2\n", *["open\n1\n2\n3\n"] * 2]
    assert task.cancel.is_set()
    assert not task.replaced


def test_values_keep_the_given_distance_in_time(monkeypatch):
    now = iter(range(10**6))
    monkeypatch.setattr(run_tab.time, "monotonic", lambda: next(now) / 100)
    _, _, values = streamed(steps=100, seconds=0.1)
    shown = list(values)
    assert 5 < len(shown) <= 12
    assert shown[0] == "open\n1\n"  # the first token does not wait
    assert shown[-1].endswith("100\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (reported("Happened.", unaffected="Unharmed.", advice="Do."), "Happened."),
        (RuntimeError("boom"), "boom"),
    ],
)
def test_an_error_is_a_notice_after_the_text_so_far(error, message):
    task, _, values = streamed(error=error)
    *_, last = values
    *before, notice = last.splitlines()
    assert before == ["open", "1", "2", "3"]
    notice = json.loads(notice)
    assert notice["type"] == "notice"
    assert message in notice["message"]
    assert notice["advice"]
    assert task.cancel.is_set()


def test_a_closed_browser_stops_the_task_before_the_work_is_closed():
    task, work, values = streamed(steps=10**9)
    next(values)
    values.close()  # as Gradio does when the tab is closed
    assert task.cancel.is_set()
    assert work.closed_after_cancel is True
    assert work.done == 1


def test_a_visitor_who_leaves_stops_the_task():
    visitor = TabState()
    leave(visitor)
    assert visitor.task.cancel.is_set()
    leave(None)  # a page that was left before it ran anything


def test_stop_ends_the_work_within_a_step_and_shows_the_text_so_far():
    task, work, values = streamed(steps=10**9)
    next(values)
    task.stop()
    assert list(values) == ["open\n1\n"]
    assert work.done == 1


def test_a_replaced_task_shows_nothing_more():
    task, work, values = streamed(steps=10**9)
    next(values)
    following = task.replace()
    assert list(values) == [gr.skip()]
    assert work.closed_after_cancel is True
    assert not following.cancel.is_set()


def test_a_task_replaced_before_its_first_result_shows_neither_result_nor_error():
    task = LatestRun()

    def work():
        task.replace()
        yield
        raise RuntimeError("boom")

    assert list(stream(READY, work(), Lines(task), seconds=0)) == [gr.skip()]


def test_a_task_replaced_before_its_turn_never_begins():
    task, work, values = streamed()
    task.replace()
    assert list(values) == [gr.skip()]  # Gradio blanks a component whose handler yields nothing
    assert work.done == 0


def test_work_waits_for_the_model_and_begins_by_itself(monkeypatch):
    monkeypatch.setattr(run_tab, "LOADING_SECONDS", 0.01)
    studio = SimpleNamespace(ready=False, error=None, admission=READY.admission)
    _, work, values = streamed(studio)
    assert next(values) == next(values) == gr.skip()
    assert work.done == 0
    studio.ready = True
    assert list(values)[-1] == "open\n1\n2\n3\n"


class Crowd:
    """A studio with one slot, which is taken."""

    def __init__(self, most_waiting=8):
        self.ready, self.error, self.target = True, None, ModelInfo("tiny")
        self.admission = Admission(lambda: 1, most_waiting=most_waiting)
        self.holding = self.admission.turn("somebody")
        self.holding.__enter__()

    def go(self):
        self.holding.__exit__(None, None, None)


def sentences(value):
    waiting = [json.loads(line) for line in value.splitlines() if line.startswith("{")]
    return [line["text"] for line in waiting if line["type"] == "waiting"]


def test_a_waiting_visitor_sees_a_place_until_the_turn_has_come(monkeypatch):
    monkeypatch.setattr("specdemo.session.admission.UPDATE_SECONDS", 0.001)
    studio = Crowd()
    first, second = streamed(studio), streamed(studio)
    assert sentences(next(first[2])) == ["You are number 1 of 1 in line."]
    assert sentences(next(second[2])) == ["You are number 2 of 2 in line."]
    assert "number 1 of 2" in sentences(next(first[2]))[-1]
    assert next(first[2]) == gr.skip()  # no value is repeated, and a closed browser is noticed
    studio.go()
    *_, last = first[2]
    assert sentences(last)[-1] == run_tab.words.TURN
    assert last.endswith("1\n2\n3\n")
    place = sentences(next(second[2]))
    assert place[-1] == run_tab.words.TURN
    assert list(second[2])[-1].endswith("3\n")
    assert studio.admission.running == 0


def test_the_place_is_given_back_once_the_work_is_closed():
    held = []

    class Slow(Work):
        def run(self):
            try:
                yield from super().run()
            finally:
                held.append(READY.admission.running)

    for end in (lambda values: values.close(), list):
        shown = Lines(LatestRun())
        values = stream(READY, Slow(shown.task, shown).run(), shown, seconds=0)
        next(values)
        end(values)
    assert held == [1, 1]
    assert READY.admission.running == 0


@pytest.mark.parametrize("leave", [LatestRun.stop, LatestRun.replace])
def test_a_visitor_who_stops_or_starts_something_else_leaves_the_line(leave):
    studio = Crowd()
    task, work, values = streamed(studio)
    next(values)
    leave(task)
    list(values)
    assert studio.admission.waiting == 0
    task, work, values = streamed(studio)
    next(values)
    values.close()  # as Gradio does when the browser has disconnected
    assert studio.admission.waiting == 0
    assert work.done == 0
    assert task.cancel.is_set()


def test_a_full_line_is_explained_in_a_sentence():
    task, work, values = streamed(Crowd(most_waiting=0))
    *_, last = values
    assert "The queue is full" in last
    assert work.done == 0
    assert task.cancel.is_set()


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 s"), (9.1, "10 s"), (12, "15 s"), (61, "70 s"), (200, "200 s")]
)
def test_expected_seconds_are_rounded_to_what_is_known(seconds, said):
    assert present.place(Waiting(3, 7, seconds)).endswith(f"expected in about {said}.")


def test_a_browser_that_is_closed_while_the_model_loads_stops_the_task(monkeypatch):
    monkeypatch.setattr(run_tab, "LOADING_SECONDS", 0.01)
    task, work, values = streamed(SimpleNamespace(ready=False, error=None))
    next(values)
    values.close()
    assert task.cancel.is_set()
    assert work.done == 0


def test_work_starts_if_no_model_will_be_loaded():
    _, work, values = streamed(SimpleNamespace(ready=False, error=reported("None.")))
    assert gr.skip() not in list(values)
    assert work.done == 3  # without a model the work itself raises the error


def test_why_nothing_runs_is_shown_by_the_queued_event_alone(monkeypatch):
    told, why = [], reported("Off.")
    monkeypatch.setattr(gr, "Info", lambda text, **_: told.append(text))
    tab = RunTab(SimpleNamespace(replay_only=why))
    visitor, _ = tab.begin(None)
    assert told == []  # Gradio would drop it
    assert list(tab.run(visitor)) == [gr.skip()]
    assert told == [str(why)]
