"""Recorded runs, lab and lessons as static files: a site for any web server, without Gradio, Python or a model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from html import escape
from pathlib import Path

from specdemo.errors import UserError
from specdemo.export import SCRIPTS, data_block, modules, player_page, plotly_path

ASSETS = SCRIPTS.parent
RUNS = ASSETS / "runs"
MARK = "specdemo-site"
# Nothing is loaded from another place, whatever a trace holds; Plotly sets styles of its own.
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
README = """---
title: {title}
emoji: ⚡
colorFrom: blue
colorTo: gray
sdk: static
app_file: index.html
license: apache-2.0
short_description: Speculative decoding, recorded and explained.
---

# {title}

{subtitle}

Static files, written by `python -m specdemo export-site`. Any web server can hand them out
(`python -m http.server` in this folder, for one), and so does a static Space. Nothing is loaded from elsewhere.
"""


def write_site(folder: Path, words: Mapping[str, object], parts: Mapping[str, object]) -> None:
    """Write the site. Raises UserError for a folder with other things in it.

    words: the view's; parts: by name of a tab, what its script reads as `value`, and its `words`
    """
    if folder.exists() and any(folder.iterdir()) and not _is_site(folder):
        raise UserError(
            f"{folder} holds other things than a site of this program.",
            unharmed="Nothing was written.",
            advice="Name a new or an empty folder.",
        )
    runs = recorded_runs()
    for name, source in (
        ("view", SCRIPTS),
        ("runs", RUNS),
        ("icons", ASSETS / "icons"),
    ):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("package.json"))
    shutil.copyfile(plotly_path(), folder / "plotly.min.js")
    page = words["export"]["page"]  # type: ignore[index]
    for name, text in {
        "index.html": index(page, {"words": words, "runs": runs, "parts": parts}),
        "player.html": player_page(words),
        "README.md": README.format(title=page["title"], subtitle=page["subtitle"]),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")


def index(page: Mapping[str, str], data: Mapping[str, object]) -> str:
    """The site's one page. What is needed first is named in its head, so that it all comes in one round."""
    styles = sorted(path.name for path in SCRIPTS.glob("*.css"))
    first = f"runs/{data['runs'][0]['name']}.jsonl"  # type: ignore[index]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta name="generator" content="{MARK}">',
        f"<title>{escape(page['title'])}</title>",
        '<link rel="icon" href="icons/favicon.svg">',
        *(f'<link rel="stylesheet" href="view/{name}">' for name in styles),
        *(
            f'<link rel="modulepreload" href="view/{name}">'
            for name in ("site.js", *modules("replay.js"))
            if name != "replay.js"
        ),
        f'<link rel="preload" href="{first}" as="fetch" crossorigin>',
    ]
    body = [
        "<main></main>",
        data_block("sd-data", data),
        '<script type="module" src="view/site.js"></script>',
        '<script async src="plotly.min.js"></script>',
    ]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>',
            *head,
            "</head>\n<body>",
            *body,
            "</body>\n</html>\n",
        ]
    )


def recorded_runs() -> list[dict[str, str]]:
    """Name and title of the recorded runs that are there, in the order of their index."""
    found = json.loads((RUNS / "index.json").read_text(encoding="utf-8"))["runs"]
    return [
        {"name": run["name"], "title": run["title"]}
        for run in found
        if (RUNS / f"{run['name']}.jsonl").is_file()
    ]


def _is_site(folder: Path) -> bool:
    page = folder / "index.html"
    return page.is_file() and MARK in page.read_text(encoding="utf-8", errors="replace")
