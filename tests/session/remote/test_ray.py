"""Engines as real Ray Serve replicas of a tiny model: growing, staying, dying, draining, and thirty clients."""

import ipaddress
import logging
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from programs import until
from tiny_files import make_tiny_model

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.models.doctor import installed
from specdemo.session.remote import ray as deployment
from specdemo.session.remote.ray import cluster_client, running_replicas
from specdemo.trace.events import FinishReason, RunFailed, RunFinished, Verified
from specdemo.trace.metrics import output_ids

pytestmark = [
    pytest.mark.xdist_group("replicas"),  # one Ray, which is imported when its environment is set
    pytest.mark.skipif(not installed("ray"), reason="requirements-cluster.txt is not installed"),
]

PLAIN = RunSettings(method="nothing", max_new_tokens=12, memory=False)
LONG = replace(PLAIN, max_new_tokens=4096)
CONTEXT = 8192  # so that a run lasts for seconds
SLOTS = 4
WAIT = 90.0
AFTERWARDS_SECONDS = 2.5  # Serve's own thread reports every second
END_SECONDS = 30.0  # on a busy machine; a Ray whose processes have died takes a minute


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """One engine, which may become two."""
    model = make_tiny_model(tmp_path_factory.mktemp("model"), max_position_embeddings=CONTEXT)
    return AppSettings(
        target=str(model), draft="none", store="none", trained="none", precision="fp32",
        threads=1, cluster="local", replicas=1, most_replicas=2, runs_at_once=SLOTS,
        waiting_visitors=64, cache_dir=tmp_path_factory.mktemp("cache"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def remote(settings):
    patch = pytest.MonkeyPatch()
    patch.setattr(deployment, "UPSCALE_SECONDS", 0.5)
    studio = cluster_client(settings)
    studio.start()  # in a thread that ends, as the page does it
    until(
        lambda: studio.ready or studio.error, "no engine answers", deployment.ENGINE_START_SECONDS
    )
    assert studio.error is None, studio.error
    yield studio
    begun = time.monotonic()
    studio.link.close()
    assert time.monotonic() - begun < END_SECONDS
    assert not studio.ready
    assert not engines()
    patch.undo()
    threads_of_ray_are_silent()


@pytest.fixture
def two(remote):
    """The same, once there are two engines."""
    until(lambda: len(engines()) == running_replicas() == 2, "there are not two engines")
    return remote


def threads_of_ray_are_silent():
    """The parts of Ray that remain in this process neither warn nor start another Ray."""
    import ray

    said = []
    handler = logging.Handler()
    handler.emit = said.append
    logging.getLogger("ray.serve").addHandler(handler)
    time.sleep(AFTERWARDS_SECONDS)
    logging.getLogger("ray.serve").removeHandler(handler)
    assert [record.getMessage() for record in said] == []
    assert not ray.is_initialized()
    own = os.getpid()
    mine = {
        one.info["name"]
        for one in psutil.process_iter(["name", "ppid"])  # omits processes that end meanwhile
        if one.info["ppid"] == own
    }
    assert not mine & {"gcs_server", "raylet"}


def engines():
    """The processes of the replicas."""
    return [one for one in psutil.Process().children(recursive=True) if replica(one)]


def replica(process):
    """Return whether it is a running replica; a process may end during the check."""
    try:
        running = process.status() != psutil.STATUS_ZOMBIE
        return running and "ServeReplica" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


class Crowd:
    """Visitors with runs that continue until they are stopped. said: the events of each"""

    def __init__(self, remote, count):
        self.cancel = threading.Event()
        self.said = {remote.open(): [] for _ in range(count)}

    def __enter__(self):
        self.threads = [threading.Thread(target=self.run, args=[one]) for one in self.said]
        for thread in self.threads:
            thread.start()
        self.go_on()
        return self

    def __exit__(self, *_):
        self.cancel.set()
        for thread in self.threads:
            thread.join(WAIT)

    def run(self, visitor):
        for event in visitor.run("the cat sat on", LONG, cancel=self.cancel):
            self.said[visitor].append(event)

    def go_on(self):
        """Return when each active run has yielded another event."""
        before = {visitor: len(events) for visitor, events in self.said.items()}
        until(
            lambda: all(
                len(events) > before[visitor] + 2 or (events and ended(events))
                for visitor, events in self.said.items()
            ),
            "a run stands still",
        )


def ended(events):
    return isinstance(events[-1], RunFailed | RunFinished)


def test_ray_listens_on_this_machine_alone(remote):
    assert remote.ready
    own = psutil.Process()
    opened = [
        connection.laddr.ip
        for process in (own, *own.children(recursive=True))
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert opened
    for address in opened:
        known = ipaddress.ip_address(address)
        assert (getattr(known, "ipv4_mapped", None) or known).is_loopback
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert os.environ["RAY_ENABLE_AUTO_CONNECT"] == "0"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def test_thirty_clients_are_answered_and_bring_a_second_engine(remote):
    """Seven times the slots of an engine: excess requests wait, none is refused."""
    short = replace(PLAIN, max_new_tokens=40)
    with ThreadPoolExecutor(30) as pool:
        runs = [pool.submit(lambda: list(remote.open().run("the cat", short))) for _ in range(30)]
        said = [run.result(WAIT) for run in runs]
    assert len({tuple(output_ids(events)) for events in said}) == 1
    assert all(isinstance(events[-1], RunFinished) for events in said)
    with Crowd(remote, SLOTS):  # one engine is too few for these runs
        until(lambda: running_replicas() == 2, "there is no second engine")


def test_a_visitor_stays_with_the_engine_that_knows_the_text(two):
    visitors = [two.open() for _ in range(6)]
    for cached in (False, True):
        for visitor in visitors:
            started, *_ = visitor.run("the cat sat on the mat", PLAIN)
            assert bool(started.cached_tokens) == cached
    assert len(engines()) == 2


def test_stop_ends_the_run_on_the_engine_too(two):
    cancel = threading.Event()
    begun = time.monotonic()
    for event in two.open().run("the cat", LONG, cancel=cancel):
        if isinstance(event, Verified) and event.step == 50:
            cancel.set()
        last = event
    assert isinstance(last, RunFinished)
    assert last.reason is FinishReason.CANCELLED
    whole = (time.monotonic() - begun) * LONG.max_new_tokens / last.new_tokens
    stopped = time.monotonic()
    until(lambda: all(idle(one) for one in engines()), "an engine goes on")
    assert time.monotonic() - stopped < whole / 2


def idle(process):
    before = process.cpu_times().user
    time.sleep(0.4)
    return process.cpu_times().user - before < 0.1


def test_an_engine_that_dies_ends_its_runs_with_a_sentence_and_others_take_over(two):
    victim, _ = engines()
    with Crowd(two, 2 * SLOTS) as crowd:
        os.kill(victim.pid, signal.SIGKILL)
        until(lambda: any(map(ended, crowd.said.values())), "nobody notices")
        crowd.go_on()
        lost = [visitor for visitor, events in crowd.said.items() if ended(events)]
    assert 0 < len(lost) < len(crowd.said)
    for visitor, events in crowd.said.items():
        if visitor in lost:
            assert "gone" in events[-1].message
        else:
            assert events[-1].reason is FinishReason.CANCELLED
    for visitor in lost[:2]:  # immediately, while there is one engine
        started, *_, last = visitor.run("the dog", PLAIN)
        assert isinstance(last, RunFinished)
        # the earlier messages are in the context
        assert started.prompt_tokens > len(output_ids(crowd.said[visitor]))


@pytest.mark.usefixtures("remote")
def test_an_error_of_ray_becomes_a_sentence():
    from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

    full = deployment._meaning(BackPressureError(num_queued_requests=9, max_queued_requests=9))
    assert isinstance(full, UserError)
    assert "queue is full" in str(full)
    assert isinstance(deployment._meaning(DeploymentUnavailableError(None)), UserError)
    odd = ValueError("odd")
    assert deployment._meaning(odd) is odd
    with pytest.raises(UserError, match="ray start"):
        deployment.ServeLink(AppSettings(cluster="ray://127.0.0.1:10001"), lambda _: None)


@pytest.mark.usefixtures("remote")
def test_engines_of_another_version_do_not_start_and_say_why(settings, monkeypatch):
    with pytest.raises(UserError, match="different versions") as refused:
        deployment.Replica({}, "0.0.0", alone=True)
    status = SimpleNamespace(message=f"Error: {refused.value}", replica_states={})
    monkeypatch.setattr(deployment, "_status", lambda: status)
    monkeypatch.setattr("ray.serve.run", Mock(side_effect=RuntimeError))
    with pytest.raises(UserError, match="different versions"):
        deployment._deploy(settings, lambda _: None)


def test_engines_that_are_no_longer_needed_go_on_with_their_runs_and_then_end(remote):
    """The last one: no engine is left."""
    from ray import serve

    until(lambda: running_replicas() > 0, "there is no engine")
    end = threading.Thread(target=serve.delete, args=[deployment.APPLICATION_NAME])
    with Crowd(remote, SLOTS) as crowd:
        end.start()
        until(lambda: running_replicas() == 0, "no engine drains")
        crowd.go_on()
        assert not any(map(ended, crowd.said.values()))
        assert engines()
    assert all(events[-1].reason is FinishReason.CANCELLED for events in crowd.said.values())
    until(lambda: not engines(), "an engine stays")
    end.join(WAIT)
