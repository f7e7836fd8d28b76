"""Recorded runs, lab, lessons and methods as static files, for a web server or a disk, without Gradio, Python or a model."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from xml.sax.saxutils import quoteattr

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import ASSETS, Json, JsonView
from specdemo.session.studio import Studio
from specdemo.trace.replay import RUNS
from specdemo.ui.player import (
    REPLAY_POLICY,
    SCRIPTS,
    data_block,
    html_page,
    inline_page,
    modules,
    player_page,
    plotly_path,
    style_links,
)
from specdemo.ui.view import find_tabs
from specdemo.ui.words import VIEW, languages, translations

NOTEBOOK = ASSETS.parent / "notebooks" / "speculative_decoding.ipynb"
MARK = "specdemo-site"
PREVIEW = "icons/preview.png"  # the end of the opening run, saved from the dialog that shares it
# Over file:// a browser neither imports modules nor fetches: there the page that contains everything is opened.
OFFLINE = "offline.html"
TO_OFFLINE = f"if (location.protocol === 'file:') location.replace('{OFFLINE}' + location.search + location.hash)"
_DIGEST = base64.b64encode(hashlib.sha256(TO_OFFLINE.encode()).digest()).decode()
# No trace can load anything from another server; Plotly sets styles of its own.
SITE_POLICY = (
    f"default-src 'self'; script-src 'self' 'sha256-{_DIGEST}'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
)


def write_site(folder: Path, *, lms: str = "") -> None:
    """Write the site. Raises UserError for a folder with other things in it.

    lms: for a learning platform, to which it reports, in this language; "" for a site by itself
    """
    if folder.exists() and any(folder.iterdir()) and not _is_site(folder):
        raise UserError("cli.site_folder_in_use", folder=folder)
    for name, source in (("view", SCRIPTS), ("runs", RUNS), ("icons", ASSETS / "icons")):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.d.ts"))
    shutil.copyfile(plotly_path(), folder / "plotly.min.js")
    (folder / "words").mkdir(exist_ok=True)
    for language in languages():
        table = json.dumps(translations(language), ensure_ascii=False)
        (folder / "words" / f"{language}.json").write_text(table, encoding="utf-8")
    asked = {"lms": True, "language": lms} if lms else {}
    shown = {"words": VIEW, "parts": parts(), "languages": ["en", *languages()], **asked}
    page, card = VIEW["export"]["page"], (ASSETS / "cards" / "site.md").read_text(encoding="utf-8")
    for name, text in {
        "index.html": index(page, shown),
        "player.html": player_page(VIEW),
        "README.md": card.format(title=page["title"], subtitle=page["subtitle"]),
        **({} if lms else {OFFLINE: offline_page(folder, shown)}),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")


@cache
def lesson_package(language: str) -> bytes:
    """Return the site as a SCORM 1.2 package in a language."""
    page = VIEW["export"]["page"]
    known = {} if language == "en" else translations(language)
    title = f"{page['title']}: {known.get(page['subtitle'], page['subtitle'])}"
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held) / "site"
        write_site(folder, lms=language)
        return scorm_package(folder, title)


def parts() -> dict[str, Json]:
    """Return the content of the tabs by name, see `Tab.site`."""
    studio = Studio(AppSettings(replay=True))
    contents = {tab: tab.site(studio, RUNS) for tab in find_tabs()}
    return {
        tab.name: {"label": tab.label, **content} for tab, content in contents.items() if content
    }


def offline_page(folder: Path, data: JsonView) -> str:
    """Return the site as one file that opens from a disk, with the runs and translations of its folder."""
    paths = [*folder.glob("runs/*.json*"), *folder.glob("words/*.json")]
    files = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(paths)}
    policy = REPLAY_POLICY.replace("data:", "data: file:")
    return inline_page(
        "site/site.js", policy, data_block("sd-data", data), data_block("sd-files", files)
    )


def index(page: Mapping[str, str], data: JsonView) -> str:
    """Return the site's one page. Its head names all files of the first view, so that they load in parallel."""
    first, *_ = data["parts"]["play"]["choices"][0]
    move = [] if data.get("lms") else [f"<script>{TO_OFFLINE}</script>"]
    head = [
        *move,
        f'<meta name="generator" content="{MARK}">',
        preview_tags(page["title"], page["subtitle"], PREVIEW),
        '<link rel="icon" href="icons/favicon.svg">',
        style_links(str),
        *(
            f'<link rel="modulepreload" href="view/{name}">'
            for name in ("site/site.js", *modules("site/replay.js"))
            if name != "site/replay.js"
        ),
        f'<link rel="preload" href="runs/{first}.jsonl" as="fetch" crossorigin>',
    ]
    script = '<script type="module" src="view/site/site.js"></script>'
    return html_page(page["title"], SITE_POLICY, head, [data_block("sd-data", data), script])


def preview_tags(title: str, sentence: str, picture: str) -> str:
    """Return the tags of a page's head from which other programs make the preview of a link. picture: its address"""
    named = {
        "og:title": title,
        "og:description": sentence,
        "og:type": "website",
        "og:image": picture,
    }
    tags = [f'<meta property="{name}" content="{escape(text)}">' for name, text in named.items()]
    tags.append('<meta name="twitter:card" content="summary_large_image">')
    return "".join([*tags, f'<meta name="description" content="{escape(sentence)}">'])


def _is_site(folder: Path) -> bool:
    page = folder / "index.html"
    return page.is_file() and MARK in page.read_text(encoding="utf-8", errors="replace")


_DATE = (1980, 1, 1, 0, 0, 0)  # the same site gives the same package


def scorm_package(folder: Path, title: str) -> bytes:
    """Return a folder with a site, and the manifest that a platform reads, as a zip archive."""
    names = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(zipfile.ZipInfo("imsmanifest.xml", _DATE), manifest(title, names))
        for name in names:
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(info, (folder / name).read_bytes())
    return out.getvalue()


def manifest(title: str, names: list[str]) -> bytes:
    """Return the `imsmanifest.xml` of a package with one activity, which consists of these files (SCORM 1.2)."""
    pattern = (ASSETS / "cards/imsmanifest.xml").read_text(encoding="utf-8")
    files = "".join(f"<file href={quoteattr(name)} />" for name in names)
    return pattern.format(title=escape(title, quote=False), files=files).encode()
