"""Health and metrics, with and without a model."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from errors import reported
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specdemo.config.settings import AppSettings
from specdemo.session.meter import Meter
from specdemo.session.studio import Studio
from specdemo.ui.serving import launch_options, monitor_routes


def asked(studio, path):
    with TestClient(Starlette(routes=monitor_routes(studio))) as client:
        return client.get(path)


@pytest.mark.parametrize(
    ("known", "status", "code"),
    [
        ({"ready": True}, "ready", 200),
        ({}, "loading", 200),
        ({"error": reported("It is not there.")}, "failed", 503),
        ({"replay_only": reported("Off."), "error": reported("Off.")}, "replay", 200),
    ],
)
def test_health_says_what_the_page_can_do(known, status, code):
    nothing = {"meter": Meter(), "ready": False, "error": None, "replay_only": None}
    answer = asked(SimpleNamespace(**{**nothing, **known}), "/health")
    assert (answer.json(), answer.status_code) == ({"status": status}, code)


def test_figures_are_served_beside_the_page_without_a_model():
    studio = Studio(AppSettings(replay=True))
    answer = asked(studio, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "specdemo:num_requests_running 0.0" in answer.text
    routes = launch_options(studio)["app_kwargs"]["routes"]
    assert {"/health", "/metrics"} <= {route.path for route in routes}
