"""specdemo's entry: settings, session, page. `demo` is importable; nothing heavy runs at import."""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from specdemo.errors import UserError
from specdemo.session.studio import Studio
from specdemo.settings import PRECISIONS, AppSettings
from specdemo.ui.app import create_app, launch_options
from specdemo.ui.desktop import open_window


def main() -> int:
    """Serve the page until it is closed. returns: exit status"""
    options = parse()
    names = ("target", "draft", "precision", "device", "threads", "host", "port", "replay")
    try:
        settings = AppSettings.from_environment(**{name: getattr(options, name) for name in names})
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    studio = Studio(settings)
    page = create_app(studio)
    try:
        _, url, _ = page.launch(
            server_name=settings.host,
            server_port=settings.port,
            inbrowser=not (options.no_browser or options.desktop or os.environ.get("SPACE_ID")),
            prevent_thread_lock=True,
            **launch_options(),
        )
    except OSError:
        print(
            f"Port {settings.port} is taken. Choose another: python app.py --port 7861",
            file=sys.stderr,
        )
        return 1
    studio.start()  # after the page is there: loading would hold it up
    print(f"specdemo is at {url} (Ctrl+C ends it)", flush=True)
    if options.desktop:
        open_window(url, "specdemo", page.block_thread)
        page.close()
    else:
        page.block_thread()
    return 0


def parse() -> argparse.Namespace:
    """Command-line options; what is not given comes from SPECDEMO_* or the defaults."""
    parser = argparse.ArgumentParser(description="Speculative decoding, live, in the browser.")
    parser.add_argument("--target", help="catalogue name, hub id, local folder or GGUF file")
    parser.add_argument("--draft", help="the same, for the draft model; `none` for no draft")
    parser.add_argument("--precision", choices=PRECISIONS)
    parser.add_argument("--device", help="auto, cpu or cuda")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument(
        "--replay", action="store_true", default=None, help="load no model: recorded runs alone"
    )
    parser.add_argument("--desktop", action="store_true", help="open a window of its own")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())

demo = create_app(Studio(AppSettings.from_environment()))
