"""Serves the page, and makes the page that `app.py` exports."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from specdemo.cli.options import add_option, add_settings, app_settings
from specdemo.errors import UserError
from specdemo.session.studio import Studio
from specdemo.settings import AppSettings

if TYPE_CHECKING:
    from gradio import Blocks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to serve, which window to open, which models to load."""
    add_option(
        parser, "--desktop", action="store_true", about="open the page in a window of its own"
    )
    add_option(parser, "--no-browser", action="store_true", about="do not open a browser")
    add_settings(parser, AppSettings)


def run(options: argparse.Namespace) -> int:
    """Serve the page until it is closed."""
    settings = app_settings(options)
    studio = Studio(settings)
    page = make_page(studio)
    from specdemo.ui.app import launch_options
    from specdemo.ui.desktop import open_window

    looks: dict[str, Any] = launch_options(studio)
    try:
        _, url, _ = page.launch(
            server_name=settings.host,
            server_port=settings.port,
            inbrowser=not (options.no_browser or options.desktop or os.environ.get("SPACE_ID")),
            prevent_thread_lock=True,
            **looks,
        )
    except OSError as error:
        raise UserError(
            f"Port {settings.port} is taken.", advice="Choose another: --port 7861."
        ) from error
    studio.start()  # after the page is there: loading would hold it up
    print(f"specdemo is at {url} (Ctrl+C ends it)", flush=True)
    if options.desktop:
        open_window(url, "specdemo", page.block_thread)
        page.close()
    else:
        page.block_thread()
    return 0


def make_page(studio: Studio | None = None) -> Blocks:
    """The page; nothing is loaded yet. studio: by default one with the settings of the environment"""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before Gradio is imported
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from specdemo.ui.app import create_app

    return create_app(studio or Studio(AppSettings.from_environment()))
