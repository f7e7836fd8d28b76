"""Engines as replicas of one Ray Serve deployment, here or on a cluster, and the link to them.

Visitors stay with a replica by consistent hashing of their conversation's id, see docs/scaling.md.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.files.progress import Progress
from specdemo.models.doctor import installed
from specdemo.session.admission import Full
from specdemo.session.door import Plain
from specdemo.session.remote.engine import Engine
from specdemo.session.remote.link import Lost
from specdemo.session.remote.remote import RemoteStudio
from specdemo.session.studio import Studio

LOCAL = "local"
NAME = "specdemo"  # of the application
REPLICA = "Replica"  # of its deployment
ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
STORE_BYTES = 80_000_000  # of Ray's object store here: nothing large crosses it, and this is nearly the least it takes
DRAIN_SECONDS = 600.0  # that runs of a replica may go on when it is no longer needed
HEALTH_SECONDS = 5.0  # between two looks of Serve at a replica's health
STATUS_SECONDS = 1.0  # between two looks at how many replicas answer
END_SECONDS = 20.0  # that leaving Ray may take, on a busy machine
START_SECONDS = 600.0  # that the first engine may take to load
BUSY = 0.75  # share of a replica's runs at once from which on there are to be more replicas
UPSCALE_SECONDS, DOWNSCALE_SECONDS = 5.0, 300.0
# Before Ray is imported: no statistics to its makers, not the low priority that workers have by default, and no new Ray
# because something asks for one after this process has left it.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
}
# A Ray of this process's own listens on the loopback address alone, whatever the variable is called.
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


class Replica:
    """One engine, as Serve runs it. Requests and answers are plain; see `Engine`.

    alone: nobody on another machine asks it
    """

    def __init__(self, settings: Plain, *, alone: bool) -> None:
        if alone:
            _listen_here_only()
        studio = Studio(AppSettings(**{**settings, "cache_dir": Path(settings["cache_dir"])}))
        studio.load()
        if studio.error:
            raise studio.error
        self._engine = Engine(studio)

    async def about(self) -> Plain:
        """See `Engine.about`."""
        return self._engine.about()

    async def run(self, request: Plain) -> AsyncIterator[str]:
        """See `Engine.run`."""
        async for piece in pieces(partial(self._engine.run, request)):
            yield piece

    async def perform(self, request: Plain) -> AsyncIterator[str]:
        """See `Engine.perform`."""
        async for piece in pieces(partial(self._engine.perform, request)):
            yield piece

    async def leave(self, visitor: str) -> None:
        """See `Engine.leave`."""
        self._engine.leave(visitor)


def _listen_here_only() -> None:
    """Serve opens a port of every replica to every machine, guarded by Ray's token, for calls that nobody makes here."""
    replica: Any = import_module("ray.serve._private.replica")
    opened = replica.add_port_to_grpc_server

    def here(server: object, address: str) -> int:
        port: int = opened(server, address.replace("[::]", "127.0.0.1"))
        return port

    replica.add_port_to_grpc_server = here


async def pieces(lines: Callable[[threading.Event], Iterator[str]]) -> AsyncIterator[str]:
    """Lines that a thread of their own waits for, joined as they come. Closing, as Serve does for a cancelled request, cancels them."""
    loop, cancel = asyncio.get_running_loop(), threading.Event()
    arrived: asyncio.Queue[str | None] = asyncio.Queue()

    def pull() -> None:
        try:
            for line in lines(cancel):
                if cancel.is_set():
                    break
                loop.call_soon_threadsafe(arrived.put_nowait, f"{line}\n")
        finally:
            loop.call_soon_threadsafe(arrived.put_nowait, None)

    threading.Thread(target=pull, name="specdemo-answer", daemon=True).start()
    try:
        ended = False
        while not ended:
            piece = await arrived.get()
            joined = []
            while piece is not None:
                joined.append(piece)
                if arrived.empty():
                    break
                piece = arrived.get_nowait()
            ended = piece is None
            if joined:
                yield "".join(joined)
    finally:
        cancel.set()


class ServeStream:
    """One request's answer as it comes. Raises Lost when its replica has gone."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[str]:
        """The pieces."""
        try:
            yield from self._response
        except Exception as error:
            raise _meaning(error) from error

    def cancel(self) -> None:
        """End the request, in its replica too."""
        self._response.cancel()


class ServeLink:
    """The handle of the deployment. Raises UserError when there is no Ray or no engine starts.

    One thread joins Ray, looks at the replicas and leaves Ray. The system ends the processes of a Ray of this process's
    own with the thread that started them, and a process breaks that leaves Ray while another of its threads asks it.
    """

    whole = False

    def __init__(self, settings: AppSettings, report: Callable[[Progress], None]) -> None:
        self._replicas = 0
        self._closed = threading.Event()
        self._deployed: Future[Any] = Future()
        self._thread = threading.Thread(
            target=self._live, args=(settings, report), name="specdemo-ray", daemon=True
        )
        self._thread.start()
        self._handle = self._deployed.result()
        atexit.register(self.close)  # before Ray's own end, as it was registered later

    def close(self) -> None:
        """Leave Ray. A Ray that this process started ends with its engines; a cluster's engines go on."""
        self._closed.set()
        self._thread.join(END_SECONDS)

    def about(self) -> Plain:
        """See `Engine.about`."""
        found: Plain = self._handle.about.remote().result(timeout_s=START_SECONDS)
        return found

    def stream(self, method: str, visitor: str, request: Plain) -> ServeStream:
        """Ask the visitor's replica, or the next one on the ring where that one is full."""
        handle = self._handle.options(method_name=method, stream=True, session_id=visitor)
        return ServeStream(handle.remote(request))

    def leave(self, visitor: str) -> None:
        """The visitor has gone."""
        self._handle.options(method_name="leave", session_id=visitor).remote(visitor)

    def replicas(self) -> int:
        """Replicas that answered a moment ago; returns at once."""
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
                    handle.shutdown()  # else its own thread goes on asking Ray
            finally:
                if joined:
                    import ray

                    ray.shutdown()


def running_replicas() -> int:
    """Replicas that run now, by Serve's own status; 0 where it cannot be asked."""
    from ray import serve
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    try:
        application = serve.status().applications.get(NAME)
    except (RayError, RayServeException):
        return 0
    if application is None or REPLICA not in application.deployments:
        return 0
    states: dict[Any, int] = application.deployments[REPLICA].replica_states
    return int(states.get("RUNNING", 0))


def _meaning(error: Exception) -> Exception:
    """What an error of Ray means here."""
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
        return Full()
    if isinstance(error, DeploymentUnavailableError):
        return UserError("cluster.no_engine")
    return error


def cluster_door(settings: AppSettings) -> RemoteStudio:
    """A door to the engines that the settings ask for; nothing is started yet. Raises UserError without Ray."""
    if not installed("ray"):
        raise UserError("cluster.no_ray")
    return RemoteStudio(settings, partial(connect, settings))


def connect(settings: AppSettings, report: Callable[[Progress], None]) -> ServeLink:
    """Start Ray here, or find it, and deploy the engines; returns when all of the least number answer. Raises UserError."""
    return ServeLink(settings, report)


def _deploy(settings: AppSettings, report: Callable[[Progress], None]) -> Any:
    """The handle of the deployment, once its engines answer. Raises UserError."""
    from ray import serve

    serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
    report(Progress("load", None, f"{settings.replicas} engines"))
    try:
        return serve.run(_application(settings), name=NAME, route_prefix=None)
    except RuntimeError as error:
        raise UserError("cluster.engines_failed", error=error) from error


def processors(settings: AppSettings) -> int:
    """Processor threads of an engine: as asked for, else an equal share of this machine's, or two on a cluster."""
    if settings.threads:
        return settings.threads
    if settings.cluster != LOCAL:
        return 2
    return max(1, (os.cpu_count() or 1) // settings.replicas)


def _join(settings: AppSettings) -> bool:
    """Be part of a Ray. returns: whether it was not before. Raises UserError where there is none."""
    local = settings.cluster == LOCAL
    for name, value in {**QUIET, **(ALONE if local else {})}.items():
        os.environ.setdefault(name, value)
    if local:  # and asks for a token that nobody else has
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if "://" in settings.cluster:
        raise UserError("cluster.no_streaming")
    import ray

    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
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
    """Engines at most; more than the least number only where the deployment may grow."""
    return max(settings.replicas, settings.most_replicas)


def deployment_options(settings: AppSettings, cpus: int) -> dict[str, Any]:
    """How Serve runs the engines."""
    least, most, slots = settings.replicas, most_replicas(settings), settings.runs_at_once
    size: dict[str, Any] = {"num_replicas": least}
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
    # What an engine is told; whatever else changes lets the engines that run go on.
    own = replace(settings, threads=cpus, cluster="", replicas=1, most_replicas=0, port=0)
    plain: Mapping[str, Any] = {**asdict(own), "cache_dir": str(settings.cache_dir)}
    router: Any = {"request_router_class": ROUTER}
    deployment: Any = serve.deployment(Replica)
    deployment = deployment.options(
        **deployment_options(settings, cpus), request_router_config=RequestRouterConfig(**router)
    )
    return deployment.bind(plain, alone=settings.cluster == LOCAL)
