"""What machines read of the page: whether it is healthy, and its figures for Prometheus."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.session.meter import Meter


class Watched(Protocol):
    """What is told of a studio."""

    meter: Meter
    error: UserError | None

    @property
    def settings(self) -> AppSettings: ...

    @property
    def ready(self) -> bool: ...

    @property
    def replay_only(self) -> UserError | None: ...


def monitor_routes(studio: Watched) -> list[Route]:
    """`/health` and `/metrics`: numbers and the models' names, nothing of a visitor."""

    def health(_request: Request) -> Response:
        state = _state(studio)
        return JSONResponse({"status": state}, status_code=503 if state == "failed" else 200)

    def metrics(_request: Request) -> Response:
        return Response(studio.meter.text(), headers={"content-type": studio.meter.content_type})

    return [Route("/health", health), Route("/metrics", metrics)]


def _state(studio: Watched) -> str:
    """ready, replay, loading or failed; only the last one needs somebody."""
    if studio.replay_only:
        return "replay"
    if studio.ready:
        return "ready"
    return "failed" if studio.error else "loading"
