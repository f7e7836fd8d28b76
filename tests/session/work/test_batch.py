"""Several prompts: each is answered as if it ran alone, failures stay separate, and stopping ends every thread."""

import json
import threading
from dataclasses import replace
from itertools import islice

import pytest
from errors import reported
from letters import letters_studio, tiny_pair
from scripted_run import CountingStudio, run_events

from specdemo.cli import console
from specdemo.cli.parser import main
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.session.loaded import Loaded
from specdemo.session.studio import Studio
from specdemo.session.work.batch import Batch, BatchTotals, State
from specdemo.trace.events import FinishReason, ModelInfo, Node, RunFailed, Verified
from specdemo.trace.metrics import measure

SETTINGS = RunSettings(method="nothing", max_new_tokens=12)
STEPS = 3


class ScriptedStudio(CountingStudio):
    """Conversations scripted by their prompts."""

    def run(self, prompt, settings, cancel, *, system="", every=0.0):
        assert not settings.baseline
        if prompt == "refused":
            raise reported("It is too long.", advice="Shorten it.")
        if prompt == "broken":
            raise ValueError("no such token")

        def step(number):
            cancel.wait(0.002)
            kept = (Node(number, f" {prompt}"), Node(0, " refused"))
            own = Node(number, "<end>" if number == STEPS - 1 else f"{number}")
            yield Verified("speculative", number, kept, (0,), own, 0, 0, 0, 0.1 * (number + 1))

        steps = 10**6 if prompt == "forever" else STEPS
        ends = {"reason": FinishReason.STOP}
        run = run_events("speculative", settings.method, prompt, steps, cancel, step, **ends)
        yield from islice(run, 2) if prompt == "failing" else run
        if prompt == "failing":
            yield RunFailed("speculative", "No memory.", "All is well.", "Shorten it.")


def finish(batch):
    """The last answer to each prompt, in order, and the totals."""
    *answers, totals = batch
    assert isinstance(totals, BatchTotals)
    ended = {answer.number: answer for answer in answers if answer.ended}
    assert sum(answer.ended for answer in answers) == len(ended) == totals.prompts
    return [ended[place] for place in sorted(ended)], totals


def alive():
    return [thread for thread in threading.enumerate() if "specdemo-batch" in thread.name]


def test_a_failed_prompt_keeps_its_error_and_the_others_go_on():
    studio = ScriptedStudio()
    prompts = ["a", "refused", "failing", "broken", "b"]
    answers, totals = finish(Batch(studio, prompts, SETTINGS, at_once=2).answers())
    assert [answer.state for answer in answers] == ["done", "failed", "failed", "failed", "done"]
    assert [answer.text for answer in answers] == [" a0 a1 a", "", " failing0", "", " b0 b1 b"]
    assert [str(answer.error or "") for answer in answers] == [
        "",
        "It is too long. Shorten it.",
        "No memory. All is well. Shorten it.",
        str(UserError("run.failed", error="no such token")),
        "",
    ]
    assert (totals.prompts, totals.failed, totals.new_tokens) == (5, 3, 6 + 2 + 6)
    assert totals.tokens_per_second == pytest.approx(14 / totals.seconds)
    assert studio.most_open == 2
    assert (studio.open_now, studio.closed) == (0, 5)


def test_answers_grow_one_step_at_a_time_and_count_like_the_metrics():
    studio = ScriptedStudio()
    *grown, _ = Batch(studio, ["a"], SETTINGS).answers()
    assert [answer.state for answer in grown] == ["running"] * 4 + ["done"]
    assert [answer.new_tokens for answer in grown] == [0, 2, 4, 6, 6]
    events = list(studio.run("a", replace(SETTINGS, baseline=False), cancel=threading.Event()))
    metrics = measure(events)
    assert grown[-1].tokens_per_second == pytest.approx(metrics.tokens_per_second)
    assert grown[0].tokens_per_second is None


def test_cancelling_stops_those_that_run_and_those_that_wait():
    studio, cancel = ScriptedStudio(), threading.Event()
    batch = Batch(studio, ["forever"] * 3, SETTINGS, at_once=2, cancel=cancel).answers()
    seen = [next(batch) for _ in range(10)]
    cancel.set()
    answers, totals = finish([*seen, *batch])
    assert {answer.state for answer in answers} == {State.STOPPED}
    assert totals.failed == 0
    assert studio.closed == 2  # the third did not start
    assert totals.new_tokens == sum(answer.new_tokens for answer in answers) > 0
    assert alive() == []


def test_closing_the_generator_stops_and_joins_its_threads():
    studio = ScriptedStudio()
    batch = Batch(studio, ["forever"] * 3, SETTINGS, at_once=2).answers()
    next(batch)
    assert alive()
    batch.close()
    assert alive() == []
    assert studio.open_now == 0


def test_nothing_runs_with_settings_out_of_range():
    studio = ScriptedStudio()
    with pytest.raises(UserError, match="maximum number of tokens"):
        next(Batch(studio, ["a"], RunSettings(max_new_tokens=0)).answers())
    assert studio.closed == 0


def test_no_prompts_are_no_answers():
    (totals,) = Batch(ScriptedStudio(), [], SETTINGS).answers()
    assert (totals.prompts, totals.new_tokens) == (0, 0)


@pytest.mark.parametrize("method", ["nothing", "ngram"])
def test_each_prompt_is_answered_as_it_is_alone(method):
    studio = letters_studio()
    prompts = ["abcabc", "hello", "zzz", "the cat and the cat"]
    settings = replace(SETTINGS, method=method, max_new_tokens=24)
    alone = [finish(Batch(studio, [prompt], settings).answers())[0][0] for prompt in prompts]
    together, _ = finish(Batch(studio, prompts, settings).answers())
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert len({answer.text for answer in alone}) > 1
    assert all(answer.new_tokens == 24 for answer in together)


def test_prompts_that_begin_after_another_model_was_loaded_end_with_a_sentence():
    """A run with an unexpected model is refused; active runs end with their own pair."""
    studio = letters_studio()
    settings = replace(SETTINGS, max_new_tokens=200)
    batch = Batch(studio, ["abc", "def", "ghi"], settings, at_once=1).answers()
    begun = next(batch)
    other = tiny_pair()
    other = replace(other, target=replace(other.target, info=ModelInfo("another", precision="nf4")))
    studio.use(Loaded(studio.settings, other))
    (first, *rest), totals = finish([begun, *batch])
    assert (first.state, first.new_tokens, totals.failed) == (State.DONE, 200, 2)
    for answer in rest:
        assert (answer.state, answer.text) == (State.FAILED, "")
        assert "another in nf4" in str(answer.error)


def test_a_pair_that_is_not_loaded_is_an_error_of_each_prompt():
    answers, totals = finish(Batch(Studio(AppSettings()), ["a", "b"], SETTINGS).answers())
    assert totals.failed == 2
    assert all("still loading" in str(answer.error) for answer in answers)


@pytest.fixture
def terminal(monkeypatch):
    """The command line with a scripted studio."""
    studio = ScriptedStudio()
    monkeypatch.setattr(console, "open_studio", lambda _: studio)
    return studio


def test_run_answers_a_file_of_lines(terminal, tmp_path, capsys):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a\n\n  \x1b[31mb\n", encoding="utf-8")
    assert main(["run", "--prompts", str(prompts), "--at-once", "1"]) == 0
    told = capsys.readouterr().out
    assert " a0 a1 a\n" in told
    assert "\x1b" not in told
    assert "\\x1b[31mb" in told
    *_, last = told.strip().splitlines()
    assert last.startswith("2 prompts, 12 tokens in ")
    assert last.endswith("tokens/s together")
    assert terminal.most_open == 1


def test_run_answers_a_suite_as_json_and_reports_a_failure(terminal, tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    rows = [{"turns": ["a", "later"]}, {"prompt": "refused"}]
    prompts.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert main(["run", "--prompts", str(prompts), "--json"]) == 1
    told = capsys.readouterr()
    *answers, totals = map(json.loads, told.out.splitlines())
    by_prompt = {answer["prompt"]: answer for answer in answers}
    assert by_prompt["a"]["text"] == " a0 a1 a"
    assert by_prompt["a"]["new_tokens"] == 6
    assert by_prompt["a"]["error"] is None
    assert by_prompt["refused"]["error"] == "It is too long. Shorten it."
    assert (totals["prompts"], totals["failed"]) == (2, 1)
    assert "first turn" in told.err
    assert terminal.closed == 2
