"""Engines as replicas of one Ray Serve deployment, local or on a cluster, and the link to them.

Consistent hashing of a conversation's id selects its replica, see docs/scaling.md.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import specdemo
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import Json, JsonView
from specdemo.files.progress import Progress
from specdemo.models.doctor import installed
from specdemo.session.admission import Cancel
from specdemo.session.door import About
from specdemo.session.remote.client import Link, Lost, RemoteStudio
from specdemo.session.remote.server import Answer, Call, Engine
from specdemo.session.studio import Studio

LOCAL = "local"
APPLICATION_NAME = "specdemo"  # name of the application
REPLICA = "Replica"  # name of its deployment
ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
STORE_BYTES = 80_000_000  # size of Ray's local object store, close to the minimum, because only small objects are sent
DRAIN_SECONDS = 600.0  # time for the runs of a replica that is being removed
HEALTH_SECONDS = 5.0  # interval of Serve's health checks
STATUS_SECONDS = 1.0  # polling interval of the number of replicas
END_SECONDS = 20.0  # maximum duration of disconnecting from Ray on a busy machine
ENGINE_START_SECONDS = 600.0  # maximum loading time of the first engine
BUSY = 0.75  # fraction of a replica's slots above which Serve adds replicas
UPSCALE_SECONDS, DOWNSCALE_SECONDS = 5.0, 300.0
# Set before Ray is imported: no usage statistics, normal priority of the workers, and no automatic new Ray after
# this process has disconnected.
QUIET_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
}
# A Ray started by this process listens only on the loopback address, in spite of the variable's name.
LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


class Replica(Engine):
    """One engine, as Serve runs it.

    version: of the page; alone: no other machine sends requests
    Raises UserError when the pair cannot be loaded here, or if the page has another version: the two exchange Python objects.
    """

    def __init__(self, settings: Json, version: str, *, alone: bool) -> None:
        if version != specdemo.__version__:
            raise UserError("engine.other_version")
        if alone:
            _listen_here_only()
        studio = Studio(AppSettings(**{**settings, "cache_dir": Path(settings["cache_dir"])}))
        studio.load()
        if studio.error:
            raise studio.error
        super().__init__(studio)

    async def stream(self, call: Call) -> AsyncIterator[list[Answer]]:
        """Call `Engine.perform`."""
        async for answers in together(partial(self.perform, call)):
            yield answers


def _listen_here_only() -> None:
    """Bind the port of each replica to the loopback address: Serve would open it to all machines, for calls that are not used here."""
    replica: Any = import_module("ray.serve._private.replica")
    opened = replica.add_port_to_grpc_server

    def here(server: object, address: str) -> int:
        port: int = opened(server, address.replace("[::]", "127.0.0.1"))
        return port

    replica.add_port_to_grpc_server = here


async def together(
    work: Callable[[threading.Event], Iterator[Answer]],
) -> AsyncIterator[list[Answer]]:
    """Yield answers from a separate thread, joined as they arrive. Closing cancels them; Serve closes cancelled requests."""
    loop, cancel = asyncio.get_running_loop(), threading.Event()
    arrived: asyncio.Queue[Answer | None] = asyncio.Queue()

    def pull() -> None:
        try:
            for answer in work(cancel):
                if cancel.is_set():
                    break
                loop.call_soon_threadsafe(arrived.put_nowait, answer)
        finally:
            loop.call_soon_threadsafe(arrived.put_nowait, None)

    threading.Thread(target=pull, name="specdemo-answer", daemon=True).start()
    try:
        ended = False
        while not ended:
            answer = await arrived.get()
            joined = []
            while answer is not None:
                joined.append(answer)
                if arrived.empty():
                    break
                answer = arrived.get_nowait()
            ended = answer is None
            if joined:
                yield joined
    finally:
        cancel.set()


class ServeLink(Link):
    """The handle of the deployment, which starts Ray or connects to it; returns when the minimum number of engines answers.

    Raises UserError when Ray is unavailable or no engine starts.

    One thread connects to Ray, polls the replicas and disconnects. The system ends the processes of a local Ray
    with the thread that started them, and disconnecting while another thread calls Ray crashes the process.
    """

    def __init__(self, settings: AppSettings, report: Callable[[Progress], None]) -> None:
        self._replicas = 0
        self._closed = threading.Event()
        self._deployed: Future[Any] = Future()
        self._thread = threading.Thread(
            target=self._live, args=(settings, report), name="specdemo-ray", daemon=True
        )
        self._thread.start()
        self._handle = self._deployed.result()
        atexit.register(self.close)  # before Ray's own handler, because it was registered later

    def close(self) -> None:
        """Disconnect from Ray. A Ray that this process started ends with its engines; the engines of a cluster continue."""
        self._closed.set()
        self._thread.join(END_SECONDS)

    def about(self) -> About:
        found: About = self._handle.about.remote().result(timeout_s=ENGINE_START_SECONDS)
        return found

    def stream(self, call: Call, ended: Cancel) -> Generator[list[Answer], None, None]:
        """Call the visitor's replica, or the next one on the ring if it is full."""
        handle = self._handle.options(method_name="stream", stream=True, session_id=call.visitor)
        try:
            response = handle.remote(call)
            with ended.waking(response.cancel):
                yield from response
        except Exception as error:
            raise _meaning(error) from error

    def leave(self, visitor: str) -> None:
        self._handle.options(method_name="leave", session_id=visitor).remote(visitor)

    def replicas(self) -> int:
        """Return the last polled number of replicas, immediately."""
        return self._replicas

    def _live(self, settings: AppSettings, report: Callable[[Progress], None]) -> None:
        joined, handle = False, None
        try:
            report(Progress("start", None, "Ray"))
            joined = _join(settings)
            handle = _deploy(settings, report)
            self._replicas = running_replicas()
            self._deployed.set_result(handle)
            while not self._closed.wait(STATUS_SECONDS):
                self._replicas = running_replicas()
        except BaseException as error:
            if self._deployed.done():
                raise
            self._deployed.set_exception(error)
        finally:
            self._replicas = 0
            try:
                if handle is not None:
                    handle.shutdown()  # otherwise its thread continues to call Ray
            finally:
                if joined:
                    import ray

                    ray.shutdown()


def running_replicas() -> int:
    """Return the number of running replicas from Serve's status; 0 if it is unavailable."""
    found = _status()
    return int(found.replica_states.get("RUNNING", 0)) if found else 0


def _status() -> Any:
    """Return Serve's status of the deployment; None if it is unavailable."""
    from ray import serve
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    try:
        application = serve.status().applications.get(APPLICATION_NAME)
    except (RayError, RayServeException):
        return None
    return application.deployments.get(REPLICA) if application else None


def _meaning(error: Exception) -> Exception:
    from ray.exceptions import RayActorError, TaskCancelledError, WorkerCrashedError
    from ray.serve.exceptions import (
        BackPressureError,
        DeploymentUnavailableError,
        ReplicaUnavailableError,
        RequestCancelledError,
    )

    gone = (
        *(RayActorError, WorkerCrashedError, ReplicaUnavailableError),
        *(TaskCancelledError, RequestCancelledError),
    )
    if isinstance(error, gone):
        return Lost()
    if isinstance(error, BackPressureError):
        return UserError("run.queue_full")
    if isinstance(error, DeploymentUnavailableError):
        return UserError("cluster.no_engine")
    return error


def cluster_client(settings: AppSettings) -> RemoteStudio:
    """Return an engine client for the engines of the settings; starts nothing. Raises UserError without Ray."""
    if not installed("ray"):
        raise UserError("cluster.no_ray")
    return RemoteStudio(settings, partial(ServeLink, settings))


def _deploy(settings: AppSettings, report: Callable[[Progress], None]) -> Any:
    """Return the handle of the deployment when its engines answer. Raises UserError."""
    from ray import serve

    serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
    report(Progress("load", None, f"{settings.replicas} engines"))
    try:
        return serve.run(_application(settings), name=APPLICATION_NAME, route_prefix=None)
    except RuntimeError as error:
        other_version, found = UserError("engine.other_version"), _status()
        if found and str(other_version) in found.message:  # which contains a replica's traceback
            raise other_version from error
        raise UserError("cluster.engines_failed", error=error) from error


def processors(settings: AppSettings) -> int:
    """Return the processor threads of an engine: from the settings, otherwise an equal part of this machine's, or two on a cluster."""
    if settings.threads:
        return settings.threads
    if settings.cluster != LOCAL:
        return 2
    return max(1, (os.cpu_count() or 1) // settings.replicas)


def _join(settings: AppSettings) -> bool:
    """Connect to Ray. returns: whether it was not connected before. Raises UserError if there is none."""
    local = settings.cluster == LOCAL
    for name, value in {**QUIET_VARIABLES, **(LOOPBACK_ONLY if local else {})}.items():
        os.environ.setdefault(name, value)
    if local:  # requires a secret token
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if "://" in settings.cluster:
        raise UserError("cluster.no_streaming")
    import ray

    if ray.is_initialized():
        return False
    quiet: Json = {"log_to_driver": False, "configure_logging": False}
    try:
        if local:
            ray.init(
                num_cpus=processors(settings) * most_replicas(settings),
                include_dashboard=False,
                object_store_memory=STORE_BYTES,
                **quiet,
            )
        else:
            ray.init(address=settings.cluster, **quiet)
    except Exception as error:
        where = "here" if local else f"at {settings.cluster}"
        raise UserError("cluster.no_answer", where=where, error=error) from error
    return True


def most_replicas(settings: AppSettings) -> int:
    """Return the maximum number of engines, more than the minimum only if the deployment may grow."""
    return max(settings.replicas, settings.most_replicas)


def deployment_options(settings: AppSettings, cpus: int) -> Json:
    least, most, slots = settings.replicas, most_replicas(settings), settings.runs_at_once
    size: Json = {"num_replicas": least}
    if most > least:
        size = {
            "num_replicas": "auto",
            "autoscaling_config": {
                "min_replicas": least,
                "max_replicas": most,
                "target_ongoing_requests": max(1.0, BUSY * slots),
                "upscale_delay_s": UPSCALE_SECONDS,
                "downscale_delay_s": DOWNSCALE_SECONDS,
                "metrics_interval_s": 1.0,
                "look_back_period_s": 2.0,
            },
        }
    return {
        **size,
        "name": REPLICA,
        "max_ongoing_requests": slots,
        "max_queued_requests": settings.waiting_visitors,
        "graceful_shutdown_wait_loop_s": 0.5,
        "graceful_shutdown_timeout_s": DRAIN_SECONDS,
        "health_check_period_s": HEALTH_SECONDS,
        "ray_actor_options": {
            "num_cpus": cpus,
            "num_gpus": 1 if settings.device == "cuda" else 0,
        },
    }


def _application(settings: AppSettings) -> Any:
    from ray import serve
    from ray.serve.config import RequestRouterConfig

    cpus = processors(settings)
    # The engine's settings. Changes of all others leave running engines unchanged.
    own = replace(settings, threads=cpus, cluster="", replicas=1, most_replicas=0, port=0)
    plain: JsonView = {**asdict(own), "cache_dir": str(settings.cache_dir)}
    router: Json = {"request_router_class": ROUTER}
    deployment: Any = serve.deployment(Replica)
    deployment = deployment.options(
        **deployment_options(settings, cpus), request_router_config=RequestRouterConfig(**router)
    )
    return deployment.bind(plain, specdemo.__version__, alone=settings.cluster == LOCAL)
