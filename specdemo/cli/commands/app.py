"""Serve the page, and create the page that `app.py` exports."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from socket import AF_INET, AF_INET6, create_server
from typing import TYPE_CHECKING

import httpx

from specdemo.cli.console import reached, reporting
from specdemo.cli.options import app_settings
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, field
from specdemo.config.strings import Json
from specdemo.session.door import EngineClient
from specdemo.session.studio import Studio

if TYPE_CHECKING:
    from gradio import Blocks

    from specdemo.session.remote.client import RemoteStudio


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl+C is pressed or its window is closed. Raises UserError."""
    settings = _with_target(app_settings(options), options)
    _check_host(settings.host)
    _stay_silent()
    studio = _attached(settings, options) if options.attach else open_door(settings)
    # ZeroGPU needs the weights before the page is served; a server of another program determines the menu of methods.
    if on_zero_gpu() or options.attach:
        with reporting() as report:
            studio.load(report)
        if options.attach and studio.error:
            raise studio.error
    page = make_page(studio)
    from specdemo.ui.app import launch_options
    from specdemo.ui.desktop import open_window

    looks: Json = launch_options(studio)
    try:
        _, url, _ = page.launch(
            server_name=settings.host,
            server_port=settings.port,
            inbrowser=not (options.no_browser or options.desktop or os.environ.get("SPACE_ID")),
            prevent_thread_lock=True,
            **looks,
        )
    except OSError as error:
        raise _taken(settings) from error
    studio.start()  # after the page is served: loading would delay it
    print(f"specdemo is at {url} (Ctrl+C ends it)", flush=True)
    if options.desktop:
        kept = settings.cache_dir / "window"
        open_window(url, "specdemo", page.block_thread, partial(print, flush=True), kept)
        page.close(verbose=False)
    else:
        page.block_thread()
    return 0


def _with_target(settings: AppSettings, options: argparse.Namespace) -> AppSettings:
    """Return the settings with the target "auto" if none was named and the engine is on this machine."""
    named = options.target or os.environ.get(field("target", AppSettings).variable)
    elsewhere = options.attach or settings.cluster or settings.replay or on_zero_gpu()
    return settings if named or elsewhere else replace(settings, target="auto")


def _attached(settings: AppSettings, options: argparse.Namespace) -> RemoteStudio:
    """Return a client of another program's server. Only the command line names its address."""
    from specdemo.session.remote.attached import attached_client

    _, key = reached(options.attach)
    return attached_client(settings, options.attach, options.plain or "", key, log=options.log)


def _check_host(host: str) -> None:
    """Raise UserError if no page can be served at this address, on any port."""
    try:
        create_server((host, 0), family=AF_INET6 if ":" in host else AF_INET).close()
    except OSError as error:
        raise UserError("cli.host_unknown", host=host, error=error.strerror) from error


def _taken(settings: AppSettings) -> UserError:
    """Return the error for a port that specdemo itself or another program uses."""
    url = f"http://{settings.host}:{settings.port}"
    try:
        ours = "status" in httpx.get(f"{url}/health", timeout=2).json()
    except (httpx.HTTPError, ValueError, TypeError):
        ours = False
    if ours:
        return UserError("cli.already_running", url=url, port=settings.port + 1)
    return UserError("cli.port_taken", port=settings.port, free=settings.port + 1)


def on_zero_gpu() -> bool:
    """Return whether this is a ZeroGPU Space, by the variable that Hugging Face sets there."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


# Connections to engines elsewhere, the first of which is used: when, and the function that opens its client.
LINKS: tuple[tuple[Callable[[AppSettings], bool], str, str], ...] = (
    (lambda _settings: on_zero_gpu(), "specdemo.session.remote.zero", "zero_client"),
    (lambda settings: bool(settings.cluster), "specdemo.session.remote.ray", "cluster_client"),
)


def open_door(settings: AppSettings) -> Studio | RemoteStudio:
    """Return an engine in this process, or a client of engines elsewhere; nothing is loaded yet. Raises UserError."""
    for used, module, name in () if settings.replay else LINKS:
        if used(settings):
            client: RemoteStudio = getattr(import_module(module), name)(settings)
            return client
    return Studio(settings)


def make_page(studio: EngineClient | None = None) -> Blocks:
    """Create the page; nothing is loaded yet. studio: by default one with the settings of the environment"""
    _stay_silent()
    from specdemo.ui.app import create_app

    return create_app(studio or open_door(AppSettings.from_environment()))


def _stay_silent() -> None:
    """Switch telemetry off; this must happen before Gradio is imported."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
