"""The player and the static site as files: scripts with their imports, and pages that contain everything. Needs no Gradio."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from importlib.util import find_spec
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.strings import ASSETS

SCRIPTS = ASSETS / "view"
IMPORT = re.compile(r"""(\bfrom\s+|\bimport\s+|\bimport\()(["'])(\.{1,2}/[\w./-]+\.js)\2""")
# The browser loads nothing for a replay that is not in the file.
REPLAY_POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:"


def player_page(words: Mapping[str, object], run: Mapping[str, str] | None = None) -> str:
    """Return the player as one file that needs no network. It has no charts: their library is larger than all the rest.

    run: `title` and `trace`, as JSON lines, of the run in it; words: the view's
    """
    data = data_block("sd-words", words), data_block("sd-run", run)
    return inline_page("site/replay.js", REPLAY_POLICY, *data)


def inline_page(entry: str, policy: str, *body: str) -> str:
    """Return a page that contains its styles and scripts, so that it can be opened from a disk.

    Browsers import no modules over file://, so the page's import map contains them as data.
    """
    styles = "\n".join(path.read_text(encoding="utf-8") for path in style_files())
    imports = {
        bare(name): f"data:text/javascript;base64,{base64.b64encode(source.encode()).decode()}"
        for name, source in modules(entry).items()
    }
    head = [
        f"<style>{_inside('style', styles)}</style>",
        f'<script type="importmap">{_json({"imports": imports})}</script>',
    ]
    start = f'<script type="module">import "{bare(entry)}";</script>'
    return html_page("specdemo", policy, head, [*body, start])


def html_page(title: str, policy: str, head: Iterable[str], body: Iterable[str]) -> str:
    """Return a page with an empty `main`, which its scripts fill. policy: Content-Security-Policy; head, body: more elements"""
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            *head,
            "</head>\n<body>\n<main></main>",
            *body,
            "</body>\n</html>\n",
        )
    )


def modules(*entries: str) -> dict[str, str]:
    """Return scripts of `assets/view` and all that they import, by path in that folder, with bare names in their imports."""
    found: dict[str, str] = {}
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        source = (SCRIPTS / name).read_text(encoding="utf-8")
        found[name] = bare_imports(source, name)
        waiting += [imported(match[3], name) for match in IMPORT.finditer(source)]
    return found


def bare_imports(source: str, name: str) -> str:
    """Return `from "./dom.js"` in "parts/text.js" as `from "specdemo/parts/dom.js"`, which an import map of data can name."""
    return IMPORT.sub(
        lambda match: f"{match[1]}{match[2]}{bare(imported(match[3], name))}{match[2]}", source
    )


def bare(name: str) -> str:
    """Return the name of a script in an import map."""
    return f"specdemo/{name}"


def style_files() -> list[Path]:
    """Return the style sheets of the page, in the order in which they apply."""
    return sorted(SCRIPTS.glob("css/*.css"))


def style_links(address: Callable[[str], str]) -> str:
    """Return the elements that load the style sheets. address: of a file by its path in `assets`"""
    names = (address(path.relative_to(ASSETS).as_posix()) for path in style_files())
    return "".join(f'<link rel="stylesheet" href="{name}">' for name in names)


def imported(address: str, name: str) -> str:
    """Return the path of a script that another one, `name`, imports by a relative address."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), address))


def plotly_path() -> Path:
    """Return the path of Plotly's script in its package. Raises UserError without the package."""
    package = find_spec("plotly")
    if package is None or not package.origin:
        raise UserError("cli.no_plotly")
    return Path(package.origin).parent / "package_data" / "plotly.min.js"


def data_block(name: str, value: object) -> str:
    """Return the element of a page that contains a value as JSON; scripts find it by its id."""
    return f'<script type="application/json" id="{name}">{_json(value)}</script>'


def _json(value: object) -> str:
    """Return JSON in which no text can end the element that contains it; ASCII only, U+2028 included."""
    return json.dumps(value).replace("<", "\\u003c")


def _inside(tag: str, text: str) -> str:
    """Return script or style in which nothing ends the element, or starts a comment that hides its end."""
    return text.replace(f"</{tag}", f"<\\/{tag}").replace("<!--", "<\\!--")
