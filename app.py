"""`python app.py` serves the page, as `specdemo app` does. `demo` is importable; nothing heavy runs at import."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from specdemo.__main__ import program

    program(["app", *sys.argv[1:]])

from specdemo.cli.commands.app import make_page

demo = make_page()
