"""Switching the pair: in the compute thread, as one value, and active runs end with the old pair."""

import gc
import threading
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import header, nonsense_store
from errors import reported
from letters import tiny_pair
from passes import driven

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings, Sampling
from specdemo.engine.cost import ANY_ROWS
from specdemo.engine.passes import ForwardRequest
from specdemo.engine.verify import VERIFIERS, verify_sampling
from specdemo.files.progress import Progress
from specdemo.session import studio as studio_module
from specdemo.session.loaded import COMPLETES, LARGEST, Loaded
from specdemo.session.runs import Caches
from specdemo.session.studio import Studio
from specdemo.trace.events import RunFailed, RunFinished, RunStarted, Verified
from specdemo.trace.metrics import output_ids

WAIT = 30.0
PLAIN = RunSettings(method="nothing", max_new_tokens=40, memory=False)
SEEDS = {"old": 0, "new": 3}


class Loader:
    """A replacement of fetching and loading that records the calling thread, waits on demand and fails on demand."""

    def __init__(self):
        self.threads = []
        self.error = self.runner = self.going_on = None
        self.reached, self.free = threading.Event(), threading.Event()
        self.free.set()

    def fetch(self, settings, report):
        self.threads.append(("fetch", threading.current_thread().name))
        report(Progress("download", 0.5, settings.target))
        return settings.target

    def load(self, settings, report, found):
        assert found == settings.target
        self.threads.append(("load", threading.current_thread().name))
        report(Progress("load", None, settings.target))
        self.going_on = self.runner and self.runner.going_on
        self.reached.set()
        assert self.free.wait(WAIT)
        report(Progress("warm up", 1.0, settings.target))
        if self.error:
            raise self.error
        return Loaded(settings, tiny_pair(seed=SEEDS[settings.target]))


@pytest.fixture
def loader(monkeypatch):
    loader = Loader()
    monkeypatch.setattr(studio_module, "fetch", loader.fetch)
    monkeypatch.setattr(studio_module, "load", loader.load)
    return loader


@pytest.fixture
def studio(loader):
    studio = Studio(AppSettings(target="old", draft="none", precision="fp32"))
    studio.load()
    assert studio.ready
    loader.threads.clear()
    return studio


def said(studio, settings=PLAIN):
    conversation = studio.open()
    ids = output_ids(list(conversation.run("abcabc", settings)))
    conversation.close()
    return ids


def test_a_switch_replaces_everything_at_once_and_computes_where_runs_do(studio, loader):
    old, before = studio.loaded, said(studio)
    reports = list(studio.switch("new", "bf16"))
    assert reports[-1] == Progress("warm up", 1.0, "new")
    names = dict(loader.threads)
    assert names["load"] == "specdemo-engine"
    assert names["fetch"] != "specdemo-engine"  # a download stops no run
    assert studio.loaded is not old
    assert (studio.settings.target, studio.settings.precision) == ("new", "bf16")
    assert studio.pair is studio.loaded.pair
    assert studio.error is None
    assert said(studio) != before


def test_a_switch_takes_the_draft_that_suits_the_target(studio):
    assert studio.settings.draft == "none"
    list(studio.switch("new", "bf16"))
    assert studio.settings.draft == "auto"


def test_a_published_drafter_stays_with_its_target_unless_another_is_named(studio):
    list(studio.switch("old", "fp32", "owner/drafter"))
    assert studio.settings.drafter == "owner/drafter"
    list(studio.switch("old", "bf16"))
    assert studio.settings.drafter == "owner/drafter"
    list(studio.switch("new", "bf16"))
    assert studio.settings.drafter == "none"
    list(studio.switch("new", "bf16", "/a/folder"))
    list(studio.switch("new", "bf16", "none"))
    assert studio.settings.drafter == "none"


def test_a_failure_leaves_the_old_pair_and_says_why(studio, loader):
    old, before = studio.loaded, said(studio)
    loader.error = reported("It does not fit.", unaffected="The old works.", advice="Take another.")
    with pytest.raises(UserError, match="does not fit") as error:
        list(studio.switch("new", "fp32"))
    assert error.value is loader.error
    assert studio.loaded is old
    assert studio.settings.target == "old"
    assert said(studio) == before
    loader.error = None
    list(studio.switch("new", "fp32"))
    assert studio.settings.target == "new"


def test_a_run_that_goes_on_ends_with_the_old_pair(studio, loader):
    long = replace(PLAIN, max_new_tokens=300)
    alone = said(studio, long)
    loader.runner = studio.runner
    conversation, other = studio.open(), studio.open()
    view = conversation.run("abcabc", long)
    events = [next(view), next(view)]
    assert isinstance(events[0], RunStarted)
    list(studio.switch("new", "fp32"))
    assert loader.going_on == 1
    new = said(studio)
    assert new != alone[:40]
    events += view
    assert isinstance(events[-1], RunFinished)
    assert output_ids(events) == alone
    conversation.reset()
    assert output_ids(list(conversation.run("abcabc", PLAIN))) == new
    assert output_ids(list(other.run("abcabc", PLAIN))) == new


def test_both_lanes_of_a_run_are_of_one_pair(studio):
    """The switch arrives during the plain variant; the drafted one after it uses the same model."""
    settings = RunSettings(method="ngram", max_new_tokens=60, baseline=True)
    view = studio.open().run("abcabc", settings)
    events = [next(view)]
    list(studio.switch("new", "fp32"))
    events += view
    steps = [event for event in events if isinstance(event, Verified)]
    plain, drafted = (
        output_ids([step for step in steps if step.lane == lane])
        for lane in ("plain", "speculative")
    )
    assert plain == drafted
    assert len(plain) == 60


def test_a_run_without_memory_ends_with_a_sentence_and_the_model_stays(studio, monkeypatch):
    before, loaded, decoder = said(studio), studio.loaded, studio.pair.target.decoder
    run, passes = decoder.run, []

    def full_once(asked):
        passes.append(asked)
        if len(passes) == 6:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return run(asked)

    monkeypatch.setattr(decoder, "run", full_once)
    conversation = studio.open()
    events = list(conversation.run("abcabc", PLAIN))
    assert isinstance(events[-1], RunFailed)
    assert events[-1].message == "There was not enough memory to go on."
    assert 0 < len(output_ids(events)) < len(before)
    assert output_ids(events) == before[: len(output_ids(events))]
    conversation.reset()
    assert output_ids(list(conversation.run("abcabc", PLAIN))) == before
    assert said(studio) == before
    assert studio.loaded is loaded


@pytest.mark.parametrize("verification", VERIFIERS)
def test_the_settings_choose_how_drafts_are_judged(studio, monkeypatch, verification):
    asked = set()

    def judged_by(name):
        return lambda *given: asked.add(name) or verify_sampling(*given)

    for name in tuple(VERIFIERS):
        monkeypatch.setitem(VERIFIERS, name, judged_by(name))
    drawn = replace(PLAIN, max_new_tokens=4, sampling=Sampling(temperature=1.0))
    assert said(studio, replace(drawn, verification=verification))
    assert asked == {verification}


@pytest.mark.parametrize(("rows", "alone"), [(3, {True}), (ANY_ROWS, {False})])
def test_an_exact_run_shares_no_pass_where_company_could_change_its_bits(studio, rows, alone):
    pair = studio.loaded.pair
    exact = replace(pair, costs=replace(pair.costs, exact_rows=rows))
    caches = Caches(replace(studio.loaded, pair=exact))
    lane = caches.lane([1, 2, 3], replace(PLAIN, exact=True, max_new_tokens=4), header())
    assert {item.alone for item in driven(lane) if isinstance(item, ForwardRequest)} == alone


def test_closing_the_switch_gives_it_up(studio, loader):
    old = studio.loaded
    loader.free.clear()
    switch = studio.switch("new", "fp32")
    assert next(switch).detail == "new"
    assert loader.reached.wait(WAIT)
    switch.close()
    loader.free.set()
    assert said(studio)  # the compute thread continues
    assert studio.loaded is old
    assert studio.settings.target == "old"


def test_the_old_pair_is_freed_once_no_run_uses_it(studio):
    idle, busy = studio.open(), studio.open()
    list(idle.run("abc", PLAIN))
    view = busy.run("abcabc", PLAIN)
    next(view)
    old = weakref.ref(studio.pair.target.model)
    list(studio.switch("new", "fp32"))
    list(view)
    studio.runner.call(gc.collect)
    assert old() is None


def test_garbage_collections_skip_a_loaded_pair_and_loading_collects_earlier_garbage(studio):
    left = torch.nn.Module()
    left.__dict__["itself"] = left
    unused = weakref.ref(left)
    gc.freeze()
    del left
    studio.use(Loaded(studio.settings, tiny_pair(seed=1)))
    assert unused() is None
    visited = {id(one) for one in gc.get_objects()}
    assert id(studio.pair.target) not in visited
    gc.unfreeze()


def test_a_first_load_that_fails_is_kept_as_an_error(loader):
    loader.error = reported("It is not there.")
    studio = Studio(AppSettings(target="old"))
    studio.load()
    assert not studio.ready
    with pytest.raises(UserError, match="not there"):
        _ = studio.pair
    loader.error = ValueError("odd")
    studio.load()
    assert "could not be loaded: odd" in str(studio.error)
    loader.error = None
    studio.load()
    assert studio.ready
    assert studio.error is None


@pytest.mark.parametrize(("template", "remark"), [(None, COMPLETES), ("{{ messages }}", "")])
def test_a_target_without_a_chat_template_is_introduced_as_completing_text(template, remark):
    pair = SimpleNamespace(tokenizer=SimpleNamespace(chat_template=template))
    assert Loaded(AppSettings(), pair).remark == remark
    assert Loaded(AppSettings(), pair, chosen=LARGEST).remark == LARGEST


def test_retrieval_is_offered_where_a_datastore_ships(studio):
    def offered():
        return {info.name: info.available for info in studio.methods()}

    pair = studio.pair
    assert not offered()["retrieval"]
    studio.use(Loaded(studio.settings, pair, nonsense_store(300)))
    assert offered()["retrieval"]
    assert not offered()["medusa"]  # trained drafters are reported missing as before
