"""`python app.py` serves the page, as `specdemo app` does. `demo` is importable; nothing heavy runs at import."""

from __future__ import annotations

import sys

from specdemo.cli.commands.app import make_page
from specdemo.cli.parser import main

if __name__ == "__main__":
    raise SystemExit(main(["app", *sys.argv[1:]]))

demo = make_page()
